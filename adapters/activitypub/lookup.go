package activitypub

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/singleflight"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/internal/admission"
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
	unreachLife  = time.Minute     // of a failure that may be over soon
	refreshPause = 5 * time.Minute // for one client network
	knownLife    = 30 * 24 * time.Hour

	// maxRefreshes is how often one key is fetched again in refreshPause for all client networks together.
	maxRefreshes = 10

	maxKeyFetches = 64              // at one time; fewer of one client network, about one host, and of both together
	maxPlaceWait  = 5 * time.Second // for one of them
)

// remoteKey is a parsed key and the actor who lists it. It never changes; a key that was fetched again is another one.
type remoteKey struct {
	key       crypto.PublicKey
	actor     *remoteActor
	assertion bool        // it may prove objects
	unsettled atomic.Bool // fetched, and not stored yet
}

func newRemoteKey(key crypto.PublicKey, actor *remoteActor, assertion bool) *remoteKey {
	found := &remoteKey{key: key, actor: actor, assertion: assertion}
	found.unsettled.Store(true)
	return found
}

// actors knows the actors of other servers: their keys (memory, then the shared store, then one signed fetch) and their
// addresses.
type actors struct {
	*site
	fetcher *fetcher

	keys      *cache[*remoteKey]
	failed    *cache[error] // keys and actors that could not be had a short time ago
	failures  *failures
	refreshed *cache[bool] // client network and key id
	refreshes *tally       // by key id
	addresses *cache[checkedAddress]
	checked   *cache[bool]      // actors whose address was checked lately because a delivery waited for it
	named     *cache[string]    // address → actor that its WebFinger names
	places    *admission.Places // for fetches under way
	once      singleflight.Group
}

func newActors(s *site, f *fetcher) *actors {
	return &actors{
		site: s, fetcher: f,
		keys: newCache[*remoteKey](maxCachedKeys), failed: newCache[error](maxCachedFailures), failures: newFailures(),
		refreshed: newCache[bool](maxCachedFailures), refreshes: newTally(maxRefreshes, refreshPause, maxCachedFailures),
		addresses: newCache[checkedAddress](maxCachedKeys), checked: newCache[bool](maxCachedFailures), named: newCache[string](maxCachedAgents),
		places: admission.NewPlaces(admission.PlacesOptions{
			Total: maxKeyFetches, PerSource: maxKeyFetches / 16, PerHost: maxKeyFetches / 4, PerPair: maxKeyFetches / 16,
			Patience: maxPlaceWait, Waiting: 16 * maxKeyFetches,
		}),
	}
}

// Find returns the key and whether it was known before, in which case it may be out of date.
func (a *actors) Find(ctx context.Context, keyID string) (found *remoteKey, known bool, err error) {
	if found, known, err = a.remembered(keyID); known || err != nil {
		return found, known, err
	}
	type result struct {
		key   *remoteKey
		known bool
	}
	// The fetch outlives a caller that hangs up: others of its network wait for the same answer. Those of another network
	// never do: what is refused to one must not be refused to all.
	value, err, _ := a.once.Do(sourceOf(ctx).String()+" "+keyID, func() (any, error) {
		background := context.WithoutCancel(ctx)
		if found, known, err := a.remembered(keyID); known || err != nil {
			return result{found, known}, err
		}
		if stored, ok := a.stored(background, keyID); ok {
			keyLookups.WithLabelValues("store").Inc()
			return result{stored, true}, nil
		}
		fetched, err := a.fetch(background, keyID)
		return result{key: fetched}, err
	})
	if err != nil {
		return nil, false, err
	}
	return value.(result).key, value.(result).known, nil
}

// remembered looks into memory: a known key, or the reason why the key could not be had a short time ago.
func (a *actors) remembered(keyID string) (found *remoteKey, known bool, err error) {
	if found, known = a.keys.get(keyID, a.now()); known {
		keyLookups.WithLabelValues("memory").Inc()
		return found, true, nil
	}
	if reason, failed := a.failed.get(keyID, a.now()); failed {
		keyLookups.WithLabelValues("refused").Inc()
		return nil, false, reason
	}
	return nil, false, nil
}

// errRefreshed says that a key was fetched again a short time ago.
var errRefreshed = errors.New("the key was fetched again a short time ago")

