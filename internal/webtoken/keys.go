package webtoken

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lestrrat-go/jwx/v3/jwk"
)

const (
	maxKeys     = 64 // of one issuer
	minRSABits  = 2048
	maxRSABits  = 8192
	maxPeers    = 1024
	keepKeys    = 10 * time.Minute
	keepFailure = 30 * time.Second
	fetchLimit  = 10 * time.Second
	maxFetches  = 16 // at once, of all sets of one kind

	// RefreshPause is the time in which a key that an issuer does not list causes one look at its keys at most.
	RefreshPause = time.Minute
)

// publicKey is a key that may check signatures.
type publicKey struct {
	raw any    // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
	alg string // the only one that the key is for; empty = every one that fits its kind
}

// fits says whether the key may check signatures of an algorithm.
func (k publicKey) fits(alg string) bool {
	if k.alg != "" && k.alg != alg {
		return false
	}
	switch raw := k.raw.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(alg, "RS") || strings.HasPrefix(alg, "PS")
	case *ecdsa.PublicKey:
		curve := map[string]string{"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}[alg]
		return curve != "" && raw.Curve.Params().Name == curve
	case ed25519.PublicKey:
		return alg == "EdDSA"
	}
	return false
}

// readKeys reads a JWK Set (RFC 7517). Keys that cannot check signatures are left out: secrets, keys for encryption, kinds
// that are not known, RSA below 2048 bit. Two keys with one kid make that kid ambiguous, and neither is used.
func readKeys(body []byte) (map[string]publicKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil || set.Keys == nil {
		return nil, errors.New("not a JWK Set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("over %d keys", maxKeys)
	}
	keys, twice := map[string]publicKey{}, map[string]bool{}
	for _, written := range set.Keys {
		kid, key, err := readKey(written)
		if err != nil || kid == "" {
			continue
		}
		if _, has := keys[kid]; has {
			twice[kid] = true
		}
		keys[kid] = key
	}
	for kid := range twice {
		delete(keys, kid)
	}
	return keys, nil
}

// readKey reads one public key for signatures.
func readKey(written []byte) (kid string, key publicKey, err error) {
	var purpose struct {
		Kid string   `json:"kid"`
		Use string   `json:"use"`
		Alg string   `json:"alg"`
		Ops []string `json:"key_ops"`
		D   any      `json:"d"`
	}
	if err := json.Unmarshal(written, &purpose); err != nil || len(purpose.Kid) > maxNameBytes {
		return "", key, errors.New("not a key")
	}
	if purpose.Use != "" && purpose.Use != "sig" || len(purpose.Ops) > 0 && !slices.Contains(purpose.Ops, "verify") || purpose.D != nil {
		return "", key, errors.New("not a public key for signatures")
	}
	parsed, err := jwk.ParseKey(written)
	if err != nil {
		return "", key, errors.New("not a key that can be read")
	}
	var raw any
	if err := jwk.Export(parsed, &raw); err != nil {
		return "", key, errors.New("not a key that can be read")
	}
	key = publicKey{raw: raw, alg: purpose.Alg}
	switch known := raw.(type) {
	case *rsa.PublicKey:
		if bits := known.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return "", key, fmt.Errorf("an RSA key of %d bit", bits)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return "", key, errors.New("not a public key for signatures")
	}
	return purpose.Kid, key, nil
}

// keySets holds the keys of issuers. At most one fetch an issuer is on its way at a time, and it does not end with the
// caller who began it: others wait for it, too.
type keySets struct {
	now   func() time.Time
	fetch func(ctx context.Context, issuer string) (map[string]publicKey, error)
	most  int
	slots chan struct{}

	mu   sync.Mutex
	sets map[string]*keySet
}

// keySet is guarded by keySets.mu.
type keySet struct {
	keys      map[string]publicKey // with err: the last outcome
	err       error
	expires   time.Time
	refreshed time.Time // last look for a key that was not there
	flight    *flight
}

type flight struct {
	done chan struct{}
	keys map[string]publicKey
	err  error
}

func newKeySets(now func() time.Time, fetch func(context.Context, string) (map[string]publicKey, error), most int) *keySets {
	return &keySets{now: now, fetch: fetch, most: most, slots: make(chan struct{}, maxFetches), sets: map[string]*keySet{}}
}

var errBusy = errors.New("too many keys are being fetched")

// find gives a key by its kid; one that is not listed causes one look in RefreshPause.
func (s *keySets) find(ctx context.Context, issuer, kid string) (publicKey, bool, error) {
	s.mu.Lock()
	set, now := s.entry(issuer), s.now()
	if now.Before(set.expires) {
		key, found := set.keys[kid]
		if found || set.err != nil || set.flight == nil && now.Before(set.refreshed.Add(RefreshPause)) {
			defer s.mu.Unlock()
			return key, found, set.err
		}
		if set.flight == nil {
			set.refreshed = now
		}
	}
	flight := s.fly(ctx, issuer, set)
	s.mu.Unlock()
	select {
	case <-flight.done:
	case <-ctx.Done():
		return publicKey{}, false, ctx.Err()
	}
	key, found := flight.keys[kid]
	return key, found, flight.err
}

// entry gives the room of an issuer; the one whose keys end first makes way. The lock is held.
func (s *keySets) entry(issuer string) *keySet {
	set, found := s.sets[issuer]
	if found {
		return set
	}
	if len(s.sets) >= s.most {
		first := ""
		for other, kept := range s.sets {
			if kept.flight == nil && (first == "" || kept.expires.Before(s.sets[first].expires)) {
				first = other
			}
		}
		delete(s.sets, first)
	}
	set = &keySet{}
	s.sets[issuer] = set
	return set
}

// fly joins the fetch on its way or starts one. The lock is held.
func (s *keySets) fly(ctx context.Context, issuer string, set *keySet) *flight {
	if set.flight != nil {
		return set.flight
	}
	f := &flight{done: make(chan struct{})}
	select {
	case s.slots <- struct{}{}:
	default:
		f.err = errBusy
		close(f.done)
		return f
	}
	set.flight = f
	go s.run(context.WithoutCancel(ctx), issuer, set, f)
	return f
}

func (s *keySets) run(ctx context.Context, issuer string, set *keySet, f *flight) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	f.keys, f.err = s.fetch(ctx, issuer)
	<-s.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	set.flight = nil
	now := s.now()
	switch {
	case f.err == nil:
		set.keys, set.err, set.expires = f.keys, nil, now.Add(keepKeys)
	case set.keys == nil || !now.Before(set.expires):
		set.keys, set.err, set.expires = nil, f.err, now.Add(keepFailure)
	default: // a look that failed does not take away what is known
		f.keys, f.err = set.keys, nil
	}
	close(f.done)
}
