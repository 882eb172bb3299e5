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
	"inbox/adapters/activitypub/notetext"
	"inbox/adapters/activitypub/signature"
	"inbox/internal/admission"
	"inbox/internal/fault"
)

// remoteActor is what is kept of an actor of another server.
type remoteActor struct {
	document.Actor
	NoBot     bool      `json:"no_bot,omitempty"` // the profile asks programs not to write unasked
	Hidden    bool      `json:"hidden,omitempty"` // it asks not to be shown to strangers, or found by what it says
	FetchedAt time.Time `json:"fetched_at"`
	Until     time.Time `json:"until,omitzero"`   // the actor was changed: what is kept holds no longer than this
	GoneAt    time.Time `json:"gone_at,omitzero"` // since when its server says that it does not exist
}

// freshUntil is when the actor is to be fetched again.
func (r *remoteActor) freshUntil() time.Time {
	end := r.FetchedAt.Add(keyLife)
	if !r.Until.IsZero() && r.Until.Before(end) {
		return r.Until
	}
	return end
}

func (r *remoteActor) fresh(now time.Time) bool { return now.Before(r.freshUntil()) }

// readActor reads the actor document that was fetched at an instant.
func readActor(doc document.Object, now time.Time) (*remoteActor, error) {
	described, err := document.ReadActor(doc)
	if err != nil {
		return nil, err
	}
	refuses := func(name string) bool { allowed, said := doc[name].(bool); return said && !allowed }
	return &remoteActor{
		Actor: described, NoBot: notetext.AsksNoBots(notetext.Bio(doc)...), Hidden: refuses("discoverable") || refuses("indexable"), FetchedAt: now.UTC(),
	}, nil
}

// unlisted reports whether nothing about the actor is to be on public timelines.
func (r *remoteActor) unlisted() bool { return r.NoBot || r.Hidden }

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
	refreshes *counter     // by key id
	addresses *cache[checkedAddress]
	checked   *cache[bool]         // actors whose address was checked lately because a delivery waited for it
	named     *cache[string]       // address → actor that its WebFinger names
	places    *admission.Semaphore // for fetches under way
	once      singleflight.Group
}

func newActors(s *site, f *fetcher) *actors {
	return &actors{
		site: s, fetcher: f,
		keys: newCache[*remoteKey](maxCachedKeys), failed: newCache[error](maxCachedFailures), failures: newFailures(),
		refreshed: newCache[bool](maxCachedFailures), refreshes: newCounter(maxRefreshes, refreshPause, maxCachedFailures),
		addresses: newCache[checkedAddress](maxCachedKeys), checked: newCache[bool](maxCachedFailures), named: newCache[string](maxCachedAgents),
		places: admission.NewSemaphore(admission.SemaphoreOptions{
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

// errRefreshed reports whether a key was fetched again a short time ago.
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
		if wait := a.refreshes.count(keyID, a.now()); wait > 0 {
			return nil, tryLater(wait)
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

// partingKeys finds the key of an account that deletes itself: where its server does not show it any more, the key that is stored,
// however old. What it signs makes us forget the account and nothing else.
type partingKeys struct{ *actors }

// Find implements signature.Keys. A server that does not answer may have a newer key, so its sender comes again.
func (p partingKeys) Find(ctx context.Context, keyID string) (*remoteKey, bool, error) {
	kept, stored := p.keptKey(ctx, keyID) // read first: the refusal may end what is stored
	found, known, err := p.actors.Find(ctx, keyID)
	refused := isGone(err) || errors.Is(err, errNotFetched) && !errors.Is(err, errUnreachable)
	if !stored || !refused {
		return found, known, err
	}
	return kept, false, nil
}

// keptKey returns a stored key of any age.
func (a *actors) keptKey(ctx context.Context, keyID string) (*remoteKey, bool) {
	actor, found := a.storedOwner(ctx, keyID)
	if !found {
		return nil, false
	}
	listed, lists := actor.Key(keyID)
	key, err := signature.ParseKey(listed.Material)
	if !lists || err != nil {
		return nil, false
	}
	return &remoteKey{key: key, actor: actor, assertion: listed.Assertion}, true
}

// storedOwner returns the actor whom we know to own a key.
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

// actor returns an actor as our store has it, or anew once that is a day old.
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

// knows reports whether we ever dealt with an actor.
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
	requests := 1
	found, err := a.fetchKey(ctx, keyID, reading{further: func() bool {
		requests++
		return a.failures.wait(source, host, a.now()) == 0
	}})
	if fault.Is(err, fault.Unavailable) {
		keyLookups.WithLabelValues("failed").Inc()
		return nil, err // our own trouble says nothing about the key
	}
	if err != nil {
		keyLookups.WithLabelValues("failed").Inc()
		life := failureLife
		if errors.Is(err, errUnreachable) { // its owner may be right: in doubt the sender comes again
			life = unreachLife
			err = &fault.Fault{Kind: fault.Unavailable, Public: "the key could not be fetched: its server does not answer", RetryAfter: life, Cause: err}
		}

		a.failed.put(keyID, err, a.now().Add(life))
		for range requests {
			a.failures.add(source, host, a.now())
		}
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

// enter waits for one of the fetches that strangers may cause at once. They are fewer than the client's, so that slow servers
// behind invented senders can never hold up our deliveries.
func (a *actors) enter(ctx context.Context, host string) (leave func(), err error) {
	if leave, err = a.places.Enter(ctx, sourceOf(ctx), host); err != nil {
		return nil, tryLater(maxPlaceWait)
	}
	return leave, nil
}

// Settle stores a key's actor for all nodes once something has verified with the key: a sender that only claims a key leaves
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
	actor, err := a.fetcher.fetchActor(ctx, iri, reading{})
	if err != nil {
		return nil, err
	}
	a.rememberActor(ctx, actor)
	return actor, nil
}

// fetchKey reads the three forms in which servers publish keys: inside the actor, as a document of its own with an
// owner, and as a Multikey of the actor. Owner and key are always on one origin, and the owner lists the key: a key
// document alone could claim anyone as its owner.
func (a *actors) fetchKey(ctx context.Context, keyID string, how reading) (*remoteKey, error) {
	got, err := a.fetcher.fetch(ctx, keyID, how)
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

	actor, err := a.fetcher.fetchActor(ctx, owner, how)
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