// Refresh fetches a known key again, because a signature does not verify with it: the actor may have a new one. Its error
// is errRefreshed when the same client network caused that a short time ago. Requests that come together with the new key
// share one fetch. Who signs wrongly elsewhere does not keep the owner from being asked for.
func (a *actors) Refresh(ctx context.Context, keyID string, tried *remoteKey) (*remoteKey, error) {
	mark := sourceOf(ctx).String() + " " + keyID
	value, err, _ := a.once.Do("refresh "+mark, func() (any, error) {
		if current, known := a.keys.get(keyID, a.now()); known && current != tried {
			return current, nil
		}
		if _, recent := a.refreshed.get(mark, a.now()); recent {
			return nil, errRefreshed
		}
		if wait := a.refreshes.take(keyID, a.now()); wait > 0 {
			return nil, comeAgain(wait)
		}
		a.refreshed.put(mark, true, a.now().Add(refreshPause))
		return a.fetch(context.WithoutCancel(ctx), keyID)
	})
	if err != nil {
		return nil, err
	}
	found := value.(*remoteKey)
	if !signature.SameKey(found.key, tried.key) {
		slog.InfoContext(ctx, "an actor has a new key", "actor", found.actor.ID, "key", keyID)
	}
	return found, nil
}

// stored reads the key from the shared store while it is fresh.
func (a *actors) stored(ctx context.Context, keyID string) (*remoteKey, bool) {
	actor, found := a.storedOwner(ctx, keyID)
	if !found {
		return nil, false
	}
	listed, lists := actor.Key(keyID)
	if !actor.fresh(a.now()) || !lists {
		return nil, false
	}
	key, err := signature.ParseKey(listed.Material)
	if err != nil {
		return nil, false
	}
	result := &remoteKey{key: key, actor: actor, assertion: listed.Assertion}
	a.keys.put(keyID, result, actor.freshUntil())
	return result, true
}

// storedOwner gives the actor whom we know to own a key.
func (a *actors) storedOwner(ctx context.Context, keyID string) (*remoteActor, bool) {
	if actor, found := a.storedActor(ctx, document.WithoutFragment(keyID)); found {
		return actor, true
	}
	owner, found, err := a.options.State.Get(ctx, keyOwnerNamespace, keyID)
	if err != nil || !found {
		return nil, false
	}
	return a.storedActor(ctx, string(owner))
}

// actor gives an actor as our store has it, or anew once that is a day old.
func (a *actors) actor(ctx context.Context, iri string) (*remoteActor, error) {
	if known, found := a.storedActor(ctx, iri); found && known.fresh(a.now()) {
		return known, nil
	}
	actor, err := a.fetchActor(ctx, iri)
	if err == nil && actor.ID != iri {
		return nil, fmt.Errorf("%w: its id is another", errNotFetched)
	}
	return actor, err
}

func (a *actors) storedActor(ctx context.Context, iri string) (*remoteActor, bool) {
	value, found, err := a.options.State.Get(ctx, actorNamespace, iri)
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
func (a *actors) knows(ctx context.Context, iri string) (bool, error) {
	_, found, err := a.options.State.Get(ctx, actorNamespace, iri)
	return found, err
}

// forget drops everything about an actor except the followers' lists.
func (a *actors) forget(ctx context.Context, iri string, keyID string) error {
	a.keys.drop(keyID)
	a.addresses.drop(iri)
	if err := a.options.State.Delete(ctx, addressNamespace, iri); err != nil {
		return err
	}
	return a.options.State.Delete(ctx, actorNamespace, iri)
}

// expire makes the next lookup fetch the actor again, refreshPause after the last time at the earliest, but keeps it known.
func (a *actors) expire(ctx context.Context, actor *remoteActor, keyID string) error {
	a.keys.drop(keyID)
	a.addresses.drop(actor.ID)
	if err := a.options.State.Delete(ctx, addressNamespace, actor.ID); err != nil {
		return err
	}
	old := *actor
	old.Until = actor.FetchedAt.Add(refreshPause)
	value, err := json.Marshal(old)
	if err != nil {
		return fmt.Errorf("encode actor: %w", err)
	}
	return a.options.State.Put(ctx, actorNamespace, actor.ID, value, a.now().Add(knownLife))
}
