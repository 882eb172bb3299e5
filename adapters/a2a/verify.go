package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/admission"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/webtoken"
	"inbox/normalized"
)

var credentials = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_a2a_credentials_total",
	Help: "Tokens checked at the A2A edge, by outcome (valid, missing, unknown, revoked, other_agent, refused, error).",
}, []string{"outcome"})

// Verifier checks signed tokens; *webtoken.Verifier is one. Its errors are *fault.Fault.
type Verifier interface {
	Verify(ctx context.Context, shown webtoken.Presented) (webtoken.Claims, error)
}

// authenticator finds out whom a request comes from, and challenges a caller that has no proof.
type authenticator struct {
	*cards
	tokens *bearer.Cache
}

// caller is who a request is from, and for what its token is good.
type caller struct {
	sender   normalized.Sender
	scopes   []string
	unscoped bool   // every method
	stranger bool   // it signed for itself: anyone who has a domain makes as many of them as they like
	limited  string // the name under which the limiter counts its requests
}

// may reports whether the token is good for a scope.
func (c *caller) may(scope string) bool { return c.unscoped || slices.Contains(c.scopes, scope) }

// verify finds the token of a request and says whom it proves. Faults: Unauthenticated for a missing, unknown or revoked
// token, Forbidden for one that is limited to another agent.
func (v *authenticator) verify(r *http.Request, agent exchange.AgentProfile, address string) (caller, error) {
	found, outcome, err := v.checkToken(r, agent, address)
	credentials.WithLabelValues(outcome).Inc()
	return found, err
}

func (v *authenticator) checkToken(r *http.Request, agent exchange.AgentProfile, address string) (caller, string, error) {
	scheme, shown := authorization(r)
	if v.options.Verifier != nil && webtoken.Signed(shown) {
		return v.checkSigned(r, agent, address, v.audiences(agent))
	}
	if !strings.EqualFold(scheme, "Bearer") || !bearer.WellFormed(shown) {
		return caller{}, "missing", fault.New(fault.Unauthenticated, "a bearer token of this server is needed")
	}

	token, found, err := v.tokens.Find(r.Context(), shown)
	switch {
	case err != nil:
		return caller{}, "error", err
	case !found:
		return caller{}, "unknown", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case !token.Valid(time.Now()):
		return caller{}, "revoked", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case token.Scope != exchange.TokenPeer: // an operator's token opens the operator API and no agent
		return caller{}, "unknown", fault.New(fault.Unauthenticated, "the bearer token is not valid")
	case token.Agent != "" && !strings.EqualFold(token.Agent, agent.Name):
		return caller{}, "other_agent", fault.New(fault.Forbidden, "the bearer token is not for this agent")
	}

	return caller{sender: bearer.Sender(token, agent, v.options.Domain), unscoped: true, limited: "token\n" + token.ID}, "valid", nil
}

// authorization reads the one header of that name: "Bearer x" or "DPoP x" (RFC 6750, section 2.1; RFC 9449, section 7.1).
func authorization(r *http.Request) (scheme, token string) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 || len(values[0]) > webtoken.MaxTokenBytes+16 {
		return "", ""
	}
	scheme, token, _ = strings.Cut(values[0], " ")
	return scheme, strings.TrimSpace(token)
}

// checkSigned takes a token of a configured issuer, or what a peer signed for itself.
func (v *authenticator) checkSigned(r *http.Request, agent exchange.AgentProfile, address string, audiences []string) (caller, string, error) {
	scheme, shown := authorization(r)
	presented := webtoken.Presented{
		Scheme: scheme, Token: shown, Proofs: r.Header.Values("DPoP"), Method: r.Method, URL: address,
		Source: admission.SourceOf(httpserver.ClientIP(r)), Audiences: audiences, Foreign: v.namesAgent,
	}

	if v.options.Peers != nil {
		presented.Peer = func(peer identity.Address) bool { return v.options.Peers(agent.Name, peer) }
	}

	claims, err := v.options.Verifier.Verify(r.Context(), presented)
	switch {
	case fault.Is(err, fault.Unauthenticated):
		return caller{}, "refused", err
	case err != nil:
		return caller{}, "error", err
	}

	sender := v.issuedSender(claims, agent)
	if found := sender.Identities[0].CheckShape(); found != nil {
		return caller{}, "refused", fault.Wrap(fault.Unauthenticated, "the token is not valid here: its names cannot be taken", errors.Join(webtoken.ErrToken, found))
	}

	return caller{sender: sender, scopes: claims.Scopes, unscoped: claims.Unscoped, stranger: claims.Peer != (identity.Address{}), limited: limitedAs(sender.Principal(), claims)}, "valid", nil
}

