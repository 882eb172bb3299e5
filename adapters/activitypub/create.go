package activitypub

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/normalized"
)

// notes turns notes of others into messages, and their changes into changes of messages.
type notes struct {
	*site
	fetcher  *fetcher
	actors   *actors
	follows  *follows
	verifier *verifier
}

// spokenTypes are the objects of a Create that can be a message.
var spokenTypes = []string{"Note", "Article", "Page", "Question", chatMessage, "Event", "Video", "Audio", "Image"}

// create hands a new note to every agent that it is for, one message each.
func (n *notes) create(ctx context.Context, in *incoming) (string, error) {
	if in.namesOnly() {
		return n.fetchLater(ctx, in)
	}
	return n.createWhole(ctx, in)
}

func (n *notes) createWhole(ctx context.Context, in *incoming) (string, error) {
	q, err := n.readCreate(in)
	if err != nil || q == nil {
		return outcomeIgnored, err
	}
	return n.receiveByAll(ctx, in, q)
}

// receiveByAll hands a note to every agent that it is for.
func (n *notes) receiveByAll(ctx context.Context, in *incoming, q *inboundNote) (string, error) {
	agents, err := n.addressed(ctx, in, q)
	if err != nil {
		return "", err
	}
	if len(agents) == 0 {
		in.dropped = droppedNotNamed
	}

	outcome := outcomeIgnored
	for _, agent := range agents {
		one, err := n.receive(ctx, in, q, agent)
		if err != nil {
			return "", err
		}

		if outcome == outcomeIgnored || one == outcomeAccepted {
			outcome = one
		}
	}

	return outcome, nil
}

// inboundNote is a Create that can be a message, with its fields read and checked once.
type inboundNote struct {
	object       document.Object
	activity     string // IRI of the Create: the message's id
	note         string // IRI of the object: what a reply answers
	actor        string
	inReplyTo    string
	context      string
	inherited    string // context of the post that it answers, where it has none itself
	conversation string
	audience     document.Audience
	sent         *document.Audience // of the activity, where it has one of its own
	request      bool               // the author's server sent it to us; see proven
	followers    string             // collection of the author
	visibility   string
	mentions     document.Mentions
}

// readCreate reads the object of a Create. nil without an error means that the activity is none of our business.
func (n *notes) readCreate(in *incoming) (*inboundNote, error) {
	if in.id == "" {
		return nil, fault.InField("id", "a Create needs an id")
	}
	if document.Reference(in.activity["object"]) == "" {
		return nil, fault.InField("object.id", "the created object needs an id")
	}

	note := document.Embedded(in.activity["object"])
	q, err := n.readNote(in.activity, note, in.actor)
	switch {
	case err != nil:
		return nil, err
	case q == nil && note != nil && isVote(note):
		in.dropped = droppedVote
	case q == nil:
		in.dropped = droppedKind
	}
	if q == nil {
		return nil, nil
	}

	q.activity, q.request = in.id, in.by.request
	if at, is := document.Time(q.object["published"]); is && !q.request && n.now().Sub(at) > maxProofAge {
		in.dropped = droppedOld
		return nil, nil // its author asked for nothing now
	}
	q.decide(in.by.actor.Followers)
	return q, nil
}

// readNote checks origin and author of a note. nil without an error means that it is
// of another server, or nothing that is said.
func (n *notes) readNote(activity, note document.Object, actor string) (*inboundNote, error) {
	id := document.Text(note, "id")
	if n.isOurs(id) {
		return nil, fault.InField("object.id", "an object of this server cannot come from outside")
	}
	if note == nil || !document.SameOrigin(id, actor) || !document.IsA(note, spokenTypes...) {
		return nil, nil
	}
	if !document.IsBy(note, actor) {
		return nil, fault.InField("object.attributedTo", "the object is by another actor")
	}
	if isVote(note) {
		return nil, nil
	}

	q := &inboundNote{
		object: note, note: id, actor: actor, inReplyTo: plainID(note["inReplyTo"], document.MaxIRIBytes),
		context: conversationID(note["context"]), conversation: conversationID(note["conversation"]),
		audience: document.ReadAudience(activity, note), mentions: n.mentions(note),
	}
	if activity["to"] != nil || activity["cc"] != nil {
		sent := document.ReadAudience(activity, activity)
		q.sent = &sent
	}
	return q, nil
}

// decide finds the visibility by the author's followers collection. Where activity and note are for different people it is that of
// the fewer.
func (q *inboundNote) decide(followers string) {
	q.followers = followers
	q.visibility = audienceVisibility(q.audience, followers)
	if q.sent != nil {
		q.visibility = narrower(q.visibility, audienceVisibility(*q.sent, followers))
	}
}

// isVote knows the ballot of a poll: a note with a name, without content.
func isVote(note document.Object) bool {
	return document.IsA(note, "Note") && document.Text(note, "name") != "" && note["inReplyTo"] != nil &&
		document.Text(note, "content") == "" && note["contentMap"] == nil
}

