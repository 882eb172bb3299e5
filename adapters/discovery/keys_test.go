package discovery

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/exchange/exchangetest"
	"inbox/identity"
	"inbox/internal/await"
)

// secrets are the numbers of the keys whose private halves are kept.
func secrets(state *exchangetest.Documents) (numbers []string) {
	for number, value := range state.All(keyNamespace) {
		if strings.Contains(string(value), `"seed"`) {
			numbers = append(numbers, number)
		}
	}
	slices.Sort(numbers)
	return numbers
}

type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func kids(keys []identity.PublicKey) (list []string) {
	for _, key := range keys {
		list = append(list, key.Kid)
	}
	return list
}

func TestKeyringRotates(t *testing.T) {
	state, at := exchangetest.NewDocuments(), &clock{time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	ring, other := NewKeyring(state, "a.example", at.now), NewKeyring(state, "a.example", at.now)
	signing := func(k *Keyring) string {
		t.Helper()
		key, err := k.Signing(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return key.Kid
	}
	first := signing(ring)
	if signing(other) != first {
		t.Fatal("two nodes made two keys")
	}
	if err := ring.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	active, previous, err := ring.Public(t.Context())
	if err != nil || len(active) != 1 || active[0].Kid == first || len(previous) != 1 || previous[0].Kid != first {
		t.Fatalf("published %v %v %v", kids(active), kids(previous), err)
	}
	if end := previous[0].NotAfter; !end.Equal(at.at.Add(PreviousKeyLife)) {
		t.Errorf("the old key ends at %v", end)
	}
	if signing(ring) != first {
		t.Error("a key signs that another node does not publish yet")
	}
	at.at = at.at.Add(publishedFirst)
	if signing(ring) != active[0].Kid || signing(other) != active[0].Kid {
		t.Error("the new key does not sign")
	}
	at.at = at.at.Add(retiredAfter)
	signing(ring)
	if got := secrets(state); !slices.Equal(got, []string{"2"}) {
		t.Errorf("private halves are kept of %v", got)
	}
	at.at = at.at.Add(PreviousKeyLife)
	if _, previous, _ := ring.Public(t.Context()); len(previous) != 0 {
		t.Errorf("still published: %v", kids(previous))
	}
	if fresh := NewKeyring(state, "a.example", at.now); signing(fresh) != active[0].Kid {
		t.Error("a node that starts now signs with another key")
	}
	if err := other.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := secrets(state); !slices.Equal(got, []string{"2", "3"}) {
		t.Errorf("private halves of %v", got)
	}
}

// TestForgottenKeysEnd: the document of a key that is not published any more ends a day later, and a node whose pointer
// to the oldest one is behind goes on with what is there.
func TestForgottenKeysEnd(t *testing.T) {
	state, at := exchangetest.NewDocuments(), &clock{time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	ring := NewKeyring(state, "a.example", at.now)
	for range 2 {
		if err := ring.Rotate(t.Context()); err != nil {
			t.Fatal(err)
		}
		at.at = at.at.Add(PreviousKeyLife + time.Hour)
	}
	before, err := ring.Signing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for number, ends := range map[string]bool{"1": true, "2": true, "3": false} {
		if end := state.Ends(keyNamespace, number); ends == end.IsZero() {
			t.Errorf("key %s ends at %v", number, end)
		}
	}
	_ = state.Delete(t.Context(), keyNamespace, "1")
	_ = state.Delete(t.Context(), keyNamespace, "2")
	_ = state.Put(t.Context(), keyNamespace, firstNumber, []byte("1"), time.Time{})
	fresh := NewKeyring(state, "a.example", at.now)
	if after, err := fresh.Signing(t.Context()); err != nil || after.Kid != before.Kid {
		t.Errorf("signs with %q, %v; want %q", after.Kid, err, before.Kid)
	}
}

func TestNodesRotateAtTheSameMoment(t *testing.T) {
	state := exchangetest.NewDocuments()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			ring := NewKeyring(state, "a.example", nil)
			if _, err := ring.Signing(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	await.Done(t, group.Wait, "all nodes")
	if got := secrets(state); !slices.Equal(got, []string{"1"}) {
		t.Errorf("keys %v, want one", got)
	}
}

func TestKeyringSignsWhatItsCardProves(t *testing.T) {
	ring := NewKeyring(exchangetest.NewDocuments(), "a.example", nil)
	signed, err := ring.Sign(t.Context(), identity.Evidence{
		Subject: "acct:x@a.example", Method: "urn:mentionable:auth:test:v0.1", Assurance: "agent", Audience: identity.Audience{"@b@b.example"},
	})
	if err != nil {
		t.Fatal(err)
	}
	active, _, err := ring.Public(t.Context())
	if err != nil || signed.Issuer != "a.example" || signed.Proof.Kid != active[0].Kid {
		t.Errorf("signed %+v by %v (%v)", signed, kids(active), err)
	}
}

func TestKeyringTellsWhenTheStateIsDown(t *testing.T) {
	state := exchangetest.NewDocuments()
	down := errors.New("no database")
	state.Fail(down)
	ring := NewKeyring(state, "a.example", nil)
	if _, err := ring.Signing(t.Context()); !errors.Is(err, down) {
		t.Errorf("error %v", err)
	}
	state.Fail(nil)
	_ = state.Put(t.Context(), keyNamespace, "1", []byte("{}"), time.Time{})
	if _, err := ring.Signing(t.Context()); err == nil || strings.Contains(err.Error(), "{}") {
		t.Errorf("error %v", err)
	}
}

func TestRotationsAreLimited(t *testing.T) {
	ring := NewKeyring(exchangetest.NewDocuments(), "a.example", nil)
	for i := range maxKeys {
		if err := ring.Rotate(t.Context()); (err != nil) != (i == maxKeys-1) {
			t.Fatalf("rotation %d: %v", i, err)
		}
	}
}

// fixedKeys are keys whose documents are golden.
func fixedKeys(context.Context) (active, previous []identity.PublicKey, err error) {
	of := func(b byte, end time.Time) identity.PublicKey {
		public := ed25519.NewKeyFromSeed(slices.Repeat([]byte{b}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
		return identity.PublicKey{Kid: identity.KeyID(public), Key: public, NotAfter: end}
	}
	return []identity.PublicKey{of(1, time.Time{})}, []identity.PublicKey{of(2, time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))}, nil
}

func TestKeyDocuments(t *testing.T) {
	o := options()
	o.Keys, o.Callbacks = fixedKeys, []string{"https://web.inbox.example/a2a"}
	h := handler(t, o)
	for path, want := range map[string]struct{ file, mediaType string }{
		"/.well-known/jwks.json":    {"jwks.json", "application/jwk-set+json"},
		"/.well-known/did.json":     {"did.json", "application/did+json"},
		"/.well-known/adapter-card": {"adapter-card.json", "application/json"},
	} {
		w := get(t, h, path)
		header := w.Header()
		if w.Code != http.StatusOK || header.Get("Content-Type") != want.mediaType || header.Get("Access-Control-Allow-Origin") != "*" ||
			header.Get("Cache-Control") != "public, max-age=60" || header.Get("Etag") == "" {
			t.Errorf("%s: %d %v", path, w.Code, header)
		}
		compare(t, want.file, w.Body.Bytes())

		again := httptest.NewRequest(http.MethodGet, path, nil)
		again.Header.Set("If-None-Match", header.Get("Etag"))
		for request, status := range map[*http.Request]int{
			again: http.StatusNotModified, httptest.NewRequest(http.MethodHead, path, nil): http.StatusOK,
			httptest.NewRequest(http.MethodOptions, path, nil): http.StatusNoContent,
			httptest.NewRequest(http.MethodPost, path, nil):    http.StatusMethodNotAllowed,
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request)
			if w.Code != status || w.Body.Len() > 0 && status < 400 {
				t.Errorf("%s %s: %d %q", request.Method, path, w.Code, w.Body)
			}
		}
	}
}

func TestKeyDocumentsOfNobody(t *testing.T) {
	if w := get(t, handler(t, options()), "/.well-known/did.json"); w.Code != http.StatusNotFound {
		t.Errorf("without keys: %d", w.Code)
	}
	o := options()
	o.Keys = func(context.Context) ([]identity.PublicKey, []identity.PublicKey, error) {
		return nil, nil, errors.New("secret cause")
	}
	w := get(t, handler(t, o), "/.well-known/did.json")
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "secret") || w.Header().Get("Retry-After") == "" {
		t.Errorf("without a database: %d %s", w.Code, w.Body)
	}
}

func TestKeyDocumentsHoldNoPrivateHalf(t *testing.T) {
	o := options()
	state := exchangetest.NewDocuments()
	o.Keys = NewKeyring(state, "inbox.example", nil).Public
	h := handler(t, o)
	get(t, h, "/.well-known/jwks.json")
	for name, value := range maps.All(state.All(keyNamespace)) {
		var key storedKey
		if err := json.Unmarshal(value, &key); err != nil || len(key.Seed) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		private := base64.RawURLEncoding.EncodeToString(key.Seed)
		for _, path := range []string{"/.well-known/jwks.json", "/.well-known/did.json", "/.well-known/adapter-card"} {
			if strings.Contains(get(t, h, path).Body.String(), private) {
				t.Errorf("%s has the private half", path)
			}
		}
	}
}
