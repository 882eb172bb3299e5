package contract

import (
	"context"
	"crypto/md5" //nolint:gosec // the recorded form of imported keys; it protects nothing
	"encoding/hex"
	"strings"
)

// SessionKey identifies our session of an outside conversation: one per connector, conversation and agent. It is
// kept in three parts, because the parts may hold any character.
type SessionKey struct {
	Connector    string
	Conversation string // opaque, kept as it is
	Agent        string // "" = the agent is chosen later
}

// NewSessionKey brings connector and agent into their one form.
func NewSessionKey(connector, conversation, agent string) SessionKey {
	return SessionKey{dashed(connector), conversation, dashed(agent)}
}

// Imported is the key under which the reference runtime keeps the same session. Different keys may share one when
// their parts hold colons, so it only serves to find imported rows (agent runtime contract, section 6.3).
func (k SessionKey) Imported() string {
	return "wp_agent_channel_session_" + md5Hex(strings.Join([]string{dashed(k.Connector), k.Conversation, dashed(k.Agent)}, ":"))
}

func md5Hex(text string) string {
	sum := md5.Sum([]byte(text)) //nolint:gosec // see the import
	return hex.EncodeToString(sum[:])
}

// Sessions keeps the session of every key. Its conformance suite is contracttest.Sessions.
type Sessions interface {
	// Session returns the session of a key, or else the one that was imported under its Imported form; "" = none.
	Session(ctx context.Context, key SessionKey) (string, error)

	// SetSession keeps the session of a key; an empty one is DeleteSession.
	SetSession(ctx context.Context, key SessionKey, session string) error

	// DeleteSession forgets the session of a key, an imported one too. An unknown key is no error.
	DeleteSession(ctx context.Context, key SessionKey) error

	// ImportSession keeps a row of the reference runtime under the key that it had there. SetSession of a key that
	// comes later goes before it. An empty session changes nothing.
	ImportSession(ctx context.Context, imported, session string) error
}
