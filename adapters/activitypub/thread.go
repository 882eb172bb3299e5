package activitypub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"inbox/normalized"
)

const maxThreadBytes = 1024

// privateMark separates the actor in the thread id of a private conversation.
const privateMark = "#by="

// thread decides to which conversation a note belongs: our own stored thread of the parent first, then the sender's
// context or conversation, then the note itself.
//
// Public and private talk never share a thread, and private threads are the sender's alone. Both context and
// inReplyTo are claims of the sender: if they could open somebody else's direct conversation, the agent would answer
// a stranger with that conversation in its history; and if a direct message joined a public thread, the next public
// answer would have it in its history. The names of private threads therefore contain the proven actor.
func (a *Adapter) thread(ctx context.Context, agent string, q *question) (string, error) {
	if q.inReplyTo != "" {
		entry, found, err := a.options.Threads.FindMessage(ctx, agent, q.inReplyTo)
		if err != nil {
			return "", unavailable(err)
		}
		if found && q.continues(entry.Message, entry.Route) {
			return entry.ThreadID, nil
		}
	}
	return threadName(q.root(), q.visibility, q.actor), nil
}

// continues says whether the question may join the thread of its stored parent.
func (q *question) continues(parent normalized.Message, notes json.RawMessage) bool {
	if parent.ReceivedVia != normalized.ViaActivityPub {
		return false
	}
	var kept route
	if json.Unmarshal(notes, &kept) != nil {
		return false
	}
	if openly(q.visibility) {
		return openly(kept.Visibility)
	}
	return !openly(kept.Visibility) && kept.Actor == q.actor
}

// root is the conversation that the sender claims, or the note itself.
func (q *question) root() string {
	for _, claimed := range []string{q.context, q.conversation} {
		if claimed != "" {
			return claimed
		}
	}
	return q.note
}

func threadName(root, visibility, actor string) string {
	name := root
	if !openly(visibility) {
		name = root + privateMark + actor
	} else if strings.Contains(root, privateMark) {
		name = "" // nobody names a private thread from outside
	}
	if name == "" || len(name) > maxThreadBytes {
		sum := sha256.Sum256([]byte(visibilityClass(visibility) + "\n" + root + "\n" + actor))
		return "urn:sha256:" + hex.EncodeToString(sum[:])
	}
	return name
}

func visibilityClass(visibility string) string {
	if openly(visibility) {
		return "open"
	}
	return "private"
}

// conversationID reads a context or conversation: an IRI or, from older Mastodon, a tag: URI.
func conversationID(value any) string {
	id := plainID(value, maxThreadBytes)
	if _, ok := origin(id); ok || strings.HasPrefix(id, "tag:") {
		return id
	}
	return ""
}

// plainID reads an id that is only kept and compared; a form that the contract would refuse counts as none, because
// one odd member must not cost the whole note.
func plainID(value any, limit int) string {
	id := reference(value)
	if len(id) > limit || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || unwanted(r) }) {
		return ""
	}
	return id
}
