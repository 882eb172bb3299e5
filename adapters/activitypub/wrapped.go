package activitypub

import (
	"context"
	"slices"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
)

// announced takes what a group shares with its members. A share of one of our notes is a reaction; group servers such as
// Lemmy share whole activities, and of one that is for us everything but the object's id is asked at its own server.
func (b *inbox) announced(ctx context.Context, in *incoming) (string, error) {
	inner := document.Embedded(in.activity["object"])
	if !document.IsA(inner, "Create") || in.by.actor.Type != "Group" {
		return b.interactions.react(ctx, in)
	}
	wrapped := &incoming{agent: in.agent, activity: inner}
	if b.checkIdentity(wrapped) != nil || b.checkObject(wrapped) != nil || !b.admits(document.HostOf(wrapped.actor)) || !b.notes.concerns(inner) {
		return outcomeIgnored, nil //nolint:nilerr // a share that is none is acknowledged like any other
	}
	var err error
	switch wrapped.by, err = b.verifier.confirm(ctx, wrapped, in.by); {
	case fault.Is(err, fault.Unavailable):
		return "", err
	case err != nil:
		return outcomeIgnored, nil //nolint:nilerr // the author's server does not confirm it: nothing is believed
	}
	return b.notes.create(ctx, wrapped)
}

// concerns says whether a wrapped activity names one of our agents: only then is anything fetched for it.
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

// quoteRequested refuses to be quoted (FEP-044f), unless the operator lets followers quote: an answer was written for its
// asker. Whoever quotes it all the same does so without our stamp, which readers' servers look for.
func (i *interactions) quoteRequested(ctx context.Context, in *incoming) (string, error) {
	id, ours := i.replyID(document.Reference(in.activity["object"]))
	if !ours || in.id == "" {
		return outcomeIgnored, nil
	}
	row, found, err := i.reaction(ctx, document.Object{"object": i.noteIRI(id)}, in.actor)
	if err != nil || !found {
		return outcomeIgnored, err
	}
	reply, _, err := i.options.Replies.Reply(ctx, row.Reply)
	if err != nil {
		return "", unavailable(err)
	}
	allowed, err := i.mayQuote(ctx, in, reply)
	if err != nil {
		return "", unavailable(err)
	}
	stamp := ""
	if allowed {
		if stamp, err = i.stampQuote(ctx, in, reply); err != nil {
			return "", unavailable(err)
		}
	}
	return outcomeOf(i.answerQuote(ctx, in, reply, stamp))
}

// answerQuote accepts with a stamp, and rejects without one.
func (i *interactions) answerQuote(ctx context.Context, in *incoming, reply exchange.Reply, stamp string) error {
	answer := requestAnswer{quoteContext, "Reject", "#rejects/", ""}
	if stamp != "" {
		answer = requestAnswer{quoteContext, "Accept", "#accepts/", stamp}
	}
	return i.answerRequest(ctx, in, reply, answer)
}
