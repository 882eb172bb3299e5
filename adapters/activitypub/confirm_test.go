package activitypub

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/internal/await"
	"inbox/normalized"
)

// TestForwarded: mallory of another server brings what alice is said to have done.
func TestForwarded(t *testing.T) {
	tombstone := func(id string) map[string]any { return map[string]any{"id": id, "type": "Tombstone"} }
	cases := []struct {
		name    string
		kind    string
		origin  func(r *rig, note map[string]any) // what alice's server shows
		status  int
		message string
	}{
		{"note that its server shows otherwise", "Create", func(r *rig, note map[string]any) {
			note["content"] = "what alice really wrote"
			r.remote.serve("/notes/1", note)
		}, 202, "what alice really wrote"},
		{"note that its server does not know", "Create", nil, 401, ""},
		{"note of another author", "Create", func(r *rig, note map[string]any) {
			note["attributedTo"] = r.remote.actor("bob")
			r.remote.serve("/notes/1", note)
		}, 401, ""},
		{"note under another id", "Create", func(r *rig, note map[string]any) {
			note["id"] = r.remote.base + "/notes/2"
			r.remote.serve("/notes/1", note)
		}, 401, ""},
		{"note served as a file", "Create", func(r *rig, note map[string]any) {
			r.remote.handle("/notes/1", func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				body, _ := document.Encode(note)
				_, _ = w.Write(body)
			})
		}, 401, ""},
		{"note that asks for a signature", "Create", func(r *rig, note map[string]any) {
			body, _ := document.Encode(note)
			r.remote.handle("/notes/1", func(w http.ResponseWriter, q *http.Request) {
				if q.Header.Get("Signature") == "" {
					w.WriteHeader(http.StatusNotFound) // Mastodon hides what is not public
					return
				}
				w.Header().Set("Content-Type", activityMediaType)
				_, _ = w.Write(body)
			})
		}, 202, "hello"},
		{"deletion of a note that is gone", "Delete", func(r *rig, _ map[string]any) {
			r.remote.handle("/notes/1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
		}, 202, ""},
		{"deletion of a note with a tombstone", "Delete", func(r *rig, note map[string]any) {
			r.remote.serve("/notes/1", tombstone(note["id"].(string)))
		}, 202, ""},
		{"deletion of a note that is there", "Delete", func(r *rig, note map[string]any) { r.remote.serve("/notes/1", note) }, 401, ""},
		{"deletion while the server fails", "Delete", func(r *rig, _ map[string]any) {
			r.remote.handle("/notes/1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
		}, 401, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			relay := newRemoteServer(t)
			activity := r.mentionNote("1", "hello")
			activity["type"] = c.kind
			if c.origin != nil {
				c.origin(r, activity["object"].(map[string]any))
			}
			pushed := r.mentionNote("1", "what mallory would like to read")
			pushed["type"] = c.kind
			r.want(r.byMallory(relay, pushed), c.status, "")
			taken := r.engine.All()
			if c.message == "" {
				if len(taken) != 0 {
					t.Errorf("%d messages", len(taken))
				}
				return
			}
			if len(taken) != 1 || taken[0].Message.Parts[0].Content != c.message {
				t.Fatalf("messages %+v", taken)
			}
			sender := taken[0].Message.Sender
			claims := string(sender.Identities[0].Claims)
			if sender.AuthMethod != normalized.AuthActivityPubSignature || sender.Identities[0].Subject != r.remote.actor("alice") ||
				!strings.Contains(claims, schemeOrigin) || !strings.Contains(claims, relay.actor("mallory")) {
				t.Errorf("sender %+v, claims %s", sender, claims)
			}
			if strings.Contains(string(taken[0].Original), "mallory") {
				t.Error("the pushed body was kept")
			}
		})
	}
}

// TestForwardedDeletionsOfWhatIsHidden: a 404 proves that a note is gone only where it was public. Otherwise any sender
// could erase what was said in private, or keep a note from being answered that is not written yet.
func TestForwardedDeletionsOfWhatIsHidden(t *testing.T) {
	for name, c := range map[string]struct {
		held, private bool
		origin        int
		status        int
	}{
		"open note, 404": {true, false, http.StatusNotFound, 202}, "open note, 410": {true, false, http.StatusGone, 202},
		"private note, 404": {true, true, http.StatusNotFound, 401}, "private note, 410": {true, true, http.StatusGone, 202},
		"unwritten note, 404": {false, false, http.StatusNotFound, 401}, "unknown note, 410": {false, false, http.StatusGone, 202},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if c.held {
				r.question("1", "hello", func(note map[string]any) {
					if c.private {
						direct(r, note)
					}
				})
			}
			r.remote.handle("/notes/1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.origin) })
			deletion := r.tombstone("1")
			r.want(r.byMallory(newRemoteServer(t), deletion), c.status, "")
			if erased := len(r.engine.removed) > 0; erased != (c.held && c.status == http.StatusAccepted) {
				t.Errorf("erased: %q", r.engine.removed)
			}
			if c.held || c.status == http.StatusAccepted {
				return
			}
			if r.question("1", "hello").Message.Parts[0].Content != "hello" {
				t.Error("the note that came later is not answered")
			}
		})
	}
}

