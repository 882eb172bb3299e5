package activitypub

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
)

// maxThreadBytes bounds the name of a conversation that a peer gives.
const maxThreadBytes = 1024

// thread decides to which conversation a note belongs: our own stored thread of the parent first, then the sender's
// context or conversation, then the note itself.
//
// Public and private talk never share a thread, and private threads are the sender's alone. Both context and
// inReplyTo are claims of the sender: if they could open another actor's direct conversation, the agent would answer
// a stranger with that conversation in its history; and if a direct message joined a public thread, the next public
// answer would have it in its history.
//
// late reports whether the parent is a note of another server which never came here.
func (n *notes) thread(ctx context.Context, agent string, q *inboundNote) (id string, late bool, err error) {
	if q.inReplyTo == "" {
		return n.ownThread(agent, q), false, nil
	}

	entry, found, err := n.parent(ctx, agent, q.actor, q.inReplyTo)
	if err != nil {
		return "", false, unavailable(err)
	}
	if found && q.continues(entry.Route) {
		q.inherited = n.inheritedContext(entry)
		return entry.ThreadID, false, nil
	}

	remote := n.isRemote(q.inReplyTo)
	return n.ownThread(agent, q), !found && remote, nil
}

// parent finds a message of the agent that the actor may continue by the note of its answer, by its own note, or by its activity.
func (n *notes) parent(ctx context.Context, agent, actor, iri string) (exchange.ThreadEntry, bool, error) {
	principal := n.principalOf(actor)
	entry, found, err := n.options.Threads.ContinuedMessage(ctx, agent, ChannelName, principal, []string{n.firstPost(iri)})
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

	return n.options.Threads.ContinuedMessage(ctx, agent, ChannelName, principal, []string{held.Activity})
}

// principalOf is the principal of an actor that was proven, see notes.sender.
func (s *site) principalOf(actor string) string { return s.options.Domain + " " + actor }

// continues reports whether the question may join the thread of its stored parent.
func (q *inboundNote) continues(notes json.RawMessage) bool {
	var kept route
	if json.Unmarshal(notes, &kept) != nil {
		return false
	}
	if isOpen(q.visibility) {
		return isOpen(kept.Visibility)
	}
	return !isOpen(kept.Visibility) && kept.Actor == q.actor
}

// ownThread is the conversation that the sender names, or that begins with the note. It is the actor's alone unless it is public and
// its name comes from the author's server or that of the parent.
func (n *notes) ownThread(agent string, q *inboundNote) string {
	name, owner := cmp.Or(q.context, q.conversation, q.note), n.principalOf(q.actor)
	if isOpen(q.visibility) && q.mayName(name) {
		owner = ""
	}
	return exchange.ConversationID(ChannelName, agent, owner, visibilityClass(q.visibility)+" "+name)
}

// readers of a public note are everyone. A private one is its sender's alone: the answer is told to no one else.
func (q *inboundNote) readers() exchange.Audience {
	return exchange.Audience{Open: isOpen(q.visibility)}
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
