package a2a

import (
	"net/http"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/webtoken"
	"inbox/normalized"
)

// Credential is what a signed token proves to a room beside this one that lets the same callers in.
type Credential struct {
	Sender normalized.Sender
	May    func(scope string) bool
}

// Signed reports whether a request shows a signed token, as opposed to one that the operator made.
func (a *Adapter) Signed(r *http.Request) bool {
	_, shown := authorization(r)
	return a.options.Verifier != nil && webtoken.Signed(shown)
}

// Credential checks the signed token of a request to an agent by the rules of A2A. Address is that of the request as the
// caller sees it; audiences are names of the agent in the other room, beside those of A2A. Faults: Unauthenticated,
// Unavailable.
func (a *Adapter) Credential(r *http.Request, agent exchange.AgentProfile, address string, audiences ...string) (Credential, error) {
	if !a.Signed(r) {
		return Credential{}, fault.New(fault.Unauthenticated, "a signed token is needed")
	}
	found, outcome, err := a.checkSigned(r, agent, address, append(a.audiences(agent), audiences...))
	credentials.WithLabelValues(outcome).Inc()
	return Credential{Sender: found.sender, May: found.may}, err
}

// Challenges say how to authenticate to an agent after a request was refused (RFC 6750, section 3). Scope is what a token
// lacked; empty when it was refused otherwise.
func (a *Adapter) Challenges(agent exchange.AgentProfile, shown bool, scope string, cause error) []string {
	status := http.StatusUnauthorized
	if scope != "" {
		status = http.StatusForbidden
	}
	return a.challenges(agent, status, shown, scope, cause)
}
