package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/adapters/bridge/contract"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/bearer"
	"inbox/internal/fault"
	"inbox/normalized"
)

var credentials = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_bridge_credentials_total",
	Help: "Tokens and signatures checked for bridges and connectors, by outcome (valid, missing, unknown, refused, error).",
}, []string{"outcome"})

// access checks who calls: operations of bridges, peers and operators begin here.
type access struct {
	*site
	tokens *bearer.Cache
}

// Scopes of a bridge's token.
const (
	scopeSend    = exchange.BridgeSend
	scopePending = exchange.BridgePending
	scopeAck     = exchange.BridgeAck
)

// caller is the program behind a request, and what its token is good for.
type caller struct {
	owner   string   // principal to which its sessions belong
	client  string   // id of the bridge's client; empty for peers and operators
	agent   string   // the only agent that the token opens; empty = all
	scopes  []string // of a bridge
	token   exchange.Token
	manager bool // an operator: sees the sessions and runs of all owners
}

// allow reports whether the token has a scope. Peers have their sessions and runs, and no queue.
func (c caller) allow(scope string) error {
	switch {
	case c.manager, scope == "" && c.client != "", slices.Contains(c.scopes, scope):
		return nil
	}
	return fault.Newf(fault.Forbidden, "the token has not the scope %s", scope)
}

func refused() error {
	return fault.New(fault.Unauthenticated, "a bearer token for a bridge is needed; see: inbox tokens create --bridge")
}

func (a *access) verify(r *http.Request) (caller, error) {
	c, outcome, err := a.checkToken(r)
	credentials.WithLabelValues(outcome).Inc()
	return c, err
}

func (a *access) checkToken(r *http.Request) (caller, string, error) {
	shown := bearer.Of(r)
	if !bearer.WellFormed(shown) {
		return caller{}, "missing", refused()
	}

	token, found, err := a.tokens.Find(r.Context(), shown)
	switch {
	case err != nil:
		return caller{}, "error", fault.Wrap(fault.Unavailable, "the token cannot be checked right now; try again", err)
	case !found, !token.Valid(time.Now()):
		return caller{}, "unknown", refused()
	}

	c := caller{agent: token.Agent, token: token}
	scopes, isBridge := token.BridgeScopes()
	switch {
	case isBridge:
		c.client, c.scopes = contract.Slug(token.Name), scopes
		c.owner = OwnerOfBridge(a.options.Domain, c.client)
	case token.Scope == exchange.TokenAdmin:
		c.manager, c.owner = true, a.options.Domain+" operator:"+token.ID
	case token.Scope == exchange.TokenPeer && ownSessions(r):
		c.owner, c.scopes = a.options.Domain+" token:"+token.ID, []string{scopeSend}
	default:
		return caller{}, "unknown", refused()
	}

	return c, "valid", nil
}

// ownSessions reports whether the address is about conversations, which peers have as well as bridges.
func ownSessions(r *http.Request) bool {
	return !strings.HasPrefix(r.URL.Path, "/v1/bridge/")
}

// opens finds an agent that the caller's token opens. Another one is not found.
func (s *site) opens(c caller, name string) (exchange.AgentProfile, error) {
	if name == "" {
		name = c.agent
	}
	if name == "" {
		return exchange.AgentProfile{}, fault.InField("agent", "is needed: the name of an agent")
	}

	agent, known := s.options.Directory.Agent(strings.TrimPrefix(name, "@"))
	if !known || c.agent != "" && !strings.EqualFold(c.agent, agent.Name) {
		return exchange.AgentProfile{}, fault.New(fault.NotFound, "no such agent here")
	}
	return agent, nil
}

// bridgeSubject names a bridge, or a person who writes by it. It stays when the token is renewed.
func bridgeSubject(client, sender string) string {
	if sender == "" {
		return "bridge:" + client
	}
	return "bridge:" + client + "/" + escaped(sender)
}

// sender is what a token proves. A person whom a bridge names is known as one of that bridge's, and as no one else.
func (a *access) sender(c caller, agent exchange.AgentProfile, person, name string) normalized.Sender {
	subject, local := bridgeSubject(c.client, person), c.client
	switch {
	case c.client == "":
		subject, local = "token:"+c.token.ID, c.token.Name
	case person != "":
		local = c.client + "." + person
	}

	if name == "" {
		name = local
	}

	return normalized.Sender{
		Address: identity.Stated(a.address(local, subject)), DisplayName: name, AuthMethod: normalized.AuthA2AOAuth, Verified: true, KeyID: c.token.ID,
		Identities: []identity.Evidence{{
			Subject: subject, Issuer: a.options.Domain, Method: identity.MethodA2AOAuth, Assurance: identity.AssuranceAgent,
			Audience: identity.Audience{agent.Address}, IssuedAt: identity.Now(),
			Source: &identity.Source{Transport: normalized.ViaA2A, Connector: c.client},
			Proof:  identity.Proof{Type: identity.ProofBearerToken, VerifiedBy: a.options.Domain, Addressed: identity.AddressedRequest, TokenID: c.token.ID},
		}},
	}
}

// address is local@domain; a local part that cannot stand in an address is replaced by a hash of the subject.
func (s *site) address(local, subject string) string {
	if address, err := identity.ParseAddress(local + "@" + s.options.Domain); err == nil && address.Local == local {
		return address.String()
	}
	if address, err := identity.ParseAddress("bridged-" + hashOf(subject)[:24] + "@" + s.options.Domain); err == nil {
		return address.String()
	}
	return "@bridged@" + s.options.Domain
}

// maxReadable bounds names of outside that are kept as they are, in bytes; longer ones are kept as their hash.
const maxReadable = 200

// hashedName is the prefix of a name that is stored as its hash.
const hashedName = "sha256-"

// escaped writes a name of outside so that it can stand in a subject: no blanks, nothing that does not print. Separators
// stay, so that rules may name a beginning such as T123/.
func escaped(name string) string {
	if kept := short(name); kept != name {
		return kept
	}
	return strings.ReplaceAll(url.PathEscape(name), "%2F", "/")
}

// short keeps an id of outside readable if it is not too long. A name in the form of a hash is hashed, too: it could be that of another name.
func short(id string) string {
	if len(id) > maxReadable || strings.HasPrefix(id, hashedName) {
		return hashedName + hashOf(id)
	}
	return id
}

func hashOf(pieces ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(pieces, "\x00")))
	return hex.EncodeToString(sum[:])
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }
