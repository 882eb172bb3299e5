package peer

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"
)

// get fetches a path of the peer, signed by whom it is told.
func get(t *testing.T, f *Fediverse, path string, signer *Fediverse, agent string) (int, object) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("User-Agent", agent) // empty = none is sent
	if signer != nil {
		if err := signer.key.sign(request, nil); err != nil {
			t.Fatal(err)
		}
	}
	response, err := f.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := readBody(response)
	if err != nil {
		t.Fatal(err)
	}
	var document object
	_ = json.Unmarshal(body, &document)
	return response.StatusCode, document
}

func TestGoToSocialsHabits(t *testing.T) {
	t.Parallel()
	grace := startFediverse(t, FediverseOptions{User: "grace", GoToSocial: true})
	alice := startFediverse(t, FediverseOptions{})
	cases := map[string]struct {
		path   string
		signer *Fediverse
		agent  string
		status int
		inbox  bool
	}{
		"no user agent":           {"/users/grace", alice, "", http.StatusTeapot, false},
		"unsigned actor":          {"/users/grace", nil, "test/1", http.StatusUnauthorized, false},
		"signed actor":            {"/users/grace", alice, "test/1", http.StatusOK, true},
		"unsigned key is a stub":  {"/users/grace/main-key", nil, "test/1", http.StatusOK, false},
		"unsigned WebFinger":      {"/.well-known/webfinger?resource=acct:grace@" + grace.host, nil, "test/1", http.StatusOK, false},
		"unsigned, unknown paths": {"/users/nobody", nil, "test/1", http.StatusUnauthorized, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			status, document := get(t, grace, c.path, c.signer, c.agent)
			if status != c.status || (document["inbox"] != nil) != c.inbox {
				t.Errorf("status %d, document %v; want %d, inbox %v", status, document, c.status, c.inbox)
			}
		})
	}
	if proven, unproven := grace.Reads(); proven != 1 || unproven != 2 {
		t.Errorf("%d proven and %d unproven reads; want 1 and 2", proven, unproven)
	}
}

// TestPeerWithOneScheme: the other scheme is refused, and a tampered body too.
func TestPeerWithOneScheme(t *testing.T) {
	t.Parallel()
	bob := startFediverse(t, FediverseOptions{User: "bob"})
	modern := startFediverse(t, FediverseOptions{Scheme: SchemeRFC9421})
	target, err := bob.fetchActor(t.Context(), modern.actorID())
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(bob.note(target, modern.Address(), "hello", ""))
	if err != nil {
		t.Fatal(err)
	}
	if status := post(t, modern.base+"/inbox", bob, body, false, nil); status != http.StatusUnauthorized {
		t.Errorf("draft-cavage was answered %d", status)
	}
	for name, want := range map[string]int{"right": http.StatusAccepted, "tampered": http.StatusUnauthorized} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, modern.base+"/inbox", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", activityJSON)
		if err := bob.key.signMessage(request, body); err != nil {
			t.Fatal(err)
		}
		if name == "tampered" {
			changed := bytes.Replace(body, []byte("hello"), []byte("hullo"), 1)
			request.Body = io.NopCloser(bytes.NewReader(changed))
		}
		response, err := bob.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readBody(response); err != nil || response.StatusCode != want {
			t.Errorf("%s: %d (%v), want %d", name, response.StatusCode, err, want)
		}
	}
}

func TestPeerIsDownAndUpAgain(t *testing.T) {
	t.Parallel()
	bob := startFediverse(t, FediverseOptions{User: "bob", Reply: upper})
	alice := startFediverse(t, FediverseOptions{})
	if err := bob.Down(); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Ask(limited(t, time.Second), bob.BaseURL(), bob.Address(), "hello"); err == nil {
		t.Error("a server that is down answered")
	}
	if err := bob.Up(); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Ask(limited(t, 10*time.Second), bob.BaseURL(), bob.Address(), "hello"); err != nil {
		t.Error(err)
	}
}
