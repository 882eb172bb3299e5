package identity

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

const (
	connector = "connector.test"
	slackUser = "slack:T123/U456"
	agentHere = "@echo@here.test"
	cardHere  = "https://here.test/agents/echo/card"
	slackWay  = "urn:mentionable:auth:slack-workspace-member:v0.1"
)

// shelf publishes documents by address and counts how often each was fetched.
type shelf struct {
	mu        sync.Mutex
	documents map[string][]byte
	fetched   map[string]int
	before    func(ctx context.Context, url string) error // nil = nothing
}

func (s *shelf) Fetch(ctx context.Context, url string) ([]byte, error) {
	s.mu.Lock()
	s.fetched[url]++
	before := s.before
	body, found := s.documents[url]
	s.mu.Unlock()
	if before != nil {
		if err := before(ctx, url); err != nil {
			return nil, err
		}
	}
	if !found {
		return nil, errors.New("status 404")
	}
	return body, nil
}

func (s *shelf) publish(url string, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.documents[url] = body
}

func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0
	for _, n := range s.fetched {
		total += n
	}
	return total
}

// usedUp remembers keys in memory.
type usedUp struct {
	mu   sync.Mutex
	seen map[string]time.Time
	err  error
	hook func()
}

func (u *usedUp) Once(_ context.Context, key string, expires time.Time) (bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.hook != nil {
		u.hook()
	}
	if u.err != nil {
		return false, u.err
	}
	_, before := u.seen[key]
	u.seen[key] = expires
	return !before, nil
}

// bench is a validator with a trusted connector that has published its key in both ways.
type bench struct {
	shelf     *shelf
	used      *usedUp
	host, did SigningKey
	validator *Validator
}

const (
	cardURL = "https://connector.test/.well-known/adapter-card"
	didURL  = "https://connector.test/.well-known/did.json"
)

func trusted(issuer string) TrustedIssuer {
	return TrustedIssuer{
		Issuer: issuer, Methods: []string{slackWay}, Assurance: []string{AssurancePlatform}, SubjectPrefixes: []string{"slack:T123/"},
	}
}

func newBench(t testing.TB, change func(*ValidatorOptions)) *bench {
	t.Helper()
	b := &bench{
		shelf: &shelf{documents: map[string][]byte{}, fetched: map[string]int{}}, used: &usedUp{seen: map[string]time.Time{}},
		host: mustKey(t, connector), did: mustKey(t, "did:web:"+connector),
	}
	b.publish()
	options := ValidatorOptions{
		Trust: []TrustedIssuer{trusted(connector), trusted("did:web:" + connector)}, Documents: b.shelf, Replays: b.used, OwnIssuer: "here.test",
	}
	if change != nil {
		change(&options)
	}
	validator, err := NewValidator(options)
	if err != nil {
		t.Fatal(err)
	}
	b.validator = validator
	return b
}

func (b *bench) publish() {
	b.shelf.publish(cardURL, ConnectorCard(connector, nil, []PublicKey{b.host.Public()}, nil))
	b.shelf.publish(didURL, DIDDocument(connector, []PublicKey{b.did.Public()}))
}

func mustKey(t testing.TB, issuer string) SigningKey {
	t.Helper()
	key, err := NewSigningKey(issuer)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func unsigned() Evidence {
	return Evidence{
		Subject: slackUser, Method: slackWay, Assurance: AssurancePlatform, Audience: Audience{agentHere},
		Claims: json.RawMessage(`{"team":"<T&123>","n":1.50}`), Source: &Source{Transport: "slack", Channel: "C1"},
		Extra: map[string]json.RawMessage{"x_new": json.RawMessage(`[1,"\u2028"]`)},
	}
}

func signed(t testing.TB, e Evidence, key SigningKey, now time.Time) json.RawMessage {
	t.Helper()
	e, err := Sign(e, key, now)
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, e)
}

func encode(t testing.TB, value any) json.RawMessage {
	t.Helper()
	body, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// validate offers pieces of evidence to the echo agent.
func (b *bench) validate(t testing.TB, pieces ...json.RawMessage) Validation {
	t.Helper()
	return b.validator.Validate(t.Context(), Offered{Evidence: pieces}, Recipient{Address: agentHere, CardURL: cardHere})
}

func codes(validation Validation) []string {
	var list []string
	for _, rejected := range validation.Rejected {
		list = append(list, rejected.Code)
	}
	return list
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSignedIsBelieved(t *testing.T) {
	b := newBench(t, nil)
	for _, key := range []SigningKey{b.host, b.did} {
		belief := b.validate(t, signed(t, unsigned(), key, time.Now()))
		if len(belief.Rejected) != 0 || len(belief.Evidence) != 1 {
			t.Fatalf("%s: %+v", key, belief.Rejected)
		}
		got := belief.Evidence[0]
		if got.Issuer != key.Issuer || got.Subject != slackUser || got.Method != slackWay || string(got.Extra["x_new"]) != "[1,\"\u2028\"]" {
			t.Error(cmp.Diff(unsigned(), got))
		}
	}
	if b.shelf.count() != 2 {
		t.Errorf("%d fetches", b.shelf.count())
	}
}
