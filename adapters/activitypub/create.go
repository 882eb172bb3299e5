package activitypub

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
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
var spokenTypes = []string{"Note", "Article", "Page", "Question", chatMessage}

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
	agents, err := n.addressed(ctx, in, q)
	if err != nil {
		return "", err
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
	followers    string // collection of the author
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

	q, err := n.readNote(in.activity, document.Embedded(in.activity["object"]), in.actor)
	if err != nil || q == nil {
		return nil, err
	}
	q.activity = in.id
	q.decide(in.by.actor.Followers)
	return q, nil
}

// readNote checks origin and author of a note (ActivityPub reference, section 5.1). nil without an error means that it is
// of another server, or nothing that is said.
func (n *notes) readNote(activity, note document.Object, actor string) (*inboundNote, error) {
	id := document.Text(note, "id")
	if n.isOurs(id) {
		return nil, fault.InField("object.id", "an object of this server cannot come from outside")
	}
	if note == nil || !document.SameOrigin(id, actor) || !document.IsA(note, spokenTypes...) {
		return nil, nil
	}
	if author := document.Reference(note["attributedTo"]); author != "" && author != actor {
		return nil, fault.InField("object.attributedTo", "the object is by another actor")
	}
	if isVote(note) {
		return nil, nil
	}

	return &inboundNote{
		object: note, note: id, actor: actor, inReplyTo: plainID(note["inReplyTo"], document.MaxIRIBytes),
		context: conversationID(note["context"]), conversation: conversationID(note["conversation"]),
		audience: document.ReadAudience(activity, note), mentions: document.ReadMentions(note),
	}, nil
}

// decide finds the visibility by the author's followers collection.
func (q *inboundNote) decide(followers string) {
	q.followers = followers
	q.visibility = visibilityOf(q.audience, followers)
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
		add(n.agentOf(mention.Href))
	}

	for _, iris := range [][]string{q.audience.To, q.audience.Cc, q.audience.Hidden} {
		for _, iri := range iris {
			add(n.agentOf(iri))
		}
	}
	if err := n.addAuthor(ctx, q, add); err != nil {
		return nil, err
	}

	if len(agents) == 0 && in.agent != "" && q.visibility == normalized.VisibilityDirect {
		add(n.options.Directory.Agent(in.agent)) // Mastodon's "limited": delivered without being addressed
	}
	return agents, nil
}

// addAuthor adds the agent whose note the question answers.
func (n *notes) addAuthor(ctx context.Context, q *inboundNote, add func(exchange.AgentProfile, bool)) error {
	id, ours := n.replyID(q.inReplyTo)
	if !ours {
		return nil
	}
	reply, _, err := n.options.Replies.Reply(ctx, id)
	switch {
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Gone):
		return nil
	case err != nil:
		return unavailable(err)
	}
	add(n.options.Directory.Agent(reply.Agent))
	return nil
}

// A Create may only name its object, or embed one of another server, whose copy says nothing (ActivityPub reference,
// section 5.1). Then the object is asked for where it lives: in a job, so that no sender waits for a third server and none
// is asked twice at once.

const (
	jobObject         = "object" // fetch what a Create only named
	maxObjectAttempts = 4
	objectTimeout     = 20 * time.Second
)

// namedCreate is what a job remembers of a verified Create.
type namedCreate struct {
	ID     string `json:"id"`
	Object string `json:"object"`
	To     any    `json:"to,omitempty"`
	Cc     any    `json:"cc,omitempty"`
	KeyID  string `json:"key_id,omitempty"`
	Scheme string `json:"scheme"`
	Relay  string `json:"relay,omitempty"`
}

// namesOnly reports whether the object of a Create has to be fetched: it is not there, or it is another server's.
func (in *incoming) namesOnly() bool {
	note := document.Embedded(in.activity["object"])
	return document.Type(note) == "" || !document.SameOrigin(document.Text(note, "id"), in.actor)
}

