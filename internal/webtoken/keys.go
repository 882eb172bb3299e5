package webtoken

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"inbox/identity"
	"inbox/internal/admission"
	"inbox/internal/fault"
	"inbox/internal/uniquejson"
)

const (
	maxKeys     = 64 // of one issuer
	minRSABits  = 2048
	maxRSABits  = 8192
	maxPeers    = 1024
	keepKeys    = 10 * time.Minute
	keepFailure = 30 * time.Second
	fetchLimit  = 10 * time.Second
	maxFetches  = 64              // at once, of all sets of one kind; fewer of one client network
	maxPatience = 5 * time.Second // until one of them may begin

	// RefreshPause is the time in which a client network causes one look for a key that its issuer does not list, and at most
	// identity.MaxLooksOne looks for such keys.
	RefreshPause = time.Minute
)

// publicKey is a key that may check signatures.
type publicKey struct {
	raw any    // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
	alg string // the only one that the key is for; empty = every one that fits its kind
}

// fits reports whether the key may check signatures of an algorithm.
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

	if uniquejson.Object(written) != nil || json.Unmarshal(written, &purpose) != nil || len(purpose.Kid) > maxNameBytes {
		return "", key, errors.New("not a key")
	}
	if purpose.Use != "" && purpose.Use != "sig" || len(purpose.Ops) > 0 && !slices.Contains(purpose.Ops, "verify") || purpose.D != nil {
		return "", key, errors.New("not a public key for signatures")
	}

	parsed, err := parseKey(written)
	if err != nil {
		return "", key, errors.New("not a key that can be read")
	}

	key = publicKey{raw: parsed.Key, alg: purpose.Alg}
	switch known := parsed.Key.(type) {
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

// parseKey reads the members that are a public key (RFC 7518, sections 6.2.1 and 6.3.1, RFC 8037, section 2). Certificates beside them are
// not looked at: a key is believed by where it was found.
func parseKey(written []byte) (*jose.JSONWebKey, error) {
	var public struct {
		Kty string `json:"kty"`
		Crv string `json:"crv,omitempty"`
		X   string `json:"x,omitempty"`
		Y   string `json:"y,omitempty"`
		N   string `json:"n,omitempty"`
		E   string `json:"e,omitempty"`
	}
	if err := json.Unmarshal(written, &public); err != nil {
		return nil, err
	}
	alone, err := json.Marshal(public)
	if err != nil {
		return nil, err
	}

	key := new(jose.JSONWebKey)
	if err := key.UnmarshalJSON(alone); err != nil {
		return nil, err
	}
	if !key.Valid() {
		return nil, errors.New("not a valid key")
	}
	return key, nil
}

// keySets holds the keys of issuers. At most one fetch an issuer is on its way at a time, and it does not end with the
// caller who began it: others wait for it, too.
type keySets struct {
	now   func() time.Time
	fetch func(ctx context.Context, issuer string) (map[string]publicKey, error)
	most  int
	slots *admission.Semaphore

	mu   sync.Mutex
	sets map[string]*keySet
}

// keySet is guarded by keySets.mu.
type keySet struct {
	keys    map[string]publicKey // with err: the last outcome
	err     error
	expires time.Time
	looks   identity.Looks // of client networks
	flight  *flight
}

type flight struct {
	done chan struct{}
	keys map[string]publicKey
	err  error
}

func newKeySets(now func() time.Time, fetch func(context.Context, string) (map[string]publicKey, error), most int) *keySets {
	return &keySets{now: now, fetch: fetch, most: most, sets: map[string]*keySet{}, slots: admission.NewSemaphore(admission.SemaphoreOptions{
		Total: maxFetches, PerSource: maxFetches / 16, PerHost: maxFetches / 16, PerPair: 1, Patience: maxPatience, Waiting: 16 * maxFetches,
	})}
}

// find returns a key by its kid; one that is not listed causes one look in RefreshPause for the client network that asks, within
// the looks that the network has. What other networks do is never held against it: where they took all slots or looks, the error is
// Unavailable.
func (s *keySets) find(ctx context.Context, source admission.Source, issuer, kid string) (publicKey, bool, error) {
	key, found, flight, err := s.look(source, issuer, kid)
	if flight == nil {
		return key, found, err
	}

	if flight == missing {
		leave, err := s.slots.Enter(ctx, source, issuer)
		if err != nil {
			return publicKey{}, false, comeAgain(err, maxPatience)
		}
		if flight = s.fly(ctx, source, issuer, kid, leave); flight == nil {
			return s.find(ctx, source, issuer, kid) // it came while we waited
		}
	}

	select {
	case <-flight.done:
	case <-ctx.Done():
		return publicKey{}, false, ctx.Err()
	}

	key, found = flight.keys[kid]
	return key, found, flight.err
}

// missing stands for a fetch that has to begin.
var missing = new(flight)

// look answers from memory; otherwise it returns the fetch to wait for.
func (s *keySets) look(source admission.Source, issuer, kid string) (publicKey, bool, *flight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set, now := s.entry(issuer), s.now()
	if now.Before(set.expires) {
		key, found := set.keys[kid]
		if found || set.err != nil {
			return key, found, nil, set.err
		}
		if set.flight == nil {
			switch may, full := set.looks.May(source.String(), kid, now, RefreshPause); {
			case full:
				return publicKey{}, false, nil, comeAgain(admission.ErrFull, RefreshPause)
			case !may:
				return publicKey{}, false, nil, nil
			}
		}
	}

	if set.flight != nil {
		return publicKey{}, false, set.flight, nil
	}

	return publicKey{}, false, missing, nil
}

// comeAgain answers a caller who may be right, and whose key cannot be had just now.
func comeAgain(cause error, after time.Duration) error {
	return &fault.Fault{Kind: fault.Unavailable, Public: "the token cannot be checked right now", RetryAfter: after, Cause: fmt.Errorf("%w: %w", ErrLater, cause)}
}

// entry returns the room of an issuer; the one whose keys end first makes way. The lock is held.
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

// fly joins the fetch on its way or starts one in the caller's place; nil = the keys came meanwhile.
func (s *keySets) fly(ctx context.Context, source admission.Source, issuer, kid string, leave func()) *flight {
	s.mu.Lock()
	defer s.mu.Unlock()
	set, now := s.entry(issuer), s.now()
	if set.flight != nil {
		leave()
		return set.flight
	}

	if now.Before(set.expires) {
		if may, _ := set.looks.May(source.String(), kid, now, RefreshPause); !may || set.err != nil {
			leave()
			return nil
		}
		set.looks.Note(source.String(), kid, now)
	}

	f := &flight{done: make(chan struct{})}
	set.flight = f
	go s.run(context.WithoutCancel(ctx), issuer, set, f, leave)
	return f
}

func (s *keySets) run(ctx context.Context, issuer string, set *keySet, f *flight, leave func()) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	f.keys, f.err = s.fetch(ctx, issuer)
	leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	set.flight = nil
	now := s.now()
	switch {
	case f.err == nil:
		set.keys, set.err, set.expires = f.keys, nil, now.Add(keepKeys)
	case set.keys == nil || !now.Before(set.expires):
		if doubtful(f.err) {
			f.err = comeAgain(f.err, keepFailure)
		}
		set.keys, set.err, set.expires = nil, f.err, now.Add(keepFailure)
	default: // a look that failed does not take away what is known
		f.keys, f.err = set.keys, nil
	}

	close(f.done)
}

// doubtful reports whether the keys may be there although they could not be had: their server did not answer, or not now.
func doubtful(err error) bool {
	slow, is := errors.AsType[net.Error](err)
	return is && slow.Timeout() || errors.Is(err, context.DeadlineExceeded) || fault.Is(err, fault.Unavailable)
}
