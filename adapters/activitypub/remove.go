package activitypub

import (
	"context"
	"fmt"

	"inbox/adapters/activitypub/document"
	"inbox/internal/fault"
)

// Reasons of turns that ended because of their sender.
const (
	reasonAccountDeleted = "the sender's account was deleted"
	reasonBlocked        = "the sender blocked the agent"
)

// noteDeleted takes a note back: its messages are erased and a run that works on them stops. Only the stored author may.
// A note that has not come yet is marked, so that it is not answered when it does.
func (n *notes) noteDeleted(ctx context.Context, in *incoming) (string, error) {
	note := document.Reference(in.activity["object"])
	if !document.SameOrigin(note, in.actor) {
		return outcomeIgnored, nil
	}
	mark, err := heldNote{Actor: in.actor, Deleted: true}.encode()
	if err != nil {
		return "", err
	}
	key := note
	for range maxClaims {
		current, inserted, err := n.options.State.PutIfAbsent(ctx, noteNamespace, key, mark, n.now().Add(markLife))
		if err != nil {
			return "", unavailable(err)
		}
		if inserted {
			return outcomeDone, nil
		}
		held, err := readHeld(current)
		switch {
		case err != nil:
			return "", err
		case held.Actor != in.actor && key == note:
			key = ownKeyOf(note, in.actor)
			continue
		case held.Actor != in.actor:
			return outcomeIgnored, nil
		}
		outcome, done, err := n.withdraw(ctx, key, current, held)
		if err != nil || done {
			return outcome, err
		}
	}
	return "", unavailable(fmt.Errorf("note %s changes too often", document.Clip(note, 256)))
}

// withdraw marks the note first: should the second step be lost, the peer that heard no success repeats both.
func (n *notes) withdraw(ctx context.Context, key string, current []byte, held heldNote) (outcome string, done bool, err error) {
	if !held.Deleted {
		held.Deleted, held.Object = true, nil
		mark, err := held.encode()
		if err != nil {
			return "", true, err
		}
		swapped, err := n.options.State.Swap(ctx, noteNamespace, key, current, mark, held.expires(n.now()))
		if err != nil {
			return "", true, unavailable(err)
		}
		if !swapped {
			return "", false, nil
		}
	}
	if held.Activity == "" {
		return outcomeDone, true, nil
	}
	err = n.options.Amender.Remove(ctx, "", held.Activity, n.principal(held.Actor))
	if err != nil && !fault.Is(err, fault.NotFound) {
		return "", true, err
	}
	return outcomeDone, true, nil
}

// actorDeleted forgets an account that its server deleted, and stops what its messages had begun.
func (b *inbox) actorDeleted(ctx context.Context, in *incoming) (string, error) {
	for _, agent := range b.options.Directory.Agents() {
		if _, err := b.follows.unfollow(ctx, agent.Name, in.actor); err != nil {
			return "", err
		}
		if err := b.follows.unblock(ctx, agent.Name, in.actor); err != nil {
			return "", unavailable(err)
		}
	}
	if err := b.options.Amender.CancelOpen(ctx, "", b.principal(in.actor), reasonAccountDeleted); err != nil {
		return "", err
	}
	keyID := in.by.keyID
	if keyID == "" || in.by.relay != "" {
		keyID = in.actor + "#main-key"
	}
	return outcomeOf(b.actors.forget(ctx, in.actor, keyID))
}
