package activitypub

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"inbox/adapters/activitypub/signature"
	"inbox/internal/fault"
)

const (
	// KeyNamespace is that of the documents with the private keys of actors.
	KeyNamespace = "activitypub.key"
	keyNamespace = KeyNamespace
	rsaBits      = 2048 // what every peer accepts; a longer key costs them and us, and gains nothing here
)

// ownKey holds the key pairs of one of our actors: RSA for requests, because every peer verifies it, and Ed25519 for
// the proofs inside activities.
type ownKey struct {
	Private  *rsa.PrivateKey
	Public   string      // SPKI PEM
	Name     string      // fragment of the key's id; empty = main-key
	Previous []formerKey // keys before it that peers may still meet
	loaded   time.Time
	Proof    ed25519.PrivateKey
	Multikey string // the public half of Proof
}

// storedKey is the document of one private key that all nodes share.
type storedKey struct {
	PrivateKeyPEM string    `json:"private_key_pem"` // PKCS #8
	CreatedAt     time.Time `json:"created_at"`

	Name     string      `json:"name,omitempty"` // see ownKey
	Previous []formerKey `json:"previous,omitempty"`
}

// Kinds of stored keys; the rest of the row's key is the owner.
const (
	rsaPrefix     = "rsa:"
	ed25519Prefix = "ed25519:"
)

// keyring holds the keys of our actors. A key is made once: the first node that stores it wins and all use that one.
type keyring struct {
	*site
	mu      sync.RWMutex
	byOwner map[string]*ownKey
	once    singleflight.Group
}

func newKeyring(s *site) *keyring { return &keyring{site: s, byOwner: make(map[string]*ownKey)} }

// key returns the key of an owner: an agent's name, or empty for the server's own actor.
func (k *keyring) key(ctx context.Context, owner string) (*ownKey, error) {
	owner = strings.ToLower(owner)
	k.mu.RLock()
	known := k.byOwner[owner]
	k.mu.RUnlock()
	if known != nil && k.now().Sub(known.loaded) < keyLook {
		return known, nil
	}

	made, err, _ := k.once.Do(owner, func() (any, error) { return k.load(context.WithoutCancel(ctx), owner) })
	if err != nil && known != nil {
		return known, nil // the key from a minute ago still signs
	}
	if err != nil {
		return nil, fmt.Errorf("load signing key: %w", err)
	}
	return made.(*ownKey), nil
}

func (k *keyring) load(ctx context.Context, owner string) (*ownKey, error) {
	forRequests, err := k.stored(ctx, rsaPrefix+owner, func() (any, error) { return rsa.GenerateKey(rand.Reader, rsaBits) })
	if err != nil {
		return nil, err
	}

	forProofs, err := k.stored(ctx, ed25519Prefix+owner, func() (any, error) {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		return private, err
	})
	if err != nil {
		return nil, err
	}

	key, err := newOwnKey(forRequests.private, forProofs.private)
	if err != nil {
		return nil, err
	}

	key.Name, key.Previous, key.loaded = forRequests.Name, forRequests.Previous, k.now()
	k.mu.Lock()
	k.byOwner[owner] = key
	k.mu.Unlock()
	return key, nil
}

// stored reads a private key, which it makes where there is none.
func (k *keyring) stored(ctx context.Context, name string, generate func() (any, error)) (readKeyRow, error) {
	value, found, err := k.options.State.Get(ctx, keyNamespace, name)
	if err != nil {
		return readKeyRow{}, err
	}

	if !found {
		if value, err = k.make(ctx, name, generate); err != nil {
			return readKeyRow{}, err
		}
	}
	return readStoredKey(value)
}

func (k *keyring) make(ctx context.Context, name string, generate func() (any, error)) ([]byte, error) {
	private, err := generate()
	if err != nil {
		return nil, err
	}

	value, err := keyRow(storedKey{CreatedAt: k.now().UTC()}, private)
	if err != nil {
		return nil, err
	}

	current, inserted, err := k.options.State.PutIfAbsent(ctx, keyNamespace, name, value, time.Time{})
	if inserted {
		return value, err
	}
	return current, err
}

func keyRow(row storedKey, private any) (value []byte, err error) {
	if row.PrivateKeyPEM, err = signature.EncodePrivate(private); err != nil {
		return nil, err
	}
	return json.Marshal(row)
}

// readKeyRow is a stored key with its private half read.
type readKeyRow struct {
	storedKey
	private any
}

func readStoredKey(value []byte) (readKeyRow, error) {
	var stored storedKey
	if err := json.Unmarshal(value, &stored); err != nil {
		return readKeyRow{}, fmt.Errorf("decode stored key: %w", err)
	}

	private, err := signature.DecodePrivate(stored.PrivateKeyPEM)
	if err != nil {
		return readKeyRow{}, fmt.Errorf("decode stored key: %w", err)
	}
	return readKeyRow{stored, private}, nil
}

