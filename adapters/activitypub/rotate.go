package activitypub

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"strconv"
	"strings"
	"time"

	"inbox/adapters/activitypub/signature"
	"inbox/internal/fault"
)

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

// RotateKey gives an actor a new key for requests and tells its followers and recent peers. An empty agent is the
// server's own actor, of which nobody needs to be told: its key is fetched when it is met. The id of the actor stays; the
// key has a new id, so that nobody takes the old one from a cache. Other nodes sign with the new key within a minute.
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
// take only that; a Multikey is understood by whoever looks a key up by its id.
func (k *ownKey) formerKeys(actor string, now time.Time) (keys []multikey) {
	for _, former := range k.Previous {
		if now.Before(former.Until) {
			keys = append(keys, multikey{ID: actor + "#" + former.Name, Type: "Multikey", Controller: actor, Key: former.Key})
		}
	}
	return keys
}
