package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/internal/clip"
	"inbox/internal/fault"
)

// Activities that another actor than their actor brings: inbox forwarding (ActivityPub, section 7.1.2) and relays. Without
// a proof only the actor's own server can confirm them, and only what it shows is used.

// schemeOrigin is written into evidence when the author's server was asked.
const schemeOrigin = "origin-fetch"

// Requests that one server can make us send by bringing what others did; an object that is not there costs three.
const (
	maxConfirmations   = 90
	confirmationPeriod = time.Minute
)

// confirmable reports whether the activity is of a kind that the actor's server can confirm: the object is there, changed, or
// gone. Whether someone follows or likes cannot be fetched.
func (in *incoming) confirmable() bool {
	switch in.kind {
	case "Create", "Update", "Delete":
		return document.SameOrigin(document.Reference(in.activity["object"]), in.actor)
	}
	return false
}

// confirm asks the actor's server for the object and puts what it says in place of what was pushed: of that nothing but
// the object's id is believed.
func (v *verifier) confirm(ctx context.Context, in *incoming, signer proven) (proven, error) {
	if !in.confirmable() {
		return proven{}, errOtherOwner
	}
	if wait := v.confirmations.count(document.HostOf(signer.name()), v.now()); wait > 0 {
		return proven{}, &fault.Fault{Kind: fault.RateLimited, Public: "too many activities of others from your server", RetryAfter: wait}
	}

	leave, err := v.actors.enter(ctx, document.HostOf(in.actor))
	if err != nil {
		return proven{}, err
	}
	defer leave()
	how := reading{as: v.addressee(in.agent, in.activity), further: func() bool {
		return v.confirmations.count(document.HostOf(signer.name()), v.now()) == 0
	}}
	by := proven{keyID: signer.keyID, scheme: schemeOrigin, relay: signer.name()}
	if in.kind == "Delete" {
		by.actor, err = v.confirmGone(ctx, in, how)
	} else {
		by.actor, err = v.confirmObject(ctx, in, how)
	}
	switch {
	case fault.Is(err, fault.Unavailable): // our own trouble: the relay shall come again
		return proven{}, err
	case err != nil:
		slog.InfoContext(ctx, "a forwarded activity could not be confirmed", "relay", by.relay, "actor", clip.Bytes(in.actor, 256), "error", err)
		return proven{}, fmt.Errorf("%w, and the actor's server does not confirm the activity", errOtherOwner)
	}

	return by, nil
}

// confirmGone demands that the object is not there any more. A 404 says so of what everyone could read, and of an account:
// private notes have one as well, and those that are not written yet, so that anyone who forwards could erase the former
// and keep the latter from being answered.
func (v *verifier) confirmGone(ctx context.Context, in *incoming, how reading) (*remoteActor, error) {
	id := document.Reference(in.activity["object"])
	sure, err := v.fetcher.isDeleted(ctx, id, how)
	if err == nil && !sure && id != in.actor {
		err = v.wasOpen(ctx, id, in.actor)
	}
	if err != nil {
		return nil, err
	}

	in.activity = document.Object{"type": in.kind, "id": in.id, "actor": in.actor, "object": id}
	if actor, known := v.actors.storedActor(ctx, in.actor); known {
		return actor, nil
	}
	return &remoteActor{Actor: document.Actor{ID: in.actor}}, nil // an unknown actor: there is nothing of it here
}

// wasOpen returns nil if we have a note of the actor that everyone could read.
func (v *verifier) wasOpen(ctx context.Context, note, actor string) error {
	for _, key := range []string{note, actorKey(note, actor)} {
		value, found, err := v.options.State.Get(ctx, noteNamespace, key)
		if err != nil {
			return unavailable(err)
		}

		var held noteRecord
		if found && json.Unmarshal(value, &held) == nil && held.Actor == actor && held.Open {
			return nil
		}
	}

	return errHidden
}

// confirmObject fetches the object and makes an activity of its own author out of it.
func (v *verifier) confirmObject(ctx context.Context, in *incoming, how reading) (*remoteActor, error) {
	got, err := v.fetcher.fetchExact(ctx, document.Reference(in.activity["object"]), how)
	if err != nil {
		return nil, err
	}

	authors := document.Authors(got.doc)
	if document.IsActor(got.doc) {
		authors = []string{document.Text(got.doc, "id")}
	}
	if !slices.Contains(authors, in.actor) {
		return nil, errors.New("the object is by another actor")
	}

	actor, err := v.actors.actor(ctx, in.actor)
	if err != nil {
		return nil, err
	}

	id := document.Text(got.doc, "id")
	in.id, in.body = id, got.raw
	in.activity = document.Object{"type": in.kind, "id": id, "actor": in.actor, "object": got.doc, "to": got.doc["to"], "cc": got.doc["cc"]}
	return actor, nil
}
