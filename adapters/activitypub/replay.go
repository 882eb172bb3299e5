package activitypub

import (
	"context"
	"time"
)

const (
	doneNamespace = "activitypub.done"  // deedKey of an activity that took effect
	doneLife      = 30 * 24 * time.Hour // longer than any signature is good
)

// onceOnly are the activities whose repetition would undo what came after them. A new note is recognised by its message,
// and the rest changes nothing when it comes again.
var onceOnly = map[string]bool{
	"Follow": true, "Undo": true, "Block": true, "Accept": true, "Reject": true, "Move": true, "Flag": true,
}

// repeated says whether the activity took effect before. A Follow that still stands may come again: our Accept may have
// been lost.
func (a *Adapter) repeated(ctx context.Context, in *incoming) (bool, error) {
	if !onceOnly[in.kind] || in.id == "" {
		return false, nil
	}
	_, done, err := a.options.State.Get(ctx, doneNamespace, deedKey(in.id, in.actor))
	if err != nil || !done || in.kind != "Follow" {
		return done, err
	}
	agent, found := a.agentOf(reference(in.activity["object"]))
	if !found {
		return true, nil
	}
	_, stands, err := a.options.State.Get(ctx, followerNamespace+agent.Name, in.actor)
	return !stands, err
}

// done remembers an activity that took effect. When this fails the peer sends the activity again, which does no harm.
func (a *Adapter) done(ctx context.Context, in *incoming) error {
	if !onceOnly[in.kind] || in.id == "" {
		return nil
	}
	return a.options.State.Put(ctx, doneNamespace, deedKey(in.id, in.actor), []byte("1"), a.now().Add(doneLife))
}
