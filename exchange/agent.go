package exchange

import (
	"time"

	"inbox/identity"
)

// AgentProfile is what adapters may say about an agent in their discovery documents.
type AgentProfile struct {
	Name        string // local part of the address
	Address     string // @name@domain
	DisplayName string
	Summary     string // plain text
	Version     string // the agent's own version, SemVer
	Kind        string
	CreatedAt   time.Time
	Skills      []Skill

	IdentityPolicy *identity.AccessPolicy // what callers must prove, for cards; nil = it is not published
}

// Skill is one thing that an agent can do, for cards.
type Skill struct {
	ID, Name, Description string
	Tags, Examples        []string
}

// Link is one discovery link of an agent (RFC 7033, section 4.4.4). Adapters contribute them.
type Link struct {
	Rel      string `json:"rel"`
	Type     string `json:"type,omitempty"`
	Href     string `json:"href,omitempty"`
	Template string `json:"template,omitempty"`
}

// Token is a bearer token minted by the operator for a peer. The token itself is never stored.
type Token struct {
	ID        string    `json:"id"`              // UUIDv7; evidence names it
	Name      string    `json:"name"`            // the peer's name, part of its address @name@domain
	Agent     string    `json:"agent,omitempty"` // the only agent it opens; empty = all agents of this server
	Scope     string    `json:"scope,omitempty"` // TokenPeer, TokenAdmin, TokenPull, TokenTools or TokenBridge with scopes
	Hash      string    `json:"-"`               // lower-case hex SHA-256 of the token
	CreatedAt time.Time `json:"created_at"`
	RevokedAt time.Time `json:"revoked_at,omitzero"` // zero = valid
}

// Scopes of a Token.
const (
	TokenPeer  = ""      // opens agents over A2A
	TokenAdmin = "admin" // opens the operator API
	TokenPull  = "pull"  // takes the turns of one agent and answers in its name; no caller may have it
	TokenTools = "tools" // executes the client tools of one agent; no caller may have it
)