// audiences are the names of an agent that a token may be made out to, compared exactly: its endpoint with a slash behind it is
// another resource (RFC 9728, section 3.3).
func (v *authenticator) audiences(agent exchange.AgentProfile) []string {
	endpoint := v.endpoint(agent)
	return []string{
		endpoint, endpoint + "/rest", endpoint + "/v1", agent.Address, strings.TrimPrefix(agent.Address, "@"),
		v.cardURL(agent), endpoint + "/.well-known/agent-card.json", endpoint + "/.well-known/agent.json",
	}
}

// namesAgent reports whether a name is one of an agent here: configured for all, it would open every agent with the token of
// one. The agent's own names are asked before.
func (v *authenticator) namesAgent(audience string) bool {
	return strings.HasPrefix(audience, v.base+"/a2a/") || strings.HasPrefix(audience, v.base+"/v1/agent/") || strings.HasPrefix(audience, v.base+"/.well-known/") || strings.HasPrefix(audience, "@")
}

// issuedSender is what a signed token proves. A peer is its address; the subject of a configured issuer stands behind the
// issuer and "#", which no issuer has in it, so that no two issuers can name one principal.
func (v *authenticator) issuedSender(claims webtoken.Claims, agent exchange.AgentProfile) normalized.Sender {
	evidence := identity.Transport(identity.TransportProof{
		Domain: v.options.Domain, Subject: claims.Subject, Method: claims.Method, Assurance: identity.AssuranceAgent,
		Recipient: agent.Address, Addressed: identity.AddressedAudience, KeyID: claims.KeyID, IssuedAt: identity.Now().Time,
	})

	evidence.Source = &identity.Source{Transport: normalized.ViaA2A, Connector: claims.Issuer}
	sender := normalized.Sender{
		Address: identity.Stated(claims.Peer.String()), DisplayName: claims.Peer.Local, AuthMethod: normalized.AuthA2AJWT, Verified: true, KeyID: claims.KeyID,
	}

	if claims.Peer == (identity.Address{}) {
		evidence.Subject = claims.Issuer + "#" + claims.Subject
		evidence.Proof = identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: v.options.Domain, Addressed: identity.AddressedAudience, TokenID: claims.TokenID}
		sender.Address, sender.DisplayName = identity.Stated(issuedAddress(claims)), claims.Subject
		if claims.Method != identity.MethodA2AJWT {
			sender.AuthMethod = normalized.AuthA2AOAuth
		}
	}

	sender.Identities = []identity.Evidence{evidence}
	return sender
}

// issuedAddress is subject@host of the issuer where that can stand in an address, else token@host: a name to show, which
// the evidence does not vouch for.
func issuedAddress(claims webtoken.Claims) string {
	host := hostOf(claims.Issuer)
	for _, local := range []string{claims.Subject, claims.ClientID} {
		if address, err := identity.ParseAddress(local + "@" + host); err == nil && address.Local == local {
			return address.String()
		}
	}
	return "@token@" + host
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "issuer.invalid"
	}
	return u.Host
}

// Scopes of access tokens.
const (
	scopeSend   = "a2a:send"
	scopeRead   = "a2a:read"
	scopeCancel = "a2a:cancel"
	scopePush   = "a2a:push"
)

var allScopes = []string{scopeSend, scopeRead, scopeCancel, scopePush}

// outOfScope is the problem of a token that is not good for a request; nil when it is. The challenge names all scopes that
// the request needs (RFC 6750, section 3).
func (v *authenticator) outOfScope(c *call, needed []string) error {
	for _, scope := range needed {
		if !c.caller.may(scope) {
			p := *problemOf(fault.New(fault.Forbidden, "the token is not good for this: it lacks the scope "+scope))
			p.authenticate = v.challenges(c.agent, http.StatusForbidden, true, strings.Join(needed, " "), nil)
			return &p
		}
	}
	return nil
}

// scopesOf are what a request for an operation needs beside the scope of the operation itself: sending with a webhook
// registers it, whatever the operation is called.
func scopesOf(operation string, hook *a2a.PushConfig) []string {
	scopes := []string{scopeOf(operation)}
	if hook != nil && !slices.Contains(scopes, scopePush) {
		scopes = append(scopes, scopePush)
	}
	return scopes
}

// scopeOf is what an operation of the handler needs.
func scopeOf(operation string) string {
	switch {
	case operation == "SendMessage", operation == "SendStreamingMessage":
		return scopeSend
	case operation == "CancelTask":
		return scopeCancel
	case strings.Contains(operation, "PushConfig"), strings.Contains(operation, "PushNotification"):
		return scopePush
	}
	return scopeRead
}