// addressed returns the agents that a note is for: mentioned (by the tag's href; its name may be anything), addressed,
// author of the parent, or, for a note that names none of us but came to a personal inbox, that agent.
func (n *notes) addressed(ctx context.Context, in *incoming, q *inboundNote) ([]exchange.AgentProfile, error) {
	var agents []exchange.AgentProfile
	add := func(agent exchange.AgentProfile, found bool) {
		same := func(other exchange.AgentProfile) bool { return other.Name == agent.Name }
		if found && !slices.ContainsFunc(agents, same) {
			agents = append(agents, agent)
		}
	}

	for _, mention := range q.mentions {
		add(n.mentioned(mention))
	}
	for _, iri := range q.audience.All() {
		add(n.agentOf(iri))
	}

	answered, found, err := n.replyAt(ctx, q.inReplyTo)
	if err != nil {
		return nil, err
	}

	if found {
		add(n.options.Directory.Agent(answered.Agent))
	}

	if len(agents) == 0 && in.agent != "" && q.request {
		agent, known := n.options.Directory.Agent(in.agent)
		// Mastodon's "limited" is delivered without being addressed.
		add(agent, known && (q.visibility == normalized.VisibilityDirect || n.calls(q, agent)))
	}
	return agents, nil
}

// addressedBy returns what proves that the author meant a note for the agent; empty = nothing does, and it is no request of theirs.
// Their own request to this server does. A note that someone else brings, with a proof inside it or confirmed by its author's
// server, was meant for those to whom the author addressed it; a mention addresses no one in a note that is not for everybody,
// and neither does the post that it answers.
func (n *notes) addressedBy(q *inboundNote, agent exchange.AgentProfile) string {
	if q.request {
		return identity.AddressedRequest
	}

	names := func(iri string) bool {
		named, found := n.agentOf(iri)
		return found && named.Name == agent.Name
	}
	mentioned := isOpen(q.visibility) && slices.ContainsFunc(q.mentions, func(m document.Mention) bool {
		named, found := n.mentioned(m)
		return found && named.Name == agent.Name
	})
	if mentioned || slices.ContainsFunc(q.audience.All(), names) {
		return identity.AddressedRecipient
	}
	return ""
}

// receive hands a message to the engine together with the document about its note.
func (n *notes) receive(ctx context.Context, in *incoming, q *inboundNote, agent exchange.AgentProfile) (string, error) {
	held := noteRecord{Actor: q.actor, Activity: q.activity, Open: isOpen(q.visibility), Updated: q.version()}
	value, err := held.encode()
	if err != nil {
		return "", err
	}

	claim := &exchange.Claim{Namespace: noteNamespace, Key: q.note, Value: value, AliasNamespace: noteURLNamespace, Alias: q.page()}

	for range maxClaims {
		message, err := n.normalize(ctx, in, q, agent)
		if err == nil && message == nil {
			in.dropped = droppedEmpty
		}
		if err != nil || message == nil {
			return outcomeIgnored, err
		}

		message.Message.ID, message.Claim = q.activity, claim
		receipt, err := n.options.Receiver.Receive(ctx, *message)
		switch {
		case fault.Is(err, fault.Forbidden):
			in.dropped = droppedRefused
			return outcomeIgnored, nil // a blocked sender hears 202 (message contract, section 12)
		case err != nil:
			return "", err
		case receipt.Claimed == nil && !receipt.New:
			return outcomeDuplicate, nil
		case receipt.Claimed == nil:
			return outcomeAccepted, nil
		}

		if q, claim, err = n.reconcile(q, claim, receipt.Claimed); err != nil || q == nil {
			return outcomeIgnored, err
		}
	}

	return "", unavailable(fmt.Errorf("note %s changes too often", clip.Bytes(q.note, 256)))
}

// reconcile makes of a note what the document that is there already says; nil = it is not taken.
func (n *notes) reconcile(q *inboundNote, claim *exchange.Claim, current []byte) (*inboundNote, *exchange.Claim, error) {
	held, err := readNoteRecord(current)
	next := &exchange.Claim{
		Namespace: claim.Namespace, Key: claim.Key, Value: current, AliasNamespace: claim.AliasNamespace, Alias: claim.Alias,
	}
	switch {
	case err != nil:
		return nil, nil, err
	case held.Actor != q.actor && claim.Key == q.note:
		next.Key, next.Value = actorKey(q.note, q.actor), claim.Value
		return q, next, nil
	case held.Actor != q.actor, held.Deleted:
		return nil, nil, nil
	case held.Activity != "": // the same note in another Create, or edited since
		same := *q
		same.activity = held.Activity
		return &same, next, nil
	}

	newer, err := n.newer(q, held)
	if err != nil {
		return nil, nil, err
	}

	held.Activity, held.Object, held.Open = q.activity, nil, newer != nil && isOpen(newer.visibility)
	next.Value, err = held.encode()
	next.Instead = bytes.Clone(current)
	return newer, next, err
}

// newer returns the question with the version of its note that came before it.
func (n *notes) newer(q *inboundNote, held noteRecord) (*inboundNote, error) {
	if held.Updated < q.version() {
		return q, nil
	}
	note, err := document.Parse(held.Object)
	if err != nil {
		return nil, unavailable(err)
	}

	changed, err := n.readNote(note, note, q.actor)
	if err != nil || changed == nil {
		return q, err
	}

	changed.decide(q.followers)
	changed.activity, changed.visibility = q.activity, narrower(q.visibility, changed.visibility)
	changed.request = q.request && !held.Brought
	return changed, nil
}
