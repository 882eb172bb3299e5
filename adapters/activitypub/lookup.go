package activitypub

import (
	"context"
	"crypto"
	"encoding/json"
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

	maxKeyFetches = 16              // at one time
	maxPlaceWait  = 5 * time.Second // for one of them
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
	places    chan struct{} // for fetches under way
	once      singleflight.Group
}

func newLookup(a *Adapter) *lookup {
	return &lookup{
		a: a, keys: newCache[remoteKey](maxCachedKeys), failed: newCache[error](maxCachedFailures),
		hosts: newCache[int](maxCachedHosts), refreshed: newCache[bool](maxCachedFailures),
		addresses: newCache[checkedAddress](maxCachedKeys), places: make(chan struct{}, maxKeyFetches),
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
