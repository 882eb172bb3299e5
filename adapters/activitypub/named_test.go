package activitypub

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/internal/fault"
)

// performObjects runs the jobs that fetch objects, as a first attempt.
func (r *rig) performObjects() (errs []error) {
	r.t.Helper()
	for _, job := range r.engine.takeJobs(jobObject) {
		if _, err := r.adapter.Perform(r.t.Context(), job, 1); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// TestCreateThatOnlyNamesItsObject: the object is asked for at its own server, after the peer was answered.
func TestCreateThatOnlyNamesItsObject(t *testing.T) {
	cases := []struct {
		name   string
		change func(r *rig, activity, note map[string]any)
		want   []string
		author string
	}{
		{"address", func(_ *rig, activity, note map[string]any) { activity["object"] = note["id"] }, []string{"hello"}, "alice"},
		{"list of one address", func(_ *rig, activity, note map[string]any) { activity["object"] = []any{note["id"]} }, []string{"hello"}, "alice"},
		{"object with an id alone", func(_ *rig, activity, note map[string]any) {
			activity["object"] = map[string]any{"id": note["id"]}
		}, []string{"hello"}, "alice"},
		{"addresses on the activity alone", func(r *rig, activity, note map[string]any) {
			delete(note, "to")
			delete(note, "cc")
			delete(note, "tag")
			r.remote.serve("/notes/1", note)
			activity["object"] = note["id"]
		}, []string{"hello"}, "alice"},
		{"object that does not exist", func(r *rig, activity, _ map[string]any) { activity["object"] = r.remote.base + "/notes/2" }, nil, ""},
		{"object by somebody else of the same server", func(r *rig, activity, note map[string]any) {
			note["attributedTo"] = r.remote.actor("bob")
			r.remote.serve("/notes/1", note)
			activity["object"] = note["id"]
		}, nil, ""},
		{"object without a type", func(r *rig, activity, note map[string]any) {
			delete(note, "type")
			r.remote.serve("/notes/1", note)
			activity["object"] = note["id"]
		}, nil, ""},
		{"object with another id", func(r *rig, activity, note map[string]any) {
			r.remote.serve("/notes/3", note)
			note["id"] = "https://evil.example/1"
			r.remote.serve("/notes/1", note)
			activity["object"] = r.remote.base + "/notes/1"
		}, nil, ""},
		{"object that is not for us", func(r *rig, activity, note map[string]any) {
			note["cc"], note["tag"] = []string{}, []any{}
			r.remote.serve("/notes/1", note)
			activity["object"] = note["id"]
		}, nil, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			activity := r.mentionNote("1", "hello")
			note := activity["object"].(map[string]any)
			r.remote.serve("/notes/1", note)
			c.change(r, activity, note)
			r.accept(activity)
			if n := len(r.engine.messages()); n != 0 || r.remote.count("/notes/1") != 0 {
				t.Errorf("%d messages, %d fetches in the request", n, r.remote.count("/notes/1"))
			}
			r.performObjects()
			if len(r.engine.takeJobs(jobObject)) != 0 {
				t.Error("a job asks for another one")
			}
			if got := r.texts(); !slices.Equal(got, c.want) {
				t.Fatalf("texts %q, want %q", got, c.want)
			}
			for _, in := range r.engine.messages() {
				if in.Message.ID != activity["id"] || in.Message.Sender.Identities[0].Subject != r.remote.actor(c.author) {
					t.Errorf("id %s of %+v", in.Message.ID, in.Message.Sender)
				}
			}
		})
	}
}

// TestEmbeddedObjectOfAnotherServer: the copy says nothing. What its own server shows is the message of its author there.
func TestEmbeddedObjectOfAnotherServer(t *testing.T) {
	for _, genuine := range []bool{false, true} {
		t.Run(fmt.Sprint("exists: ", genuine), func(t *testing.T) {
			r := newRig(t)
			other := newRemoteServer(t)
			other.addActor("bob", malloryKey(), nil)
			activity := r.mentionNote("1", "what alice would like bob to have said")
			note := activity["object"].(map[string]any)
			note["id"] = other.base + "/notes/1"
			if genuine {
				shown := r.mentionNote("1", "bob's own words")["object"].(map[string]any)
				shown["id"], shown["attributedTo"] = other.base+"/notes/1", other.actor("bob")
				other.serve("/notes/1", shown)
			}
			r.accept(activity)
			if n := other.connections.Load(); n != 0 {
				t.Errorf("%d connections in the request", n)
			}
			errs := r.performObjects()
			taken := r.engine.messages()
			if !genuine {
				if len(taken) != 0 || len(errs) != 1 || !fault.Of(errs[0]).Permanent {
					t.Errorf("%d messages, errors %v", len(taken), errs)
				}
				return
			}
			if len(taken) != 1 || taken[0].Message.Parts[0].Content != "bob's own words" {
				t.Fatalf("messages %+v", taken)
			}
			sender := taken[0].Message.Sender
			claims := string(sender.Identities[0].Claims)
			if sender.Identities[0].Subject != other.actor("bob") || !strings.Contains(claims, schemeOrigin) || !strings.Contains(claims, r.remote.actor("alice")) {
				t.Errorf("sender %+v, claims %s", sender, claims)
			}
		})
	}
}

// TestNamedObjectsAreBounded: no sender makes us ask a server for what is not for us, nor too often, nor one that is excluded.
func TestNamedObjectsAreBounded(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HostAllowed = func(host string) bool { return host != "blocked.example" } })
	foreign := r.mentionNote("1", "hello")
	foreign["object"], foreign["cc"] = "https://elsewhere.example/notes/1", []string{}
	r.accept(foreign)
	blocked := r.mentionNote("2", "hello")
	blocked["object"] = "https://blocked.example/notes/1"
	r.accept(blocked)
	if n := len(r.engine.takeJobs(jobObject)); n != 0 {
		t.Errorf("%d jobs", n)
	}
	for i := range maxConfirmations {
		named := r.mentionNote(fmt.Sprint("n", i), "hello")
		named["object"] = r.remote.base + "/notes/1"
		r.accept(named)
	}
	more := r.mentionNote("x", "hello")
	more["object"] = r.remote.base + "/notes/1"
	status, text, header := r.send(r.deliver(more).sign())
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
		t.Errorf("status %d %q, Retry-After %q", status, text, header.Get("Retry-After"))
	}
}