// fetchLater stores that the object is to be fetched. What is on another server is asked for only if the activity is for
// one of our agents, and no one's server makes us ask oftener than one that forwards.
func (n *notes) fetchLater(ctx context.Context, in *incoming) (string, error) {
	id := document.Reference(in.activity["object"])
	if in.id == "" {
		return "", fault.InField("id", "a Create needs an id")
	}
	if !n.isRemote(id) || !n.admits(document.HostOf(id)) || !document.SameOrigin(id, in.actor) && in.agent == "" && !n.concerns(in.activity) {
		return outcomeIgnored, nil
	}
	if wait := n.verifier.confirmations.count(document.HostOf(in.actor), n.now()); wait > 0 {
		return "", &fault.Fault{Kind: fault.RateLimited, Public: "too many activities without their objects from your server", RetryAfter: wait}
	}

	named, err := json.Marshal(namedCreate{
		ID: in.id, Object: id, To: in.activity["to"], Cc: in.activity["cc"], KeyID: in.by.keyID, Scheme: in.by.scheme, Relay: in.by.relay,
	})
	if err != nil {
		return "", unavailable(err)
	}
	job := laterJob{Kind: jobObject, Agent: in.agent, Actor: in.actor, Activity: named}
	return outcomeOf(n.schedule(ctx, "activitypub:object:"+document.HostOf(id), job))
}

// receiveNamed fetches what a Create named and handles it. An object of the actor is the actor's message as if it had been
// embedded; one of another actor is that actor's message, confirmed by their server and brought by the actor.
func (n *notes) receiveNamed(ctx context.Context, job laterJob, attempt int) error {
	var named namedCreate
	if err := json.Unmarshal(job.Activity, &named); err != nil {
		return fault.GiveUp("the stored activity cannot be read", err)
	}
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	in, err := n.fetchNamed(ctx, job, named)
	if err == nil && in != nil {
		_, err = n.createWhole(ctx, in)
	}
	switch {
	case err == nil:
		return nil
	case isGone(err), attempt >= maxObjectAttempts, fault.Of(err).Kind != fault.Internal && fault.Of(err).Kind != fault.Unavailable:
		return fault.GiveUp("the object of an activity could not be had from its server", err)
	}

	return fault.RetryIn(0, "the object of an activity could not be fetched", err)
}

// fetchNamed makes the Create whole; nil when its object is by an actor that cannot be its author.
func (n *notes) fetchNamed(ctx context.Context, job laterJob, named namedCreate) (*incoming, error) {
	leave, err := n.actors.enter(ctx, document.HostOf(named.Object))
	if err != nil {
		return nil, err
	}
	defer leave()
	got, err := exact(ctx, named.Object, n.fetcher.fetchSigned)
	if err != nil {
		return nil, err
	}

	id, author := document.Text(got.doc, "id"), document.Reference(got.doc["attributedTo"])
	in := &incoming{agent: job.Agent, kind: "Create", id: named.ID, actor: job.Actor, body: got.raw}
	in.by = proven{keyID: named.KeyID, scheme: named.Scheme, relay: named.Relay}
	to, cc := named.To, named.Cc
	if author != job.Actor {
		if document.SameOrigin(id, job.Actor) || !document.SameOrigin(author, id) || !n.admits(document.HostOf(author)) ||
			n.options.ActorAllowed != nil && !n.options.ActorAllowed(author) {
			return nil, nil
		}
		in.id, in.actor = id, author
		in.by.scheme, in.by.relay = schemeOrigin, job.Actor
		to, cc = got.doc["to"], got.doc["cc"]
	}

	if in.by.actor, err = n.actors.actor(ctx, in.actor); err != nil {
		return nil, err
	}
	in.activity = document.Object{"type": "Create", "id": in.id, "actor": in.actor, "object": got.doc, "to": to, "cc": cc}
	return in, nil
}

// concerns reports whether a wrapped activity names one of our agents: only then is anything fetched for it.
func (n *notes) concerns(activity document.Object) bool {
	note := document.Embedded(activity["object"])
	named := func(iri string) bool {
		_, found := n.agentOf(iri)
		return found
	}
	for _, mention := range document.ReadMentions(note) {
		if named(mention.Href) {
			return true
		}
	}

	if slices.ContainsFunc(slices.Concat(document.References(note["to"]), document.References(note["cc"])), named) {
		return true
	}
	_, ours := n.replyID(document.Reference(note["inReplyTo"]))
	return ours
}
