package discovery

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/identity"
)

var rotations = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_identity_key_rotations_total", Help: "Times that this node replaced the key that signs evidence.",
})

// State is the shared table of small private documents.
type State interface {
	Get(ctx context.Context, namespace, key string) (value []byte, found bool, err error)
	Put(ctx context.Context, namespace, key string, value []byte, expires time.Time) error
	PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) (current []byte, inserted bool, err error)
}

const (
	// KeyNamespace is that of the documents with the private keys of the keyring.
	KeyNamespace = "identity.keys"
	keyNamespace = KeyNamespace
	firstNumber  = "first" // the document with the number of the oldest key that may still be there

	// PreviousKeyLife is how long a key is published after it was replaced.
	PreviousKeyLife = 24 * time.Hour
	keyringLife     = time.Minute     // after that a node looks whether another one rotated
	publishedFirst  = 2 * time.Minute // a new key signs when every node publishes it
	retiredAfter    = 5 * time.Minute // a replaced key's private half is deleted when no node signs with it any more
	maxKeys         = 32              // published at once; more rotations in a day are refused
	forgottenLife   = 24 * time.Hour  // the document of a key that is not published any more ends then
)

// Keyring is the Ed25519 key with which this server vouches, shared by all nodes through the state table. Keys are
// numbered from 1 and never change, so that nodes that rotate at the same moment agree on one of them. It is safe for
// concurrent use.
type Keyring struct {
	state  State
	issuer string
	now    func() time.Time

	mu    sync.Mutex
	known []storedKey // oldest first, the last one signs
	until time.Time
}

// storedKey is the document of one key.
type storedKey struct {
	Number    int       `json:"number"`
	Seed      []byte    `json:"seed,omitempty"` // RFC 8032 private key; it is deleted when the key is replaced
	Public    []byte    `json:"public"`
	CreatedAt time.Time `json:"created_at"`
}

// NewKeyring makes a keyring for the issuer, a domain. Nothing is read or made before the first use; now may be nil.
func NewKeyring(state State, issuer string, now func() time.Time) *Keyring {
	if now == nil {
		now = time.Now
	}
	return &Keyring{state: state, issuer: issuer, now: now}
}

// Signing returns the key in use; the first call of all nodes makes it.
func (k *Keyring) Signing(ctx context.Context) (identity.SigningKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if err := k.load(ctx); err != nil {
		return identity.SigningKey{}, err
	}

	key := k.inUse()
	if len(key.Seed) != ed25519.SeedSize {
		return identity.SigningKey{}, fmt.Errorf("signing key %d has no private half", key.Number)
	}
	return identity.SigningKeyOf(k.issuer, ed25519.NewKeyFromSeed(key.Seed))
}

// SigningAll returns every key that is published and whole, the one in use first: documents are signed with all of them
// while a key is replaced.
func (k *Keyring) SigningAll(ctx context.Context) ([]identity.SigningKey, error) {
	first, err := k.Signing(ctx)
	if err != nil {
		return nil, err
	}

	k.mu.Lock()
	defer k.mu.Unlock()
	keys := []identity.SigningKey{first}
	for _, known := range k.known {
		if len(known.Seed) != ed25519.SeedSize {
			continue
		}

		key, err := identity.SigningKeyOf(k.issuer, ed25519.NewKeyFromSeed(known.Seed))
		if err != nil {
			return nil, err
		}

		if key.Kid != first.Kid {
			keys = append(keys, key)
		}
	}

	return keys, nil
}

// inUse returns the newest key, or the one before as long as a node may not publish the newest.
func (k *Keyring) inUse() storedKey {
	at := len(k.known) - 1
	for at > 0 && k.now().Before(k.known[at].CreatedAt.Add(publishedFirst)) && len(k.known[at-1].Seed) > 0 {
		at--
	}
	return k.known[at]
}

// Sign signs evidence with the key in use.
func (k *Keyring) Sign(ctx context.Context, evidence identity.Evidence) (identity.Evidence, error) {
	key, err := k.Signing(ctx)
	if err != nil {
		return identity.Evidence{}, err
	}
	return identity.Sign(evidence, key, k.now())
}

// Public returns what is published: the newest key, and those that were replaced less than PreviousKeyLife ago.
func (k *Keyring) Public(ctx context.Context) (active, previous []identity.PublicKey, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	if err := k.load(ctx); err != nil {
		return nil, nil, err
	}

	last := len(k.known) - 1
	for i, key := range k.known[:last] {
		if end := k.known[i+1].CreatedAt.Add(PreviousKeyLife); k.now().Before(end) {
			previous = append(previous, key.public(end))
		}
	}
	return []identity.PublicKey{k.known[last].public(time.Time{})}, previous, nil
}

func (s storedKey) public(end time.Time) identity.PublicKey {
	key := ed25519.PublicKey(s.Public)
	return identity.PublicKey{Kid: identity.KeyID(key), Key: key, NotAfter: end}
}

// Rotate makes a new key, which signs in two minutes, when all nodes publish it. The old one stays published for
// PreviousKeyLife. When another node rotates at the same moment, both calls mean the same rotation.
func (k *Keyring) Rotate(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.until = time.Time{}

	if err := k.load(ctx); err != nil {
		return err
	}
	if len(k.known) >= maxKeys {
		return errors.New("the key was replaced too often today: try again tomorrow")
	}
	if err := k.make(ctx, k.known[len(k.known)-1].Number+1); err != nil {
		return err
	}

	k.until = time.Time{}
	rotations.Inc()
	return nil
}

// retire deletes the private halves of keys that were replaced.
func (k *Keyring) retire(ctx context.Context) error {
	for i := range k.known[:len(k.known)-1] {
		old := &k.known[i]
		if len(old.Seed) == 0 || k.now().Before(k.known[i+1].CreatedAt.Add(retiredAfter)) {
			continue
		}
		old.Seed = nil
		if err := k.put(ctx, *old); err != nil {
			return fmt.Errorf("retire signing key %d: %w", old.Number, err)
		}
	}
	return nil
}

func (k *Keyring) put(ctx context.Context, key storedKey) error {
	value, err := json.Marshal(key)
	if err != nil {
		return err
	}
	return k.state.Put(ctx, keyNamespace, strconv.Itoa(key.Number), value, time.Time{})
}

// make stores a new key under a number that is free; when another node was faster, its key is the one.
func (k *Keyring) make(ctx context.Context, number int) error {
	fresh, err := identity.NewSigningKey(k.issuer)
	if err != nil {
		return err
	}

	value, err := json.Marshal(storedKey{
		Number: number, Seed: fresh.Private.Seed(), Public: fresh.Public().Key, CreatedAt: k.now().UTC(),
	})
	if err != nil {
		return err
	}
	if _, _, err := k.state.PutIfAbsent(ctx, keyNamespace, strconv.Itoa(number), value, time.Time{}); err != nil {
		return fmt.Errorf("store signing key: %w", err)
	}

	return nil
}
