package activitypub

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/internal/fault"
)

// A Create may only name its object, or embed one of another server, whose copy says nothing.
// Then the object is asked for where it lives: in a job, so that no sender waits for a third server and none
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
	// Request says that the actor sent the Create to this server; see proven.
	Request bool `json:"request,omitempty"`
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
		Request: in.by.request,
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
	got, err := n.fetcher.fetchExact(ctx, named.Object, reading{
		as: n.addressee(job.Agent, document.Object{"to": named.To, "cc": named.Cc}),
		further: func() bool {
			return n.verifier.confirmations.count(document.HostOf(job.Actor), n.now()) == 0
		},
	})
	if err != nil {
		return nil, err
	}

	id, author := document.Text(got.doc, "id"), document.Author(got.doc)
	if slices.Contains(document.Authors(got.doc), job.Actor) {
		author = job.Actor
	}
	in := &incoming{agent: job.Agent, kind: "Create", id: named.ID, actor: job.Actor, body: got.raw}
	in.by = proven{keyID: named.KeyID, scheme: named.Scheme, relay: named.Relay, request: named.Request}
	to, cc := named.To, named.Cc
	if author != job.Actor {
		if document.SameOrigin(id, job.Actor) || !document.SameOrigin(author, id) || !n.admits(document.HostOf(author)) ||
			n.options.ActorAllowed != nil && !n.options.ActorAllowed(author) {
			return nil, nil
		}

		in.id, in.actor = id, author
		in.by.scheme, in.by.relay, in.by.request = schemeOrigin, job.Actor, false
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
	iris := document.ReadAudience(activity, note).All()
	for _, mention := range n.mentions(note) {
		iris = append(iris, mention.Href)
	}

	return slices.ContainsFunc(iris, func(iri string) bool {
		_, found := n.agentOf(iri)
		return found
	})
}
