package activitypub

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/normalized"
)

const maxThreadBytes = 1024

// The marks stand before the actor in the name of a thread that is one actor's alone: a private conversation, or one
// whose name that actor has no right to give.
const (
	privateMark = "#by="
	foreignMark = "#told-by="
)

// thread decides to which conversation a note belongs: our own stored thread of the parent first, then the sender's
// context or conversation, then the note itself.
//
// Public and private talk never share a thread, and private threads are the sender's alone. Both context and
// inReplyTo are claims of the sender: if they could open another actor's direct conversation, the agent would answer
// a stranger with that conversation in its history; and if a direct message joined a public thread, the next public
// answer would have it in its history. The names of private threads therefore contain the proven actor.
//
// late reports whether the parent is a note of another server which never came here.
func (n *notes) thread(ctx context.Context, agent string, q *inboundNote) (name string, late bool, err error) {
	if q.inReplyTo == "" {
		return q.threadName(), false, nil
	}

	entry, found, err := n.parent(ctx, agent, q.inReplyTo)
	if err != nil {
		return "", false, unavailable(err)
	}
	if found && q.continues(entry.Message, entry.Route) {
		q.inherited = n.inheritedContext(entry)
		return entry.ThreadID, false, nil
	}

	remote := n.isRemote(q.inReplyTo)
	return q.threadName(), !found && remote, nil
}

// parent finds a message of the agent by the note of its answer, by its own note, or by its activity.
func (n *notes) parent(ctx context.Context, agent, iri string) (exchange.ThreadEntry, bool, error) {
	entry, found, err := n.options.Threads.FindMessage(ctx, agent, n.firstPost(iri))
	if err != nil || found {
		return entry, found, err
	}

	value, known, err := n.options.State.Get(ctx, noteNamespace, iri)
	if err != nil || !known {
		return entry, false, err
	}

	held, err := readNoteRecord(value)
	if err != nil || held.Activity == "" || held.Activity == iri {
		return entry, false, err
	}

	return n.options.Threads.FindMessage(ctx, agent, held.Activity)
}

// continues reports whether the question may join the thread of its stored parent.
func (q *inboundNote) continues(parent normalized.Message, notes json.RawMessage) bool {
	if parent.ReceivedVia != normalized.ViaActivityPub {
		return false
	}

	var kept route
	if json.Unmarshal(notes, &kept) != nil {
		return false
	}
	if isOpen(q.visibility) {
		return isOpen(kept.Visibility)
	}
	return !isOpen(kept.Visibility) && kept.Actor == q.actor
}

// claimed is the conversation that the sender names; the note itself where it names none.
func (q *inboundNote) claimed() string { return cmp.Or(q.context, q.conversation, q.note) }

// threadName makes the name of a thread that begins here. A conversation that neither the author's server nor that of
// the parent named joins no one else's thread: it goes with the actor who says it.
func (q *inboundNote) threadName() string {
	name := q.claimed()
	switch {
	case !isOpen(q.visibility):
		name += privateMark + q.actor
	case strings.Contains(name, privateMark), strings.Contains(name, foreignMark):
		name = "" // no one names such a thread from outside
	case !q.mayName(name):
		name += foreignMark + q.actor
	}

	if name == "" || len(name) > maxThreadBytes {
		sum := sha256.Sum256([]byte(visibilityClass(q.visibility) + "\n" + q.claimed() + "\n" + q.actor))
		return "urn:sha256:" + hex.EncodeToString(sum[:])
	}

	return name
}

// mayName reports whether a conversation has its name from the server of the author or of the parent.
func (q *inboundNote) mayName(conversation string) bool {
	authority, isTag := strings.CutPrefix(conversation, "tag:") // RFC 4151: tag:authority,date:…
	authority, _, _ = strings.Cut(authority, ",")
	for _, by := range []string{q.actor, q.inReplyTo} {
		host := document.HostOf(by)
		bare, _, _ := strings.Cut(host, ":")
		switch {
		case !isTag && document.SameOrigin(conversation, by):
			return true
		case isTag && host != "" && (strings.EqualFold(authority, host) || strings.EqualFold(authority, bare)):
			return true
		}
	}

	return false
}

func visibilityClass(visibility string) string {
	if isOpen(visibility) {
		return "open"
	}
	return "private"
}

// conversationID reads a context or conversation: an IRI or, from older Mastodon, a tag: URI.
func conversationID(value any) string {
	id := plainID(value, maxThreadBytes)
	if _, ok := document.Origin(id); ok || strings.HasPrefix(id, "tag:") {
		return id
	}
	return ""
}

// plainID reads an id that is only kept and compared; a form that the contract would refuse counts as none, because
// one odd member must not cost the whole note.
func plainID(value any, limit int) string {
	id := document.Reference(value)
	if len(id) > limit || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || notetext.Unwanted(r) }) {
		return ""
	}
	return id
}

// inheritedContext is the context of the post that a question without one answers.
func (n *notes) inheritedContext(parent exchange.ThreadEntry) string {
	var kept route
	if json.Unmarshal(parent.Route, &kept) == nil && kept.Context != "" {
		return kept.Context
	}
	return n.conversationIRI(parent.TurnID)
}

// namedConversation is the context in which a reply stands: that of the question, or our own. A question that answers one
// of our posts inherited its context when it was accepted.
func (r *renderer) namedConversation(reply exchange.Reply, asked route) string {
	return cmp.Or(asked.Context, r.conversationIRI(reply.TurnID))
}
