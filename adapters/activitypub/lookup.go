package activitypub

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/singleflight"
)

// result: memory, store, fetched, refused (failed a short time ago), failed
var keyLookups = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_activitypub_key_lookups_total", Help: "Lookups of other servers' public keys by where the key was found.",
}, []string{"result"})

const (
	actorNamespace    = "activitypub.actor"    // actor IRI → remoteActor
	keyOwnerNamespace = "activitypub.keyowner" // key id → actor IRI, where the key id is not the actor's with a fragment

	keyLife      = 24 * time.Hour
	failureLife  = 5 * time.Minute // a flood with a dead key id costs one fetch (Fedify CVE-2026-34148)
	refreshPause = 5 * time.Minute
	knownLife    = 30 * 24 * time.Hour

	// maxHostFailures is how many failing key ids of one host are fetched inside failureLife: the ids are the
	// sender's to invent.
	maxHostFailures = 20
)

// remoteKey is a parsed key and the actor who lists it.
type remoteKey struct {
	key   crypto.PublicKey
	actor *remoteActor
}

// lookup finds the keys of other servers' actors: memory, then the shared store, then one signed fetch.
type lookup struct {
	a         *Adapter
	keys      *cache[remoteKey]
	failed    *cache[error]
	hosts     *cache[int]
	refreshed *cache[bool]
	addresses *cache[checkedAddress]
	once      singleflight.Group
}

func newLookup(a *Adapter) *lookup {
	return &lookup{
		a: a, keys: newCache[remoteKey](maxCachedKeys), failed: newCache[error](maxCachedFailures),
		hosts: newCache[int](maxCachedHosts), refreshed: newCache[bool](maxCachedFailures),
		addresses: newCache[checkedAddress](maxCachedKeys),
	}
}

// find gives the key and whether it was known before, in which case it may be out of date.
func (l *lookup) find(ctx context.Context, keyID string) (found remoteKey, known bool, err error) {
	if found, known, err = l.remembered(keyID); known || err != nil {
		return found, known, err
	}
	type result struct {
		key   remoteKey
		known bool
	}
	// The fetch outlives a caller that hangs up: others wait for the same answer.
	value, err, _ := l.once.Do(keyID, func() (any, error) {
		background := context.WithoutCancel(ctx)
		if found, known, err := l.remembered(keyID); known || err != nil {
			return result{found, known}, err
		}
		if stored, ok := l.stored(background, keyID); ok {
			keyLookups.WithLabelValues("store").Inc()
			return result{stored, true}, nil
		}
		fetched, err := l.fetch(background, keyID)
		return result{key: fetched}, err
	})
	if err != nil {
		return remoteKey{}, false, err
	}
	return value.(result).key, value.(result).known, nil
}

// remembered looks into memory: a known key, or the reason why the key could not be had a short time ago.
func (l *lookup) remembered(keyID string) (found remoteKey, known bool, err error) {
	if found, known = l.keys.get(keyID, l.a.now()); known {
		keyLookups.WithLabelValues("memory").Inc()
		return found, true, nil
	}
	if reason, failed := l.failed.get(keyID, l.a.now()); failed {
		keyLookups.WithLabelValues("refused").Inc()
		return remoteKey{}, false, reason
	}
	return remoteKey{}, false, nil
}

// refresh fetches a known key again, because a signature does not verify with it: the actor may have a new one. It
// gives false when that was tried a short time ago.
func (l *lookup) refresh(ctx context.Context, keyID string) (remoteKey, bool) {
	if _, recent := l.refreshed.get(keyID, l.a.now()); recent {
		return remoteKey{}, false
	}
	l.refreshed.put(keyID, true, l.a.now().Add(refreshPause))
	value, err, _ := l.once.Do("refresh "+keyID, func() (any, error) {
		return l.fetch(context.WithoutCancel(ctx), keyID)
	})
	if err != nil {
		return remoteKey{}, false
	}
	return value.(remoteKey), true
}

// stored reads the key from the shared store while it is fresh.
func (l *lookup) stored(ctx context.Context, keyID string) (remoteKey, bool) {
	actor, found := l.storedActor(ctx, withoutFragment(keyID))
	if !found {
		owner, ownerFound, err := l.a.options.State.Get(ctx, keyOwnerNamespace, keyID)
		if err != nil || !ownerFound {
			return remoteKey{}, false
		}
		if actor, found = l.storedActor(ctx, string(owner)); !found {
			return remoteKey{}, false
		}
	}
	age := l.a.now().Sub(actor.FetchedAt)
	listed, lists := actor.lists(keyID)
	if age >= keyLife || !lists {
		return remoteKey{}, false
	}
	key, err := parseKey(listed.Material)
	if err != nil {
		return remoteKey{}, false
	}
	result := remoteKey{key, actor}
	l.keys.put(keyID, result, actor.FetchedAt.Add(keyLife))
	return result, true
}

func (l *lookup) storedActor(ctx context.Context, iri string) (*remoteActor, bool) {
	value, found, err := l.a.options.State.Get(ctx, actorNamespace, iri)
	if err != nil || !found {
		return nil, false
	}
	actor := new(remoteActor)
	if json.Unmarshal(value, actor) != nil || actor.ID != iri {
		return nil, false
	}
	return actor, true
}

// fetch gets the key from its server and remembers it, or that this failed.
func (l *lookup) fetch(ctx context.Context, keyID string) (remoteKey, error) {
	host := hostOf(keyID)
	failures, _ := l.hosts.get(host, l.a.now())
	if failures >= maxHostFailures {
		keyLookups.WithLabelValues("refused").Inc()
		return remoteKey{}, errors.New("too many keys of this server could not be fetched: try again in five minutes")
	}
	found, err := l.fetchKey(ctx, keyID)
	if err != nil {
		keyLookups.WithLabelValues("failed").Inc()
		l.failed.put(keyID, err, l.a.now().Add(failureLife))
		l.hosts.put(host, failures+1, l.a.now().Add(failureLife))
		return remoteKey{}, err
	}
	keyLookups.WithLabelValues("fetched").Inc()
	l.remember(ctx, keyID, found)
	return found, nil
}

