package activitypub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/internal/fault"
)

// fetch gets the key from its server and remembers it, or that this failed.
func (a *actors) fetch(ctx context.Context, keyID string) (*remoteKey, error) {
	host := document.HostOf(keyID)
	source := sourceOf(ctx)
	if wait := a.failures.wait(source, host, a.now()); wait > 0 {
		keyLookups.WithLabelValues("refused").Inc()
		return nil, &fault.Fault{
			Kind: fault.RateLimited, Public: "too many keys of this server that your address named could not be fetched", RetryAfter: wait,
		}
	}
	leave, err := a.enter(ctx, host)
	if err != nil {
		keyLookups.WithLabelValues("refused").Inc()
		return nil, err
	}
	defer leave()
	found, err := a.fetchKey(ctx, keyID)
	if err != nil {
		keyLookups.WithLabelValues("failed").Inc()
		life := failureLife
		if errors.Is(err, errUnreachable) { // its owner may be right: in doubt the sender comes again
			life = unreachLife
			err = &fault.Fault{Kind: fault.Unavailable, Public: "the key could not be fetched: its server does not answer", RetryAfter: life, Cause: err}
		}
		a.failed.put(keyID, err, a.now().Add(life))
		a.failures.add(source, host, a.now())
		if isGone(err) {
			a.markGone(ctx, keyID)
		}
		return nil, err
	}
	keyLookups.WithLabelValues("fetched").Inc()
	a.failed.drop(keyID)
	a.keys.put(keyID, found, a.now().Add(keyLife))
	return found, nil
}

// enter takes one of the places for fetches that strangers cause. They are fewer than the client's, so that slow servers
// behind invented senders can never hold up our deliveries.
func (a *actors) enter(ctx context.Context, host string) (leave func(), err error) {
	if leave, err = a.places.Enter(ctx, sourceOf(ctx), host); err != nil {
		return nil, comeAgain(maxPlaceWait)
	}
	return leave, nil
}

// Settle stores a key's actor for all nodes once something has verified with the key: whoever only claims a key leaves
// no row. The store only spares later fetches, so its failure is no failure of the lookup.
func (a *actors) Settle(ctx context.Context, keyID string, found *remoteKey) {
	if !found.unsettled.CompareAndSwap(true, false) {
		return
	}
	a.rememberActor(ctx, found.actor)
	if document.WithoutFragment(keyID) != found.actor.ID {
		_ = a.options.State.Put(ctx, keyOwnerNamespace, keyID, []byte(found.actor.ID), a.now().Add(knownLife))
	}
}

func (a *actors) rememberActor(ctx context.Context, actor *remoteActor) {
	if value, err := json.Marshal(actor); err == nil {
		_ = a.options.State.Put(ctx, actorNamespace, actor.ID, value, a.now().Add(knownLife))
	}
}

// fetchActor gets an actor anew and remembers it.
func (a *actors) fetchActor(ctx context.Context, iri string) (*remoteActor, error) {
	actor, err := a.fetcher.fetchActor(ctx, iri, a.now())
	if err != nil {
		return nil, err
	}
	a.rememberActor(ctx, actor)
	return actor, nil
}

// fetchKey reads the three forms in which servers publish keys: inside the actor, as a document of its own with an
// owner, and as a Multikey of the actor. Owner and key are always on one origin, and the owner lists the key: a key
// document alone could claim anybody as its owner.
func (a *actors) fetchKey(ctx context.Context, keyID string) (*remoteKey, error) {
	got, err := a.fetcher.fetchOpen(ctx, keyID)
	if err != nil {
		return nil, err
	}
	doc := got.doc
	if !document.SameOrigin(got.final, keyID) {
		return nil, fmt.Errorf("%w: redirected to another server", errNotFetched)
	}
	if document.IsActor(doc) && document.Text(doc, "id") == document.WithoutFragment(keyID) {
		actor, err := readActor(doc, a.now())
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNotFetched, err)
		}
		return ownedKey(actor, keyID, "")
	}
	owner, material := ownerOf(doc, keyID)
	if !document.SameOrigin(owner, keyID) {
		return nil, fmt.Errorf("%w: the key has no owner on its own server", errNotFetched)
	}
	actor, err := a.fetcher.fetchActor(ctx, owner, a.now())
	if err != nil {
		return nil, err
	}
	if actor.ID != owner {
		return nil, fmt.Errorf("%w: the key's owner has another id", errNotFetched)
	}
	return ownedKey(actor, keyID, material)
}

// ownerOf reads a bare key document, or the stub actor that GoToSocial serves at its key ids (no inbox, so that it
// is readable without a signature).
func ownerOf(doc document.Object, keyID string) (owner, material string) {
	if document.Text(doc, "id") == keyID {
		key, owner := document.ReadKey(doc)
		return owner, key.Material
	}
	for _, key := range document.ReadKeys(doc) {
		if key.ID == keyID {
			return document.Text(doc, "id"), key.Material
		}
	}
	return "", ""
}

// ownedKey takes the key that the actor lists; elsewhere is the same key as published in a document of its own.
func ownedKey(actor *remoteActor, keyID, elsewhere string) (*remoteKey, error) {
	listed, found := actor.Key(keyID)
	if !found {
		return nil, errors.New("the actor does not list this key")
	}
	if listed.Material == "" {
		listed.Material = elsewhere
		actor.SetMaterial(keyID, elsewhere)
	}
	key, err := signature.ParseKey(listed.Material)
	if err != nil {
		return nil, err
	}
	if elsewhere != "" && elsewhere != listed.Material {
		if other, err := signature.ParseKey(elsewhere); err != nil || !signature.SameKey(key, other) {
			return nil, errors.New("the actor lists this key with other bytes")
		}
	}
	return newRemoteKey(key, actor, listed.Assertion), nil
}

// markGone writes down that the server of an actor whom we know says that the actor is not there any more; where only
// a key's own document is missing, the actor is asked anew next time. Strangers leave no row.
func (a *actors) markGone(ctx context.Context, keyID string) {
	a.keys.drop(keyID)
	actor, found := a.storedOwner(ctx, keyID)
	if !found {
		return
	}
	if document.WithoutFragment(keyID) == actor.ID {
		actor.GoneAt = a.now().UTC()
	}
	actor.FetchedAt, actor.Keys = time.Time{}, nil
	a.rememberActor(ctx, actor)
}