// refuseCaller is the problem of a request whose caller is not known, or not let in.
func (v *authenticator) refuseCaller(r *http.Request, agent exchange.AgentProfile, err error) *problem {
	p := *problemOf(err)
	if p.http == http.StatusUnauthorized || p.http == http.StatusForbidden {
		p.authenticate = v.challenges(agent, p.http, r.Header.Get("Authorization") != "", "", err)
	}
	return &p
}

// challenges return how to authenticate (RFC 6750, section 3; RFC 9728, section 5.1; RFC 9449, section 7.1). A request that
// showed nothing gets no error.
func (v *authenticator) challenges(agent exchange.AgentProfile, status int, shown bool, scope string, cause error) []string {
	metadata := `resource_metadata="` + v.resourceMetadataURL(agent) + `"`
	problem, bearerOnly := "", errors.Is(cause, webtoken.ErrProof)
	switch {
	case status == http.StatusForbidden:
		problem = `, error="insufficient_scope"`
		if scope != "" {
			problem += `, scope="` + scope + `"`
		}
	case shown && !bearerOnly:
		problem = `, error="invalid_token"`
	}

	list := []string{`Bearer realm="inbox", ` + metadata + problem}
	if len(v.options.Issuers()) > 0 {
		algs := `DPoP algs="` + strings.Join(webtoken.ProofAlgorithms(), " ") + `", ` + metadata
		if bearerOnly {
			return []string{algs + `, error="invalid_dpop_proof"`, list[0]}
		}
		list = append(list, algs)
	}

	return list
}

// resourceMetadataPath is where clients look for who may let them in (RFC 9728, section 3.1).
const resourceMetadataPath = "/.well-known/oauth-protected-resource"

// resourceMetadataURL puts the well-known path between the host and the path of the resource.
func (d *cards) resourceMetadataURL(agent exchange.AgentProfile) string {
	u, err := url.Parse(d.endpoint(agent))
	if err != nil {
		return d.base
	}
	return u.Scheme + "://" + u.Host + resourceMetadataPath + u.EscapedPath()
}

type resourceMetadata struct {
	Resource             string   `json:"resource"`
	Name                 string   `json:"resource_name"`
	AuthorizationServers []string `json:"authorization_servers,omitempty"`
	Scopes               []string `json:"scopes_supported"`
	Methods              []string `json:"bearer_methods_supported"`
	ProofAlgorithms      []string `json:"dpop_signing_alg_values_supported,omitempty"`
}

// resourceMetadata is /.well-known/oauth-protected-resource/a2a/{agent} (RFC 9728, section 2).
func (v *authenticator) resourceMetadata(r *http.Request) ([]byte, error) {
	agent, known := v.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		return nil, noCard()
	}

	document := resourceMetadata{
		Resource: v.endpoint(agent), Name: displayName(agent), Scopes: allScopes, Methods: []string{"header"},
	}

	for _, issuer := range v.options.Issuers() {
		document.AuthorizationServers = append(document.AuthorizationServers, issuer.Name)
	}

	if len(v.options.Issuers()) > 0 {
		document.ProofAlgorithms = webtoken.ProofAlgorithms()
	}

	return json.MarshalIndent(document, "", "  ")
}

// Credential is what a signed token proves to a room beside this one that lets the same callers in.
type Credential struct {
	Sender normalized.Sender
	May    func(scope string) bool
}

// Signed reports whether a request shows a signed token, as opposed to one that the operator made.
func (v *authenticator) Signed(r *http.Request) bool {
	_, shown := authorization(r)
	return v.options.Verifier != nil && webtoken.Signed(shown)
}

// Credential checks the signed token of a request to an agent by the rules of A2A. Address is that of the request as the
// caller sees it; audiences are names of the agent in the other room, beside those of A2A. Faults: Unauthenticated,
// Unavailable.
func (v *authenticator) Credential(r *http.Request, agent exchange.AgentProfile, address string, audiences ...string) (Credential, error) {
	if !v.Signed(r) {
		return Credential{}, fault.New(fault.Unauthenticated, "a signed token is needed")
	}
	found, outcome, err := v.checkSigned(r, agent, address, append(v.audiences(agent), audiences...))
	credentials.WithLabelValues(outcome).Inc()
	return Credential{Sender: found.sender, May: found.may}, err
}

// Challenges return how to authenticate to an agent after a request was refused (RFC 6750, section 3). Scope is what a token
// lacked; empty when it was refused otherwise.
func (v *authenticator) Challenges(agent exchange.AgentProfile, shown bool, scope string, cause error) []string {
	status := http.StatusUnauthorized
	if scope != "" {
		status = http.StatusForbidden
	}
	return v.challenges(agent, status, shown, scope, cause)
}
