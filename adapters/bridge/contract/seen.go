package contract

import (
	"context"
	"time"

	"inbox/agents/runtime/value"
)

// MessageKey names one inbound message of one provider.
type MessageKey struct {
	Provider string // in its one form
	ID       string // trimmed; case counts
}

// NewMessageKey makes the key of a message. ok is false when a part is blank: such a message cannot be recognised.
func NewMessageKey(provider, id string) (key MessageKey, ok bool) {
	key = MessageKey{Slug(provider), value.Trim(id)}
	return key, key.Provider != "" && key.ID != ""
}

// Imported is the key under which the reference runtime keeps the same mark (agent runtime contract, section 6.3).
func (k MessageKey) Imported() string {
	return "wp_agent_message_seen_" + md5Hex(k.Provider+":"+k.ID)
}

// Marks keeps which messages were seen, each for a time. Times to live are
// positive; a mark is gone when its time is over.
type Marks interface {
	// Claim marks a message unless it is marked, in one step: of all concurrent callers exactly one is first. A mark
	// that was there keeps its time.
	Claim(ctx context.Context, key MessageKey, ttl time.Duration) (first bool, err error)

	// Mark marks a message whether it is marked or not; its time begins anew.
	Mark(ctx context.Context, key MessageKey, ttl time.Duration) error

	// Marked reports whether the message is marked.
	Marked(ctx context.Context, key MessageKey) (bool, error)

	// Unmark removes the mark, so that the message may come again. An unknown key is no error.
	Unmark(ctx context.Context, key MessageKey) error
}

// Duplicates suppresses inbound messages that come again. Messages without provider or id are never seen and never
// kept, and neither is anything with a time to live under a second (agent runtime contract, section 6.3).
type Duplicates struct {
	Marks Marks
}

// Claim reports whether the caller is the first with this message and shall take it; all others shall acknowledge it
// and do nothing. The check and the mark are one step.
func (d Duplicates) Claim(ctx context.Context, provider, id string, ttl time.Duration) (first bool, err error) {
	key, ok := NewMessageKey(provider, id)
	switch {
	case !ok:
		return true, nil
	case ttl < time.Second:
		seen, err := d.Marks.Marked(ctx, key)
		return !seen, err
	}
	return d.Marks.Claim(ctx, key, ttl)
}

// Seen reports whether the message is marked. Between Seen and MarkSeen another caller may come: prefer Claim.
func (d Duplicates) Seen(ctx context.Context, provider, id string) (bool, error) {
	key, ok := NewMessageKey(provider, id)
	if !ok {
		return false, nil
	}
	return d.Marks.Marked(ctx, key)
}

// MarkSeen marks the message; marking again begins its time anew.
func (d Duplicates) MarkSeen(ctx context.Context, provider, id string, ttl time.Duration) error {
	key, ok := NewMessageKey(provider, id)
	if !ok || ttl < time.Second {
		return nil
	}
	return d.Marks.Mark(ctx, key, ttl)
}

// Forget removes the mark, for a message that could not be taken after all.
func (d Duplicates) Forget(ctx context.Context, provider, id string) error {
	key, ok := NewMessageKey(provider, id)
	if !ok {
		return nil
	}
	return d.Marks.Unmark(ctx, key)
}
