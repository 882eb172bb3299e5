package activitypub

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/exchange"
)

// perform runs a job and everything that follows from it, in order, each job twice, as after a crash.
func (r *rig) perform(job Later) {
	r.t.Helper()
	for waiting := []Later{job}; len(waiting) > 0; waiting = waiting[1:] {
		var more []Later
		for attempt := range 2 {
			var err error
			if more, err = r.adapter.Perform(r.t.Context(), waiting[0].Payload, attempt+1); err != nil {
				r.t.Fatalf("%s: %v", waiting[0].Payload, err)
			}
		}
		waiting = append(waiting, more...)
	}
}

// pin does what the operator's command does.
func (r *rig) pin(reply exchange.Reply, change string, on bool) Later {
	r.t.Helper()
	namespace := FeaturedNamespace(reply.Agent)
	err := r.state.Delete(r.t.Context(), namespace, reply.ID)
	if on {
		err = r.state.Put(r.t.Context(), namespace, reply.ID, []byte("{}"), time.Time{})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return must(PinChange(reply.Agent, reply.ID, change, on, time.Date(2026, 11, 22, 9, 0, 0, 5, time.UTC)))
}

// TestPinsAreTold: a server of followers hears of each change once, signed and proven, and reads the same in "featured".
func TestPinsAreTold(t *testing.T) {
	r := newRig(t)
	r.accept(r.simple("Follow", r.base+"/agents/echo"))
	r.remote.addActor("bob", malloryKey(), nil) // follows too, and shares alice's inbox
	bob := r.remote.actor("bob")
	if err := r.adapter.putJSON(t.Context(), followerNamespace+"echo", bob, follower{Inbox: bob + "/inbox", SharedInbox: r.remote.base + "/inbox"}); err != nil {
		t.Fatal(err)
	}
	reply := r.reply(r.question("1", "hello"), "worth reading")
	reply.Agent = "echo"
	for i, step := range []struct {
		change, golden string
		on             bool
		featured       string
	}{
		{"01939f40-0000-7000-8000-000000000001", "pin.json", true, `"totalItems":1`},
		{"01939f40-0000-7000-8000-000000000002", "unpin.json", false, `"totalItems":0`},
		{"01939f40-0000-7000-8000-000000000003", "", true, `"totalItems":1`},
	} {
		job := r.pin(reply, step.change, step.on)
		if _, _, body := r.fetch("/agents/echo/featured", activityMediaType); !strings.Contains(body, step.featured) {
			t.Errorf("step %d: featured is %s, want %s", i, body, step.featured)
		}
		r.perform(job)
		arrived := r.remote.arrivals()
		if len(arrived) != i+1 {
			t.Fatalf("step %d: %d activities arrived, want %d", i, len(arrived), i+1)
		}
		got := arrived[i]
		r.checkArrival(got, "echo")
		checkOwnProof(t, r, "/agents/echo", got.body)
		if got.path != "/inbox" {
			t.Errorf("step %d: came to %s, want the shared inbox", i, got.path)
		}
		if step.golden != "" {
			r.golden(step.golden, got.body)
		}
	}
	ids := []any{}
	for _, body := range r.bodies() {
		ids = append(ids, body["id"])
	}
	if diff := cmp.Diff([]any{
		r.base + "/agents/echo#featured/01939f40-0000-7000-8000-000000000001", r.base + "/agents/echo#featured/01939f40-0000-7000-8000-000000000002",
		r.base + "/agents/echo#featured/01939f40-0000-7000-8000-000000000003",
	}, ids); diff != "" {
		t.Error(diff)
	}
}

// TestPinsStayInOrder: a Remove that overtook its Add would be lost, so changes of one agent wait for each other, on the way
// to the followers and on the way to each inbox.
func TestPinsStayInOrder(t *testing.T) {
	r := newRig(t)
	r.accept(r.simple("Follow", r.base+"/agents/echo"))
	reply := r.reply(r.question("1", "hello"), "worth reading")
	var orders [2][]string
	for i, on := range []bool{true, false} {
		job := r.pin(reply, []string{"one", "two"}[i], true) // it stands there, so that the Add is made
		if !on {
			job = must(PinChange(reply.Agent, reply.ID, "two", false, time.Now()))
		}
		for waiting := []Later{job}; len(waiting) > 0; waiting = waiting[1:] {
			orders[i] = append(orders[i], waiting[0].Partition)
			if LaterHost(waiting[0].Payload) == "" {
				waiting = append(waiting, must(r.adapter.Perform(t.Context(), waiting[0].Payload, 1))...)
			}
		}
	}
	if diff := cmp.Diff(orders[0], orders[1]); diff != "" || len(orders[0]) != 3 {
		t.Errorf("the jobs of two changes wait in %q and %q", orders[0], orders[1])
	}
}

// TestPinOfWhatIsNotPublic: nothing is told of an answer that was taken back before the job ran, nor of one that few may
// read; that one is taken off is told all the same.
func TestPinOfWhatIsNotPublic(t *testing.T) {
	r := newRig(t)
	r.accept(r.simple("Follow", r.base+"/agents/echo"))
	for name, change := range map[string]func(*exchange.Reply){
		"taken back":       func(reply *exchange.Reply) { reply.DeletedAt = time.Now() },
		"of another agent": func(reply *exchange.Reply) { reply.Agent = "other" },
		"private": func(reply *exchange.Reply) {
			reply.Route = json.RawMessage(`{"visibility":"direct","actor":"` + r.remote.actor("alice") + `"}`)
		},
		"unknown": nil,
	} {
		reply := r.reply(r.question(strings.ReplaceAll(name, " ", "-"), "hello"), "not for everybody")
		job := r.pin(reply, "add", true)
		if change != nil {
			change(&reply)
			r.engine.replies[reply.ID] = reply
		} else {
			delete(r.engine.replies, reply.ID)
		}
		r.perform(job)
		if n := len(r.remote.arrivals()); n != 0 {
			t.Fatalf("%s: %d activities arrived", name, n)
		}
	}
	reply := r.reply(r.question("last", "hello"), "hi")
	job := r.pin(reply, "remove", false)
	reply.DeletedAt = time.Now()
	r.engine.replies[reply.ID] = reply
	r.perform(job)
	if n := len(r.remote.arrivals()); n != 1 {
		t.Errorf("%d activities arrived, want the Remove", n)
	}
}

// TestPinOfARemovedAgent: there are no keys to sign with any more, and no followers.
func TestPinOfARemovedAgent(t *testing.T) {
	r := newRig(t)
	job := must(PinChange("gone", "id", "change", true, time.Now()))
	if _, err := r.adapter.Perform(t.Context(), job.Payload, 1); err == nil || !strings.Contains(err.Error(), "no agent gone") {
		t.Errorf("%v", err)
	}
	if status, _, _ := r.fetch("/agents/gone/featured", activityMediaType); status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
}
