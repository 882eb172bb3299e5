package chat

import (
	"net/http"
	"net/url"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Scopes of signed tokens; they are those of A2A, which open the same for the same callers.
const (
	scopeSend   = "a2a:send"
	scopeRead   = "a2a:read"
	scopeCancel = "a2a:cancel"
)

// Credential is what a signed token proves, and for what it is good.
type Credential struct {
	Sender normalized.Sender
	May    func(scope string) bool
}

// Issued checks signed tokens: access tokens of the issuers that the operator configured, and what agents of other
// servers sign for themselves. Faults: Unauthenticated, Unavailable.
type Issued interface {
	Signed(r *http.Request) bool
	// Credential checks the token for an agent. Address is that of the request as the caller sees it, audiences are names
	// of the agent here.
	Credential(r *http.Request, agent exchange.AgentProfile, address string, audiences ...string) (Credential, error)
	// Challenges say how to authenticate after a refusal; scope is what a token lacked.
	Challenges(agent exchange.AgentProfile, shown bool, scope string, cause error) []string
}

// signedToken is a token that cannot be checked before the agent is known: it is made out to one. It belongs to one
// request and one goroutine.
type signedToken struct {
	request *http.Request
	checked map[string]Credential // by agent: a proof of possession is good once
}

// issued checks the caller's signed token for an agent.
func (a *Adapter) issued(who caller, agent exchange.AgentProfile, scope string) error {
	found, known := who.signed.checked[agent.Name]
	if !known {
		var err error
		r := who.signed.request
		if found, err = a.options.Issued.Credential(r, agent, a.base+r.URL.EscapedPath(), a.audience(agent)); err != nil {
			return a.refusedToken(who, agent, "", err)
		}
		who.signed.checked[agent.Name] = found
	}
	if !found.May(scope) {
		return a.refusedToken(who, agent, scope, fault.New(fault.Forbidden, "the token is not good for this: it lacks the scope "+scope))
	}
	return nil
}

// audience is the name of an agent in the chat (RFC 8707), beside those that it has for A2A.
func (a *Adapter) audience(agent exchange.AgentProfile) string {
	return a.base + "/v1/agent/" + url.PathEscape(agent.Name)
}

// unidentified is a refusal with the challenges of its agent.
type unidentified struct {
	error
	challenges []string
}

// Unwrap returns the fault.
func (u *unidentified) Unwrap() error { return u.error }

func (a *Adapter) refusedToken(who caller, agent exchange.AgentProfile, scope string, err error) error {
	if !fault.Is(err, fault.Unauthenticated) && !fault.Is(err, fault.Forbidden) {
		callers.WithLabelValues("error").Inc()
		return err
	}
	callers.WithLabelValues("unknown").Inc()
	return &unidentified{err, a.options.Issued.Challenges(agent, who.signed != nil, scope, err)}
}
