package activitypub

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// names makes WebFinger answer: address without acct: → actor.
func (s *remoteServer) names(actors map[string]string) {
	s.handle("/.well-known/webfinger", func(w http.ResponseWriter, q *http.Request) {
		resource := q.URL.Query().Get("resource")
		actor, found := actors[resource]
		if !found {
			http.NotFound(w, q)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"subject": resource, "links": []any{map[string]string{"rel": "self", "type": activityMediaType, "href": actor}},
		})
	})
}

func TestOpenBeginsAPrivateConversation(t *testing.T) {
	r := newRig(t)
	host := document.HostOf(r.remote.base)
	r.remote.names(map[string]string{"acct:alice@" + host: r.remote.actor("alice")})
	notes, err := r.adapter.actors.Open(t.Context(), "echo", "@alice@"+host)
	if err != nil {
		t.Fatal(err)
	}
	reply := exchange.Reply{
		ID: "01939f3e-0000-7000-8000-000000000002", Agent: "echo", Route: notes, CreatedAt: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		Message: normalized.Message{ReceivedVia: normalized.ViaActivityPub},
		Response: normalized.Response{Parts: []normalized.Part{{Kind: normalized.PartPolicy, Policy: &policypart.Part{
			Kind: policypart.ConsentRequired, Message: "May I?", URL: r.base + "/policy/1",
		}}}},
	}
	if err := r.deliverReply(reply, 0, 1); err != nil {
		t.Fatal(err)
	}
	arrived := r.remote.arrivals()
	if len(arrived) != 1 || arrived[0].path != "/users/alice/inbox" {
		t.Fatalf("arrivals %v, want one at the personal inbox", arrived)
	}
	r.checkArrival(arrived[0], "echo")
	var create createActivity
	if err := json.Unmarshal(arrived[0].body, &create); err != nil {
		t.Fatal(err)
	}
	if len(create.To) != 1 || create.To[0] != r.remote.actor("alice") || len(create.Cc) != 0 || create.Object.InReplyTo != "" || len(create.Object.Tag) != 1 {
		t.Errorf("written to %v, %v: %s", create.To, create.Cc, arrived[0].body)
	}

	// An answer joins the conversation, of that actor alone.
	r.engine.entries["echo "+r.adapter.noteIRI(reply.ID)] = exchange.ThreadEntry{ThreadID: "urn:opened", Message: reply.Message, Route: notes}
	private := func(note map[string]any) {
		note["to"], note["cc"], note["inReplyTo"] = []string{r.base + "/agents/echo"}, []string{}, r.adapter.noteIRI(reply.ID)
	}
	if in := r.question("2", "approve", private); in.Message.ThreadID != "urn:opened" {
		t.Errorf("the answer is in the thread %s", in.Message.ThreadID)
	}
}

func TestOpenSaysWhatCannotBe(t *testing.T) {
	r := newRig(t)
	host := document.HostOf(r.remote.base)
	r.remote.names(map[string]string{"acct:echo@" + host: r.base + "/agents/echo"})
	for address, permanent := range map[string]bool{
		"nobody": true, "@echo@" + r.domain: true, "@nobody@" + host: false, "@echo@" + host: false,
	} {
		_, err := r.adapter.actors.Open(t.Context(), "echo", address)
		if err == nil || fault.Of(err).Permanent != permanent {
			t.Errorf("%s: %v; want permanent %v", address, err, permanent)
		}
	}
	if _, err := r.adapter.actors.Open(t.Context(), "nobody", "@alice@"+host); err == nil || !fault.Of(err).Permanent {
		t.Errorf("an agent that is not there: %v", err)
	}
	closed := newRig(t, func(o *Options) { o.Mode = ModeAllowlist })
	if _, err := closed.adapter.actors.Open(t.Context(), "echo", "@alice@"+host); err == nil || !fault.Of(err).Permanent {
		t.Errorf("an excluded host: %v", err)
	}
}

// TestOwns: a name that an actor claims for itself, even on the host of the address, proves nothing.
func TestOwns(t *testing.T) {
	r := newRig(t)
	host := document.HostOf(r.remote.base)
	address, alice := "@alice@"+host, r.remote.actor("alice")
	r.remote.names(map[string]string{"acct:alice@" + host: alice})
	r.remote.addActor("mallory", malloryKey(), func(doc map[string]any) { doc["preferredUsername"] = "alice" })
	for actor, want := range map[string]bool{alice: true, r.remote.actor("mallory"): false, "https://elsewhere.example/users/alice": false} {
		if owns, err := r.adapter.actors.Owns(t.Context(), actor, address); owns != want || err != nil {
			t.Errorf("%s owns it: %v, %v", actor, owns, err)
		}
	}
	if n := r.remote.count("/.well-known/webfinger"); n != 1 {
		t.Errorf("asked %d times; want 1", n)
	}
	for _, wrong := range []string{"alice", "@alice@" + r.domain} {
		if owns, err := r.adapter.actors.Owns(t.Context(), alice, wrong); owns || err != nil {
			t.Errorf("%s: %v, %v", wrong, owns, err)
		}
	}

	// When the server of the address does not answer, only one of its own actors is worth another try.
	r.remote.names(nil)
	r.clock.Add(int64(knownAddressLife + time.Second))
	if owns, err := r.adapter.actors.Owns(t.Context(), alice, address); owns || err == nil {
		t.Errorf("without WebFinger: %v, %v", owns, err)
	}
	if owns, err := r.adapter.actors.Owns(t.Context(), "https://elsewhere.example/users/alice", address); owns || err != nil {
		t.Errorf("a stranger without WebFinger: %v, %v", owns, err)
	}
	known, _ := json.Marshal(checkedAddress{Address: address, Status: addressConfirmed})
	if err := r.state.Put(t.Context(), addressNamespace, alice, known, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if owns, err := r.adapter.actors.Owns(t.Context(), alice, address); !owns || err != nil {
		t.Errorf("confirmed before: %v, %v", owns, err)
	}
	unchecked, _ := json.Marshal(checkedAddress{Address: address, Status: addressUnchecked})
	if err := r.state.Put(t.Context(), addressNamespace, r.remote.actor("mallory"), unchecked, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if owns, _ := r.adapter.actors.Owns(t.Context(), r.remote.actor("mallory"), address); owns {
		t.Error("an address that nobody checked was taken for proof")
	}
}