func newOwnKey(forRequests, forProofs any) (*ownKey, error) {
	private, isRSA := forRequests.(*rsa.PrivateKey)
	proof, isEd25519 := forProofs.(ed25519.PrivateKey)
	if !isRSA || !isEd25519 {
		return nil, errors.New("a stored key is of another kind than its name says")
	}

	public, err := signature.PublicPEM(&private.PublicKey)
	if err != nil {
		return nil, err
	}
	return &ownKey{Private: private, Public: public, Proof: proof, Multikey: signature.Multikey(proof.Public())}, nil
}

// Prepare makes or loads the keys of all agents and of the server's own actor, several at a time. Calling it in the
// background after start keeps the first request from waiting for a key; without it keys are made when first needed.
func (p *profiles) Prepare(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	owners := []string{""}
	for _, agent := range p.options.Directory.Agents() {
		owners = append(owners, agent.Name)
	}

	for _, owner := range owners {
		group.Go(func() error {
			_, err := p.keys.key(ctx, owner)
			return err
		})
	}
	return group.Wait()
}

const (
	mainKey     = "main-key"
	formerLife  = 7 * 24 * time.Hour // how long peers may still meet the old key
	keyLook     = time.Minute        // how long a node may not notice a rotation
	maxFormer   = 4
	keyTimeForm = "20060102T150405Z"
)

// formerKey is the public half of a key that signs no more.
type formerKey struct {
	Name  string    `json:"name"`
	Key   string    `json:"key"` // Multikey (multicodec rsa-pub: PKCS #1)
	Until time.Time `json:"until"`
}

// fragment is the end of the key's id.
func (k *ownKey) fragment() string {
	if k.Name == "" {
		return "#" + mainKey
	}
	return "#" + k.Name
}

// RotateKey makes a new key of an actor for requests and tells its followers and recent peers. An empty agent is the
// server's own actor, of which no one needs to be told: its key is fetched when it is met. The id of the actor stays; the
// key has a new id, so that no one takes the old one from a cache. Other nodes sign with the new key within a minute.
func (p *profiles) RotateKey(ctx context.Context, agent string) (keyID string, err error) {
	if agent != "" {
		profile, known := p.options.Directory.Agent(agent)
		if !known {
			return "", fault.Newf(fault.NotFound, "there is no agent %q", agent)
		}
		agent = profile.Name
	}

	if err := p.keys.rotate(ctx, agent); err != nil {
		return "", err
	}
	key, err := p.keys.key(ctx, agent)
	if err != nil {
		return "", err
	}
	if agent == "" {
		return p.instanceIRI() + key.fragment(), nil
	}
	return p.actorIRI(agent) + key.fragment(), p.announceActor(ctx, agent)
}

// rotate replaces the key for requests. The old private half is gone with it: only what verifies is kept.
func (k *keyring) rotate(ctx context.Context, owner string) error {
	owner = strings.ToLower(owner)
	if _, err := k.key(ctx, owner); err != nil {
		return err
	}

	value, _, err := k.options.State.Get(ctx, keyNamespace, rsaPrefix+owner)
	if err != nil {
		return err
	}

	old, err := readStoredKey(value)
	if err != nil {
		return err
	}

	was, isRSA := old.private.(*rsa.PrivateKey)
	if !isRSA {
		return fmt.Errorf("stored key of %q is not RSA", owner)
	}

	now := k.now().UTC()
	next := storedKey{CreatedAt: now, Name: "key-" + now.Format(keyTimeForm)}
	if next.Name == old.Name {
		next.Name += "-" + strconv.Itoa(now.Nanosecond())
	}

	name := old.Name
	if name == "" {
		name = mainKey
	}

	next.Previous = append(next.Previous, formerKey{
		Name: name, Until: now.Add(formerLife), Key: signature.Multikey(&was.PublicKey),
	})
	for _, former := range old.Previous {
		if now.Before(former.Until) && len(next.Previous) < maxFormer {
			next.Previous = append(next.Previous, former)
		}
	}

	private, err := rsa.GenerateKey(rand.Reader, rsaBits)
	if err != nil {
		return err
	}

	row, err := keyRow(next, private)
	if err != nil {
		return err
	}
	if err := k.options.State.Put(ctx, keyNamespace, rsaPrefix+owner, row, time.Time{}); err != nil {
		return err
	}

	k.mu.Lock()
	delete(k.byOwner, owner)
	k.mu.Unlock()
	return nil
}

// formerKeys are the keys that still verify, for the actor document. publicKey stays one object, because older peers
// take only that; a Multikey is understood by those who look a key up by its id.
func (k *ownKey) formerKeys(actor string, now time.Time) (keys []multikey) {
	for _, former := range k.Previous {
		if now.Before(former.Until) {
			keys = append(keys, multikey{ID: actor + "#" + former.Name, Type: "Multikey", Controller: actor, Key: former.Key})
		}
	}
	return keys
}

// prove puts a proof of an agent into an encoded activity.
func (k *keyring) prove(ctx context.Context, agent string, activity []byte, created time.Time) ([]byte, error) {
	key, err := k.key(ctx, agent)
	if err != nil {
		return nil, err
	}
	return signature.Prove(activity, key.Proof, k.proofKeyIRI(agent), created)
}