func (l *lookup) remember(ctx context.Context, keyID string, found remoteKey) {
	l.failed.drop(keyID)
	l.keys.put(keyID, found, l.a.now().Add(keyLife))
	l.rememberActor(ctx, found.actor)
	if withoutFragment(keyID) != found.actor.ID {
		_ = l.a.options.State.Put(ctx, keyOwnerNamespace, keyID, []byte(found.actor.ID), l.a.now().Add(knownLife))
	}
}

// rememberActor stores an actor. The store only spares later fetches, so its failure is no failure of the lookup.
func (l *lookup) rememberActor(ctx context.Context, actor *remoteActor) {
	if value, err := json.Marshal(actor); err == nil {
		_ = l.a.options.State.Put(ctx, actorNamespace, actor.ID, value, l.a.now().Add(knownLife))
	}
}

// fetchActor gets an actor anew and remembers it.
func (l *lookup) fetchActor(ctx context.Context, iri string) (*remoteActor, error) {
	actor, err := l.a.fetchActor(ctx, iri, l.a.now())
	if err != nil {
		return nil, err
	}
	l.rememberActor(ctx, actor)
	return actor, nil
}

// fetchKey reads the three forms in which servers publish keys: inside the actor, as a document of its own with an
// owner, and as a Multikey of the actor. Owner and key are always on one origin, and the owner lists the key: a key
// document alone could claim anybody as its owner.
func (l *lookup) fetchKey(ctx context.Context, keyID string) (remoteKey, error) {
	doc, final, err := l.a.fetch(ctx, keyID)
	if err != nil {
		return remoteKey{}, err
	}
	if !sameOrigin(final, keyID) {
		return remoteKey{}, fmt.Errorf("%w: redirected to another server", errNotFetched)
	}
	if isActor(doc) && str(doc, "id") == withoutFragment(keyID) {
		actor, err := readActor(doc, l.a.now())
		if err != nil {
			return remoteKey{}, fmt.Errorf("%w: %w", errNotFetched, err)
		}
		return ownedKey(actor, keyID, "")
	}
	owner, material := ownerOf(doc, keyID)
	if !sameOrigin(owner, keyID) {
		return remoteKey{}, fmt.Errorf("%w: the key has no owner on its own server", errNotFetched)
	}
	actor, err := l.a.fetchActor(ctx, owner, l.a.now())
	if err != nil {
		return remoteKey{}, err
	}
	if actor.ID != owner {
		return remoteKey{}, fmt.Errorf("%w: the key's owner has another id", errNotFetched)
	}
	return ownedKey(actor, keyID, material)
}

// ownerOf reads a bare key document, or the stub actor that GoToSocial serves at its key ids (no inbox, so that it
// is readable without a signature).
func ownerOf(doc object, keyID string) (owner, material string) {
	if str(doc, "id") == keyID {
		owner = reference(doc["owner"])
		if owner == "" {
			owner = reference(doc["controller"])
		}
		return owner, readKey(doc).Material
	}
	for _, key := range readKeys(doc) {
		if key.ID == keyID {
			return str(doc, "id"), key.Material
		}
	}
	return "", ""
}

// ownedKey takes the key that the actor lists; elsewhere is the same key as published in a document of its own.
func ownedKey(actor *remoteActor, keyID, elsewhere string) (remoteKey, error) {
	listed, found := actor.lists(keyID)
	if !found {
		return remoteKey{}, errors.New("the actor does not list this key")
	}
	if listed.Material == "" {
		listed.Material = elsewhere
		actor.setMaterial(keyID, elsewhere)
	}
	if elsewhere != "" && listed.Material != elsewhere {
		return remoteKey{}, errors.New("the actor lists this key with other bytes")
	}
	key, err := parseKey(listed.Material)
	if err != nil {
		return remoteKey{}, err
	}
	return remoteKey{key, actor}, nil
}

func (r *remoteActor) setMaterial(keyID, material string) {
	for i := range r.Keys {
		if r.Keys[i].ID == keyID {
			r.Keys[i].Material = material
		}
	}
}

// knows says whether we ever dealt with an actor.
func (l *lookup) knows(ctx context.Context, iri string) (bool, error) {
	_, found, err := l.a.options.State.Get(ctx, actorNamespace, iri)
	return found, err
}

// forget drops everything about an actor except the followers' lists.
func (l *lookup) forget(ctx context.Context, iri string, keyID string) error {
	l.keys.drop(keyID)
	l.addresses.drop(iri)
	if err := l.a.options.State.Delete(ctx, addressNamespace, iri); err != nil {
		return err
	}
	return l.a.options.State.Delete(ctx, actorNamespace, iri)
}

// expire makes the next lookup fetch the actor again, but keeps it known.
func (l *lookup) expire(ctx context.Context, actor *remoteActor, keyID string) error {
	l.keys.drop(keyID)
	l.addresses.drop(actor.ID)
	if err := l.a.options.State.Delete(ctx, addressNamespace, actor.ID); err != nil {
		return err
	}
	old := *actor
	old.FetchedAt = time.Time{}
	value, err := json.Marshal(old)
	if err != nil {
		return fmt.Errorf("encode actor: %w", err)
	}
	return l.a.options.State.Put(ctx, actorNamespace, actor.ID, value, l.a.now().Add(knownLife))
}
