package exchange

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
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

	ShowsTools bool // its answers show something of the tools that it called; the registry takes it from its settings
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
	Scope     string    `json:"scope,omitempty"` // TokenPeer, TokenRead, TokenWork, TokenAdmin, TokenPull, TokenTools, TokenTasks, TokenTaskResults or TokenBridge with scopes
	Hash      string    `json:"-"`               // lower-case hex SHA-256 of the token
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero = never
	RevokedAt time.Time `json:"revoked_at,omitzero"` // zero = not revoked

	// LastUsedAt is when the token was shown last, about a minute late at most; zero = not yet, or not since this was recorded.
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
}

// Valid reports whether the token opens anything at a time: it is neither revoked nor past its end.
func (t Token) Valid(at time.Time) bool {
	return t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || at.Before(t.ExpiresAt))
}

// Scopes of a Token.
const (
	TokenPeer  = ""      // opens agents over A2A
	TokenRead  = "read"  // looks at everything in the operator API
	TokenWork  = "work"  // also does the daily work there
	TokenAdmin = "admin" // opens all of the operator API
	TokenPull  = "pull"  // takes the turns of one agent and answers in its name; no caller may have it
	TokenTools = "tools" // executes the client tools of one agent; no caller may have it
)

// AgentEventKind is the queue kind of what an agent is told about an answer of its own; the payload is an AgentEvent.
const AgentEventKind = "agent.event"

// AgentEvent is something that happened to an answer after it was given. It asks for nothing, and nothing can be said to it.
type AgentEvent struct {
	ID        string    `json:"id"`   // UUIDv7; the same in every repeat
	Kind      string    `json:"kind"` // EventDeliveryBounced, EventDeliveryComplaint or EventDeliveryDead
	Agent     string    `json:"agent"`
	TurnID    string    `json:"turn_id"`
	MessageID string    `json:"message_id"` // of the question
	ThreadID  string    `json:"thread_id"`
	Recipient string    `json:"recipient"` // whom it did not reach, or who complained
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// WaitingTool begins the reason of a turn in StateWaiting that goes on by itself as soon as a program outside has given
// the result of a tool.
const WaitingTool = "tool"

// ToolAuthorization is the name of the request by which an agent waits until a person has signed in elsewhere. The asker is told
// with the first one; each has a time at which the agent looks again.
const ToolAuthorization = "authorization"

// WaitingAuthorization is the reason of a turn that waits for that. It goes on by itself, and the asker can help.
const WaitingAuthorization = WaitingTool + " (" + ToolAuthorization + ")"

// GoesOnByItself reports whether a turn waits for something about which its asker can do nothing: other agents, or a
// program that executes a tool.
func GoesOnByItself(turn TurnRecord) bool {
	return turn.State == StateWaiting && turn.Reason != WaitingAuthorization &&
		(turn.Reason == WaitingDispatch || turn.Reason == WaitingTool || strings.HasPrefix(turn.Reason, WaitingTool+" "))
}

// Kinds of an Event about tools that programs outside execute. The member event of a body is the name that the contract has for it (agent
// runtime contract, section 5).
const (
	EventToolRequested = "tool.requested" // body: {"event","request_id","tool_name","timeout_at"}
	EventToolSubmitted = "tool.submitted" // body: {"event","request_id","tool_name","success","by"}
	EventToolTimedOut  = "tool.timed_out" // body: {"event","request_id","tool_name","by"}
	EventToolCancelled = "tool.cancelled" // body: {"event","request_id","tool_name","by"}
	EventToolResumed   = "tool.resumed"   // body: {"event","request_id","tool_name"}; the turn runs again with what ended the request
)

// ToolRequest is one call of a tool that a program outside of the server executes. Statuses and the documents are those
// of the agent runtime contract, section 5.
type ToolRequest struct {
	ID        string          `json:"request_id"`
	Agent     string          `json:"agent"`
	TurnID    string          `json:"turn_id"`
	ToolName  string          `json:"tool_name"`
	Status    string          `json:"status"`
	Request   json.RawMessage `json:"request"`          // as it was made
	Result    json.RawMessage `json:"result,omitempty"` // the normalized result; empty without one
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
	TimeoutAt time.Time       `json:"timeout_at,omitzero"` // zero = it waits for ever
}

// ToolRequestFilter selects requests. Empty fields do not restrict.
type ToolRequestFilter struct {
	Agent         string
	TurnID        string
	ToolName      string
	CreatedBefore time.Time
	CreatedAfter  time.Time
	DueBy         time.Time // TimeoutAt at or before
	All           bool      // also those that do not wait any more
	Before        string    // ToolRequest.Cursor of the last row of the page before; not with DueBy, which has another order
	Limit         int       // 1…500
}

// Cursor names a row of a list of requests.
func (t ToolRequest) Cursor() string {
	return strconv.FormatInt(t.CreatedAt.UnixMicro(), 10) + "." + t.ID
}

// TokenBridge begins the Scope of a bridge's token, whose Name is the id of its client; BridgeScopes follow after a colon.
const TokenBridge = "bridge"

// What a bridge's token may be good for (agent runtime contract, section 6.4).
const (
	BridgeSend    = "send"    // write to agents, read its own conversations
	BridgePending = "pending" // read what waits, say where it may be called back
	BridgeAck     = "ack"     // remove what waits
)

// AllBridgeScopes lists what a bridge's token may be good for.
func AllBridgeScopes() []string { return []string{BridgeSend, BridgePending, BridgeAck} }

// BridgeScope writes the Scope of a bridge's token.
func BridgeScope(scopes []string) string { return TokenBridge + ":" + strings.Join(scopes, ",") }

// BridgeScopes reads for what a bridge's token is good; false when it is no bridge's.
func (t Token) BridgeScopes() (scopes []string, is bool) {
	name, list, _ := strings.Cut(t.Scope, ":")
	if name != TokenBridge {
		return nil, false
	}

	for scope := range strings.SplitSeq(list, ",") {
		if slices.Contains(AllBridgeScopes(), scope) {
			scopes = append(scopes, scope)
		}
	}
	return scopes, true
}
