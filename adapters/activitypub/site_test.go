package activitypub

import (
	"net/http"
	"testing"
	"time"
)

// TestRemovedAgent: other servers learn that an agent whose keys are here is gone, and of all others that they never were.
func TestRemovedAgent(t *testing.T) {
	r := newRig(t)
	_ = r.state.Put(t.Context(), keyNamespace, rsaPrefix+"former", ownTestKey(), time.Time{})
	for path, want := range map[string]int{
		"/agents/former": 410, "/agents/FORMER": 410, "/agents/former/followers": 410, "/agents/former/outbox": 410,
		"/agents/nobody": 404, "/agents/nobody/outbox": 404, "/agents/echo": 200,
	} {
		if status, _, body := r.fetch(path, activityMediaType); status != want {
			t.Errorf("%s: %d %s, want %d", path, status, body, want)
		}
	}
	for name, want := range map[string]int{"former": http.StatusGone, "nobody": http.StatusNotFound} {
		d := r.hello()
		d.path = "/agents/" + name + "/inbox"
		r.refused(t, d.sign(), want, 0)
	}
	for name, want := range map[string]bool{"former": true, "Former": true, "nobody": false, "echo": false, "": false, "a b": false} {
		if got := r.adapter.Removed(t.Context(), name); got != want {
			t.Errorf("Removed(%q) = %v", name, got)
		}
	}
}
