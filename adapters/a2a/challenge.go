package a2a

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/internal/webtoken"
)

// Scopes of access tokens.
const (
	scopeSend   = "a2a:send"
	scopeRead   = "a2a:read"
	scopeCancel = "a2a:cancel"
	scopePush   = "a2a:push"
)

var allScopes = []string{scopeSend, scopeRead, scopeCancel, scopePush}

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

// resourceMetadataPath is where clients look for who may let them in (RFC 9728, section 3.1).
const resourceMetadataPath = "/.well-known/oauth-protected-resource"

// resourceMetadataURL puts the well-known path between the host and the path of the resource.
func (a *Adapter) resourceMetadataURL(agent exchange.AgentProfile) string {
	u, err := url.Parse(a.endpoint(agent))
	if err != nil {
		return a.base
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
func (a *Adapter) resourceMetadata(r *http.Request) ([]byte, error) {
	agent, known := a.options.Directory.Agent(httpserver.Param(r, "agent"))
	if !known {
		return nil, noCard()
	}
	document := resourceMetadata{
		Resource: a.endpoint(agent), Name: displayName(agent), Scopes: allScopes, Methods: []string{"header"},
	}
	for _, issuer := range a.options.Issuers {
		document.AuthorizationServers = append(document.AuthorizationServers, issuer.Name)
	}
	if len(a.options.Issuers) > 0 {
		document.ProofAlgorithms = webtoken.ProofAlgorithms()
	}
	return json.MarshalIndent(document, "", "  ")
}

// challenges say how to authenticate (RFC 6750, section 3; RFC 9728, section 5.1; RFC 9449, section 7.1). A request that
// showed nothing gets no error.
func (a *Adapter) challenges(agent exchange.AgentProfile, status int, shown bool, scope string, cause error) []string {
	metadata := `resource_metadata="` + a.resourceMetadataURL(agent) + `"`
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
	if len(a.options.Issuers) > 0 {
		algs := `DPoP algs="` + strings.Join(webtoken.ProofAlgorithms(), " ") + `", ` + metadata
		if bearerOnly {
			return []string{algs + `, error="invalid_dpop_proof"`, list[0]}
		}
		list = append(list, algs)
	}
	return list
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

// refuseCaller is the problem of a request whose caller is not known, or not let in.
func (a *Adapter) refuseCaller(r *http.Request, agent exchange.AgentProfile, err error) *problem {
	p := *problemOf(err)
	if p.http == http.StatusUnauthorized || p.http == http.StatusForbidden {
		p.authenticate = a.challenges(agent, p.http, r.Header.Get("Authorization") != "", "", err)
	}
	return &p
}

// outOfScope is the problem of a token that is not good for a request; nil when it is. The challenge names all scopes that
// the request needs (RFC 6750, section 3).
func (a *Adapter) outOfScope(c *call, needed []string) error {
	for _, scope := range needed {
		if !c.caller.may(scope) {
			p := *problemOf(fault.New(fault.Forbidden, "the token is not good for this: it lacks the scope "+scope))
			p.authenticate = a.challenges(c.agent, http.StatusForbidden, true, strings.Join(needed, " "), nil)
			return &p
		}
	}
	return nil
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return "issuer.invalid"
	}
	return u.Host
}