// TestForwardedWhileTheStoreIsDown: our own trouble is no refusal; the relay hears that it shall come again.
func TestForwardedWhileTheStoreIsDown(t *testing.T) {
	r := newRig(t)
	r.question("1", "hello")
	state := func(err error) {
		r.state.Fail(err)
	}
	down := errors.New("the disk is gone")
	r.remote.handle("/notes/1", func(w http.ResponseWriter, _ *http.Request) {
		state(down)
		w.WriteHeader(http.StatusNotFound)
	})
	relay, deletion := newRemoteServer(t), r.tombstone("1")
	r.want(r.byMallory(relay, deletion), http.StatusServiceUnavailable, "")
	if len(r.engine.removed) > 0 {
		t.Errorf("erased: %q", r.engine.removed)
	}
	state(nil)
	down = nil
	r.want(r.byMallory(relay, deletion), http.StatusAccepted, "")
	if len(r.engine.removed) != 1 {
		t.Errorf("erased: %q", r.engine.removed)
	}
}

// TestForwardedOtherKinds: no server can confirm them, so none is asked.
func TestForwardedOtherKinds(t *testing.T) {
	for _, kind := range []string{"Follow", "Undo", "Like", "Block", "Flag", "Accept", "Move", "Announce"} {
		r := newRig(t)
		relay := newRemoteServer(t)
		r.want(r.byMallory(relay, r.simple(kind, r.base+"/agents/echo")), http.StatusUnauthorized, "not on the actor's server")
		if n, m := r.remote.connections.Load(), relay.connections.Load(); n+m != 0 || len(r.engine.jobs) != 0 {
			t.Errorf("%s: %d connections to the actor's server, %d to the relay, %d jobs", kind, n, m, len(r.engine.jobs))
		}
	}
}

func TestForwardingIsBounded(t *testing.T) {
	r := newRig(t)
	relay := newRemoteServer(t)
	for i := range maxConfirmations / 3 { // each is asked for unsigned and in both schemes
		r.want(r.byMallory(relay, r.mentionNote(fmt.Sprint(i), "hello")), http.StatusUnauthorized, "")
	}
	before := r.remote.requests.Load()
	status, text, header := r.send(r.byMallory(relay, r.mentionNote("x", "hello")))
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || r.remote.requests.Load() != before {
		t.Errorf("status %d %q, Retry-After %q", status, text, header.Get("Retry-After"))
	}
	r.want(r.deliver(r.mentionNote("direct", "hello")).sign(), http.StatusAccepted, "") // alice herself is not put off
	r.clock.Store(int64(confirmationPeriod + time.Second))
	r.remote.serve("/notes/y", r.mentionNote("y", "hello")["object"])
	r.want(r.byMallory(relay, r.mentionNote("y", "hello")), http.StatusAccepted, "")
}

// TestGoneActor: an actor that we know and whose server says that it is gone is marked, and no other actor gets a row.
func TestGoneActor(t *testing.T) {
	r := newRig(t)
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	r.remote.handle("/users/bob", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	forged := r.deliver(r.mentionNote("2", "hello"))
	forged.key = malloryKey()
	r.want(forged.sign(), http.StatusUnauthorized, "does not verify")
	actor, known := r.adapter.actors.storedActor(t.Context(), r.remote.actor("alice"))
	if !known || actor.GoneAt.IsZero() || len(actor.Keys) != 0 {
		t.Errorf("known %v: %+v", known, actor)
	}
	r.want(r.deliver(r.mentionNote("3", "hello")).sign(), http.StatusUnauthorized, "does not exist any more")
	stranger := r.deliver(strings.ReplaceAll(string(r.deliver(r.mentionNote("4", "hello")).body), "/users/alice", "/users/bob"))
	stranger.keyID = r.remote.actor("bob") + "#main-key"
	r.want(stranger.sign(), http.StatusUnauthorized, "does not exist any more")
	if r.state.Has(actorNamespace, r.remote.actor("bob")) {
		t.Error("a stranger left a row")
	}
}

// TestNewKeyUnderLoad: requests that come at once with a new key share one fetch and all pass.
func TestNewKeyUnderLoad(t *testing.T) {
	r := newRig(t)
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	r.remote.addActor("alice", malloryKey(), nil)
	results := make(chan int, 20)
	for i := range 20 {
		d := r.deliver(r.mentionNote(fmt.Sprint("n", i), "hello"))
		d.key = malloryKey()
		d.sign()
		go func() {
			status, _, _ := r.send(d)
			results <- status
		}()
	}
	for range 20 {
		if status := await.Receive(t, results, "the answers to all deliveries"); status != http.StatusAccepted {
			t.Errorf("status %d", status)
		}
	}
	if n := r.remote.count("/users/alice"); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
}

// TestForgersLeaveNoRow: a key that is fetched for a signature that turns out wrong is kept in memory alone.
func TestForgersLeaveNoRow(t *testing.T) {
	r := newRig(t)
	before := r.state.Len()
	d := r.deliver(r.mentionNote("1", "hello"))
	d.key = malloryKey()
	r.want(d.sign(), http.StatusUnauthorized, "does not verify")
	if rows := r.state.Len(); rows != before {
		t.Errorf("%d rows more", rows-before)
	}
}

func TestUnsignedFetchFirst(t *testing.T) {
	r := newRig(t)
	signed := 0
	r.remote.requires = func(q *http.Request) bool {
		if q.Header.Get("Signature") != "" {
			signed++
		}
		return true
	}
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	if signed != 0 {
		t.Errorf("%d signatures for a host that wants none", signed)
	}
}

// TestStubForStrangers: Akkoma shows the key alone to requests without a signature.
func TestStubForStrangers(t *testing.T) {
	r := newRig(t)
	full, _ := document.Encode(r.remote.actorDocument("alice", aliceKey()))
	stub := r.remote.actorDocument("alice", aliceKey())
	delete(stub, "inbox")
	short, _ := document.Encode(stub)
	r.remote.handle("/users/alice", func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", activityMediaType)
		if q.Header.Get("Signature") == "" {
			_, _ = w.Write(short)
			return
		}
		_, _ = w.Write(full)
	})
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
}
