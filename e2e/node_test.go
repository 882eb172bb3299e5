package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestCommandsAskTheRunningServer: what needs the adapters works beside a running server, on both databases, and without one.
func TestCommandsAskTheRunningServer(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, steady)
		var elsewhere *httptest.Server
		elsewhere = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/activity+json")
			iri := elsewhere.URL + "/actor"
			_, _ = w.Write([]byte(`{"@context":"https://www.w3.org/ns/activitystreams","type":"Person","id":"` + iri + `","inbox":"` + iri +
				`/inbox","preferredUsername":"new","alsoKnownAs":["` + p.Actor("echo") + `"]}`))
		}))
		defer elsewhere.Close()

		first := p.inbox("keys", "rotate", "--actor", "echo")
		if said := p.inbox("move", "echo", elsewhere.URL+"/actor"); !strings.Contains(said, "echo moves to "+elsewhere.URL+"/actor") {
			t.Errorf("move says %s", said)
		}
		if said := p.inbox("move", "--undo", "echo"); !strings.Contains(said, "is here again") {
			t.Errorf("move --undo says %s", said)
		}
		if _, err := p.Run(t.Context(), "move", "--undo", "echo"); err == nil || !strings.Contains(err.Error(), "echo has not moved") {
			t.Errorf("what the server refuses is told as %v", err)
		}

		p.stop()
		if second := p.inbox("keys", "rotate", "--actor", "echo"); second == first || !strings.Contains(second, "signs from now on") {
			t.Errorf("without a server rotate says %s, before %s", second, first)
		}
	})
}
