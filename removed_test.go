package inbox

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"inbox/engine/storage"
)

// TestRemovedAgentInWebFinger: an agent whose keys are here, and who is not, is gone.
func TestRemovedAgentInWebFinger(t *testing.T) {
	server := startServer(t)
	if err := server.store.State().Put(t.Context(), "activitypub.key", "rsa:former", []byte("{}"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"former": http.StatusGone, "nobody": http.StatusNotFound, "echo": http.StatusOK} {
		if response, body := fetch(t, server, "/.well-known/webfinger?resource=acct:"+name+"@localhost:8080", "*/*"); response.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", name, response.StatusCode, body, want)
		}
	}
}

// TestAgentsShowSinceWhenTheyAreHere: other servers judge an account by its age, so it is that of the first start and not the
// same for everybody.
func TestAgentsShowSinceWhenTheyAreHere(t *testing.T) {
	config, err := LoadConfig("", []string{
		"INBOX_DATA_DIR=" + t.TempDir(), "INBOX_HTTP_LISTEN=127.0.0.1:0", "INBOX_SMTP_LISTEN=127.0.0.1:0", "INBOX_LOG_LEVEL=error",
		"INBOX_PUBLIC_URL=http://localhost:8080", "INBOX_AGENTS_0_NAME=Echo", "INBOX_AGENTS_0_KIND=echo",
	})
	if err != nil {
		t.Fatal(err)
	}
	published := func(server *Server) time.Time {
		t.Helper()
		var actor struct{ Published time.Time }
		_, body := fetch(t, server, "/agents/Echo", "application/activity+json")
		if err := json.Unmarshal([]byte(body), &actor); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		return actor.Published
	}
	begin := time.Now().Truncate(time.Second)
	opened, err := storage.Open(t.Context(), storageOptions(config, slog.Default()), nil)
	if err != nil {
		t.Fatal(err)
	}
	earlier := time.Date(2025, 3, 4, 5, 6, 7, 0, time.UTC)
	t.Run("first start", func(t *testing.T) {
		if first := published(runServer(t, config)); first.Before(begin) || first.After(time.Now()) {
			t.Errorf("published %v at a first start after %v", first, begin)
		}
	})
	if err := opened.State().Put(t.Context(), sinceNamespace, "echo", []byte(earlier.Format(time.RFC3339)), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := opened.Close(); err != nil {
		t.Fatal(err)
	}
	t.Run("later start", func(t *testing.T) {
		if later := published(runServer(t, config)); !later.Equal(earlier) {
			t.Errorf("published %v; want %v", later, earlier)
		}
	})
}
