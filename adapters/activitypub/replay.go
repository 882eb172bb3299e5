package activitypub

import (
	"context"
	"errors"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
)

const (
	doneNamespace = "activitypub.done"  // deedKey of an activity that took effect
	doneLife      = 30 * 24 * time.Hour // longer than any signature is good

	// maxDeedAge is how old an object proof of such an activity may be. It is shorter than the memory of the activity, by more
	// than two clocks may differ, so that a captured one is never taken again after it was forgotten.
	maxDeedAge = doneLife - 24*time.Hour
)

// freshDeed keeps a captured activity from being brought again after doneLife: a proof inside it, unlike the signature of
// a request, has no end of its own.
func freshDeed(proof signature.Proof, in *incoming, now time.Time) error {
	switch {
	case !onceOnly[in.kind]:
		return nil
	case in.id == "":
		return errors.New("an activity of this type that is proven by an object proof alone needs an id")
	case proof.Created.IsZero():
		return errors.New("the proof of an activity of this type must say when it was created")
	case now.Sub(proof.Created) > maxDeedAge:
		return errors.New("the proof is too old for an activity of this type")
	}
	return nil
}

// onceOnly are the activities whose repetition would undo what came after them. A new note is recognised by its message,
// and the rest changes nothing when it comes again.
var onceOnly = map[string]bool{
	"Follow": true, "Undo": true, "Block": true, "Accept": true, "Reject": true, "Move": true, "Flag": true,
}

// repeated says whether the activity took effect before. A Follow that still stands may come again: our Accept may have
// been lost.
func (b *inbox) repeated(ctx context.Context, in *incoming) (bool, error) {
	if !onceOnly[in.kind] || in.id == "" {
		return false, nil
	}
	_, done, err := b.options.State.Get(ctx, doneNamespace, deedKey(in.id, in.actor))
	if err != nil || !done || in.kind != "Follow" {
		return done, err
	}
	agent, found := b.agentOf(document.Reference(in.activity["object"]))
	if !found {
		return true, nil
	}
	_, stands, err := b.options.State.Get(ctx, followerNamespace+agent.Name, in.actor)
	return !stands, err
}

// done remembers an activity that took effect. When this fails the peer sends the activity again, which does no harm.
func (b *inbox) done(ctx context.Context, in *incoming) error {
	if !onceOnly[in.kind] || in.id == "" {
		return nil
	}
	return b.options.State.Put(ctx, doneNamespace, deedKey(in.id, in.actor), []byte("1"), b.now().Add(doneLife))
}