// TestNamedObjectIsTriedAgain: a server that fails is asked a few times, later.
func TestNamedObjectIsTriedAgain(t *testing.T) {
	r := newRig(t)
	r.remote.handle("/notes/1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	activity := r.mentionNote("1", "hello")
	note := activity["object"]
	activity["object"] = r.remote.base + "/notes/1"
	r.accept(activity)
	job := r.engine.takeJobs(jobObject)[0]
	for attempt := 1; attempt <= maxObjectAttempts; attempt++ {
		_, err := r.adapter.Perform(t.Context(), job, attempt)
		if last := attempt == maxObjectAttempts; err == nil || fault.Of(err).Permanent != last {
			t.Errorf("attempt %d: %v", attempt, err)
		}
	}
	r.remote.serve("/notes/1", note)
	if _, err := r.adapter.Perform(t.Context(), job, 2); err != nil || len(r.engine.messages()) != 1 {
		t.Errorf("%v, %d messages", err, len(r.engine.messages()))
	}
}

// TestNamedObjectIsAnswered through the whole engine, and the same note embedded is not answered again.
func TestNamedObjectIsAnswered(t *testing.T) {
	h := newHouse(t)
	activity := h.mentionNote("1", "hello")
	whole := h.mentionNote("1", "hello")
	h.remote.serve("/notes/1", activity["object"])
	activity["object"] = h.remote.base + "/notes/1"
	h.accept(activity)
	h.run("hello")
	if turn := h.settled(); turn.State != exchange.StateAnswered {
		t.Errorf("state %s (%s)", turn.State, turn.Reason)
	}
	h.accept(whole)
	whole["id"] = h.remote.base + "/notes/1/again"
	h.accept(whole)
	if asked := h.questions(); len(asked) != 1 || len(h.turns()) != 1 {
		t.Errorf("asked %q", asked)
	}
}
