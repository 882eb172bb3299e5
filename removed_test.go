package inbox

import (
	"net/http"
	"testing"
	"time"
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
