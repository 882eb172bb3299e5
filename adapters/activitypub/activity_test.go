package activitypub

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/fault"
)

// simple makes an activity of alice.
func (r *rig) simple(kind string, object any) map[string]any {
	return map[string]any{
		"@context": document.ActivityStreams, "id": r.remote.base + "/activities/" + strings.ToLower(kind), "type": kind,
		"actor": r.remote.actor("alice"), "object": object,
	}
}

func (r *rig) follows(agent string) bool {
	return r.state.Has(FollowerNamespace+agent, r.remote.actor("alice"))
}

func TestFollowIsAccepted(t *testing.T) {
	r := newRig(t)
	for range 2 { // a repeated Follow is accepted again
		r.want(r.deliver(r.simple("Follow", r.base+"/agents/echo")).sign(), http.StatusAccepted, "")
		if !r.follows("echo") {
			t.Fatal("no follower is stored")
		}
		jobs := r.engine.takeJobs(jobActivity)
		if len(jobs) != 1 {
			t.Fatalf("%d activities queued, want 1", len(jobs))
		}
		if err := r.adapter.SendActivity(t.Context(), jobs[0]); err != nil {
			t.Fatal(err)
		}
	}
	arrived := r.remote.arrivals()
	if len(arrived) != 2 || arrived[0].path != "/users/alice/inbox" {
		t.Fatalf("%d arrivals at %v, want 2 at the personal inbox", len(arrived), arrived)
	}
	r.checkArrival(arrived[0], "echo")
	var accept struct {
		Type, Actor, ID string
		Object          struct{ ID, Type, Actor, Object string }
	}
	if err := json.Unmarshal(arrived[0].body, &accept); err != nil {
		t.Fatal(err)
	}
	if accept.Type != "Accept" || accept.Actor != r.base+"/agents/echo" || accept.Object.ID != r.remote.base+"/activities/follow" ||
		accept.Object.Actor != r.remote.actor("alice") || accept.Object.Object != accept.Actor {
		t.Errorf("accept %s", arrived[0].body)
	}
	_, _, followers := r.fetch("/agents/echo/followers", activityMediaType)
	if !strings.Contains(followers, `"totalItems":1`) || strings.Contains(followers, "alice") {
		t.Errorf("followers %s", followers)
	}
}

// checkArrival verifies a request to the peer the way the peer would: with the key of the actor's document.
func (r *rig) checkArrival(got arrival, agent string) {
	r.t.Helper()
	_, _, body := r.fetch("/agents/"+agent, activityMediaType)
	var actor actorDocument
	if err := json.Unmarshal([]byte(body), &actor); err != nil {
		r.t.Fatal(err)
	}
	key, err := signature.ParseKey(actor.PublicKey.PEM)
	if err != nil {
		r.t.Fatal(err)
	}
	seen := signature.Request{Method: http.MethodPost, Target: got.path, Host: got.host, Origin: r.remote.base, Header: got.header, Body: got.body}
	signed, err := signature.Check(seen, r.adapter.now())
	if err != nil {
		r.t.Fatal(err)
	}
	if signed.KeyID != actor.PublicKey.ID {
		r.t.Errorf("key id %q, want %q", signed.KeyID, actor.PublicKey.ID)
	}
	if err := signed.Verify(key); err != nil {
		r.t.Error(err)
	}
}

// TestRepeatedFollowsAndBlocksLeaveOneRow: a sender of ever new ids fills nothing.
func TestRepeatedFollowsAndBlocksLeaveOneRow(t *testing.T) {
	r := newRig(t)
	for kind, namespace := range map[string]string{"Follow": followNamespace, "Block": blockIDNamespace} {
		send := func(i int) {
			activity := r.simple(kind, r.base+"/agents/echo")
			activity["id"] = fmt.Sprint(r.remote.base, "/", kind, "/", i)
			r.accept(activity)
		}
		for i := range 5 {
			send(i)
		}
		if count, err := r.state.Count(t.Context(), namespace); err != nil || count != 1 {
			t.Errorf("%s: %d rows, %v", kind, count, err)
		}
		undo := r.simple("Undo", fmt.Sprint(r.remote.base, "/", kind, "/4")) // named by its id alone
		undo["id"] = r.remote.base + "/undo/" + kind
		r.accept(undo)
		if count, _ := r.state.Count(t.Context(), namespace); count != 0 || r.follows("echo") || r.state.Has(blockNamespace+"echo", r.remote.actor("alice")) {
			t.Errorf("%s: %d rows are left, or it still stands", kind, count)
		}
	}
}

// TestSameIDOfTwoActors: on one server people can name each other's activities. No actor takes back, or keeps from being taken
// back, what another one did.
func TestSameIDOfTwoActors(t *testing.T) {
	r := newRig(t)
	r.remote.addActor("mallory", malloryKey(), nil)
	reply := r.reply(r.question("1", "hello"), "hi")
	as := func(name string, activity map[string]any) {
		t.Helper()
		activity["actor"] = r.remote.actor(name)
		d := r.deliver(activity)
		if name == "mallory" {
			d.keyID, d.key = r.remote.actor(name)+"#main-key", malloryKey()
		}
		r.want(d.sign(), http.StatusAccepted, "")
	}
	for kind, object := range map[string]string{"Follow": r.base + "/agents/echo", "Block": r.base + "/agents/other", "Like": r.base + "/o/" + reply.ID} {
		stands := func(name string) bool {
			count, _ := r.state.Count(t.Context(), reactionNamespace+reply.ID)
			return map[string]bool{
				"Follow": r.state.Has(FollowerNamespace+"echo", r.remote.actor(name)), "Block": r.state.Has(blockNamespace+"other", r.remote.actor(name)),
				"Like": count > 0,
			}[kind]
		}
		for _, name := range []string{"alice", "mallory"} { // the second with the id of the first
			activity := r.simple(kind, object)
			as(name, activity)
		}
		id := r.simple(kind, object)["id"].(string)
		for i, name := range []string{"mallory", "alice"} {
			undo := r.simple("Undo", id) // by the id alone
			undo["id"] = fmt.Sprint(r.remote.base, "/undo/", kind, i)
			as(name, undo)
			if kind != "Like" && stands(name) || name == "mallory" && !stands("alice") {
				t.Errorf("%s: after %s took back the own one, own: %v, alice's: %v", kind, name, stands(name), stands("alice"))
			}
		}
		if stands("alice") {
			t.Errorf("%s: alice cannot take it back", kind)
		}
	}
}

// TestLongIDs: ids of nearly any length that an address may have are taken.
func TestLongIDs(t *testing.T) {
	r := newRig(t)
	long := "l" + strings.Repeat("o", 1500) + "ng"
	r.remote.addActor(long, aliceKey(), nil)
	follow := r.simple("Follow", r.base+"/agents/echo")
	follow["actor"], follow["id"] = r.remote.actor(long), r.remote.base+"/"+strings.Repeat("x", 1500)
	d := r.deliver(follow)
	d.keyID = r.remote.actor(long) + "#main-key"
	r.want(d.sign(), http.StatusAccepted, "")
	if !r.state.Has(FollowerNamespace+"echo", r.remote.actor(long)) {
		t.Error("does not follow")
	}
	undo := r.simple("Undo", follow)
	undo["actor"], undo["id"] = follow["actor"], follow["id"].(string)+"/undo"
	d = r.deliver(undo)
	d.keyID = r.remote.actor(long) + "#main-key"
	r.want(d.sign(), http.StatusAccepted, "")
	d = r.deliver(follow)
	d.keyID = r.remote.actor(long) + "#main-key"
	r.want(d.sign(), http.StatusAccepted, "")
	if r.state.Has(FollowerNamespace+"echo", r.remote.actor(long)) {
		t.Error("a captured Follow took effect again")
	}
}

// TestToldOnceWhateverTheNameOfTheServer: an announced activity has a long id, and its row a short namespace.
func TestToldOnceWhateverTheNameOfTheServer(t *testing.T) {
	r := newRig(t)
	job := laterJob{
		Kind: jobActivity, Agent: "echo", Actor: r.remote.actor("alice"), Inbox: r.remote.actor("alice") + "/inbox",
		Activity: []byte("{}"), Once: "https://" + strings.Repeat("long.", 40) + "example/agents/echo#updates/1764000000000",
	}
	payload := must(document.Encode(job))
	for range 2 {
		if err := r.adapter.SendActivity(t.Context(), string(payload)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.remote.arrivals()); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

func TestFollowOfSomethingElse(t *testing.T) {
	r := newRig(t)
	for _, object := range []any{"https://elsewhere.example/users/x", r.base + "/agents/nobody", nil, map[string]any{}} {
		r.want(r.deliver(r.simple("Follow", object)).sign(), http.StatusAccepted, "")
	}
	if r.follows("echo") || len(r.engine.takeJobs(jobActivity)) != 0 {
		t.Error("a follow of nobody took effect")
	}
}

func TestEndOfAFollow(t *testing.T) {
	echo := func(r *rig) string { return r.base + "/agents/echo" }
	cases := []struct {
		name     string
		activity func(*rig) map[string]any
		status   int
		ends     bool
	}{
		{"undo with the whole follow", func(r *rig) map[string]any { return r.simple("Undo", r.simple("Follow", echo(r))) }, 202, true},
		{"undo with the id alone", func(r *rig) map[string]any { return r.simple("Undo", r.remote.base+"/activities/follow") }, 202, true},
		{"undo of an unknown id", func(r *rig) map[string]any { return r.simple("Undo", r.remote.base+"/activities/x") }, 202, false},
		{"undo of somebody else's follow", func(r *rig) map[string]any {
			inner := r.simple("Follow", echo(r))
			inner["actor"] = r.remote.actor("bob")
			return r.simple("Undo", inner)
		}, 400, false},
		{"undo of a like", func(r *rig) map[string]any { return r.simple("Undo", r.simple("Like", echo(r))) }, 202, false},
		{"block", func(r *rig) map[string]any { return r.simple("Block", echo(r)) }, 202, true},
		{"delete of the actor", func(r *rig) map[string]any { return r.simple("Delete", r.remote.actor("alice")) }, 202, true},
		{"delete of a note", func(r *rig) map[string]any { return r.simple("Delete", r.remote.base+"/notes/1") }, 202, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.want(r.deliver(r.simple("Follow", echo(r))).sign(), http.StatusAccepted, "")
			r.want(r.deliver(c.activity(r)).sign(), c.status, "")
			if r.follows("echo") == c.ends {
				t.Errorf("still following: %v, want %v", r.follows("echo"), !c.ends)
			}
		})
	}
}

func TestBlockStopsReplies(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hello")
	r.want(r.deliver(r.simple("Block", r.base+"/agents/echo")).sign(), http.StatusAccepted, "")
	if err := r.deliverReply(reply, 0, 1); !fault.Of(err).Permanent || len(r.remote.arrivals()) != 0 {
		t.Errorf("delivered after a block: %v", err)
	}
	r.want(r.deliver(r.simple("Undo", r.simple("Block", r.base+"/agents/echo"))).sign(), http.StatusAccepted, "")
	if err := r.deliverReply(reply, 0, 1); err != nil {
		t.Errorf("not delivered after the end of the block: %v", err)
	}
}

// TestUnknownActorDeletes: Mastodon sends every account deletion to every server that it knows.
func TestUnknownActorDeletes(t *testing.T) {
	r := newRig(t)
	before := r.state.Len()
	for i := range 1000 {
		actor := fmt.Sprintf("https://mastodon.example/users/%d", i)
		body := fmt.Sprintf(`{"id":"%s#delete","type":"Delete","actor":"%s","object":"%s"}`, actor, actor, actor)
		d := r.deliver(body)
		d.header.Set("Signature", `keyId="`+actor+`#main-key",headers="date",signature="AA=="`)
		r.want(d, http.StatusAccepted, "")
	}
	if n, rows := r.remote.connections.Load(), r.state.Len(); n != 0 || rows != before || len(r.engine.jobs) != 0 {
		t.Errorf("%d connections, %d rows, %d jobs", n, rows-before, len(r.engine.jobs))
	}
}

// TestDeleteAfterTheKeyIsGone: the signature can no longer be checked, but the actor's own server confirms it.
func TestDeleteAfterTheKeyIsGone(t *testing.T) {
	r := newRig(t)
	r.want(r.deliver(r.simple("Follow", r.base+"/agents/echo")).sign(), http.StatusAccepted, "")
	r.forgetActors()
	r.clock.Store(int64(keyLife)) // the key has to be fetched again
	deletion := r.simple("Delete", r.remote.actor("alice"))
	r.remote.handle("/users/alice", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	r.want(r.deliver(deletion).sign(), http.StatusAccepted, "")
	if r.follows("echo") || r.state.Has(actorNamespace, r.remote.actor("alice")) {
		t.Error("the deleted account is still known")
	}
}

// TestForgedDeleteWithADeadKey: a key id that does not exist proves nothing about the actor.
func TestForgedDeleteWithADeadKey(t *testing.T) {
	r := newRig(t)
	r.want(r.deliver(r.simple("Follow", r.base+"/agents/echo")).sign(), http.StatusAccepted, "")
	d := r.deliver(r.simple("Delete", r.remote.actor("alice")))
	d.keyID, d.key = r.remote.base+"/nothing", malloryKey()
	r.want(d.sign(), http.StatusUnauthorized, "")
	if !r.follows("echo") {
		t.Error("a forged Delete removed a follower")
	}
}

func TestUpdatedActorIsFetchedAgain(t *testing.T) {
	r := newRig(t)
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	r.remote.addActor("alice", aliceKey(), func(doc map[string]any) { doc["name"] = "Alice Liddell" })
	r.clock.Store(int64(refreshPause))
	r.want(r.deliver(r.simple("Update", map[string]any{"id": r.remote.actor("alice"), "type": "Person"})).sign(), http.StatusAccepted, "")
	r.want(r.deliver(r.mentionNote("2", "hello")).sign(), http.StatusAccepted, "")
	if name := r.engine.All()[1].Message.Sender.DisplayName; name != "Alice Liddell" {
		t.Errorf("name %q", name)
	}
}

// TestActorUpdatedTwiceInAMinute: an Update that comes right after the actor was read counts as well, and a storm of them
// costs one fetch in five minutes.
func TestActorUpdatedTwiceInAMinute(t *testing.T) {
	r := newRig(t)
	r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
	r.remote.addActor("alice", aliceKey(), func(doc map[string]any) { doc["name"] = "Alice Liddell" })
	update := func() {
		r.want(r.deliver(r.simple("Update", map[string]any{"id": r.remote.actor("alice"), "type": "Person"})).sign(), http.StatusAccepted, "")
	}
	for range 5 {
		update()
	}
	if n := r.remote.count("/users/alice"); n != 1 {
		t.Errorf("fetched %d times, want once", n)
	}
	r.clock.Store(int64(refreshPause))
	r.want(r.deliver(r.mentionNote("2", "hello")).sign(), http.StatusAccepted, "")
	for range 5 {
		update()
	}
	if name := r.engine.All()[1].Message.Sender.DisplayName; name != "Alice Liddell" || r.remote.count("/users/alice") != 2 {
		t.Errorf("name %q after %d fetches, want the new one after 2", name, r.remote.count("/users/alice"))
	}
}

func TestOtherActivitiesAreAcknowledged(t *testing.T) {
	r := newRig(t)
	for _, kind := range []string{"Like", "Announce", "Add", "View", "Move", "Flag", "EmojiReact", "https://example.org/Strange"} {
		r.want(r.deliver(r.simple(kind, r.base+"/agents/echo")).sign(), http.StatusAccepted, "")
	}
	if len(r.engine.All()) != 0 || len(r.engine.jobs) != 0 {
		t.Error("an activity without effect had one")
	}
}

func TestCreatesThatAreNoMessage(t *testing.T) {
	cases := []struct {
		name   string
		change func(*rig, map[string]any, map[string]any)
		status int
	}{
		{"not addressed to us", func(_ *rig, activity, note map[string]any) { delete(note, "cc"); delete(note, "tag") }, 202},
		{"vote", func(r *rig, _, note map[string]any) {
			delete(note, "content")
			note["name"], note["inReplyTo"] = "yes", r.base+"/o/1"
		}, 202},
		{"object by reference", func(r *rig, activity, _ map[string]any) { activity["object"] = r.remote.base + "/notes/1" }, 202},
		{"embedded object of another server", func(_ *rig, _, note map[string]any) { note["id"] = "https://elsewhere.example/notes/1" }, 202},
		{"some other type", func(_ *rig, _, note map[string]any) { note["type"] = "Place" }, 202},
		{"own-origin spoof", func(r *rig, _, note map[string]any) { note["id"] = r.base + "/o/1" }, 400},
		{"by somebody else", func(r *rig, _, note map[string]any) { note["attributedTo"] = r.remote.actor("bob") }, 400},
		{"no activity id", func(_ *rig, activity, _ map[string]any) { delete(activity, "id") }, 400},
		{"no object id", func(_ *rig, _, note map[string]any) { delete(note, "id") }, 400},
		{"no object", func(_ *rig, activity, _ map[string]any) { delete(activity, "object") }, 400},
		{"empty mention", func(_ *rig, _, note map[string]any) { note["content"] = "<p> </p>" }, 202},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			activity := r.mentionNote("1", "hello")
			c.change(r, activity, activity["object"].(map[string]any))
			r.want(r.deliver(activity).sign(), c.status, "")
			if len(r.engine.All()) != 0 {
				t.Error("it became a message")
			}
		})
	}
}

func TestWhoIsAddressed(t *testing.T) {
	cases := []struct {
		name   string
		path   string
		change func(*rig, map[string]any)
		want   string
	}{
		{"mention with a bare name", "/inbox", func(_ *rig, note map[string]any) { delete(note, "cc") }, "echo"},
		{"to without a tag", "/inbox", func(r *rig, note map[string]any) {
			note["to"] = r.base + "/agents/echo"
			delete(note, "cc")
			delete(note, "tag")
		}, "echo"},
		{"bcc", "/inbox", func(r *rig, note map[string]any) {
			note["bcc"] = []string{r.base + "/agents/echo"}
			delete(note, "cc")
			delete(note, "tag")
		}, "echo"},
		{"reply to our note", "/inbox", func(r *rig, note map[string]any) {
			delete(note, "cc")
			delete(note, "tag")
			r.engine.replies["0190"] = exchange.Reply{ID: "0190", Agent: "other"}
			note["inReplyTo"] = r.base + "/o/0190"
		}, "other"},
		{"reply to a note that we never had", "/inbox", func(r *rig, note map[string]any) {
			delete(note, "cc")
			delete(note, "tag")
			note["inReplyTo"] = r.base + "/o/0191"
		}, ""},
		{"limited: to the personal inbox without any address", "/agents/echo/inbox", func(_ *rig, note map[string]any) {
			note["to"] = []string{"https://elsewhere.example/users/x"}
			delete(note, "cc")
			delete(note, "tag")
		}, "echo"},
		{"public note to the personal inbox", "/agents/echo/inbox", func(_ *rig, note map[string]any) {
			delete(note, "cc")
			delete(note, "tag")
		}, ""},
		{"name of the tag is ours, its address is not", "/inbox", func(r *rig, note map[string]any) {
			delete(note, "cc")
			note["tag"] = map[string]any{"type": "Mention", "name": "@echo@" + r.domain, "href": "https://elsewhere.example/echo"}
		}, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			activity := r.mentionNote("1", "hello")
			delete(activity, "cc")
			c.change(r, activity["object"].(map[string]any))
			d := r.deliver(activity)
			d.path = c.path
			r.want(d.sign(), http.StatusAccepted, "")
			got := ""
			for _, in := range r.engine.All() {
				got += strings.TrimPrefix(strings.TrimSuffix(in.Message.Recipient, "@"+r.domain), "@")
			}
			if got != c.want {
				t.Errorf("for %q, want %q", got, c.want)
			}
		})
	}
}

func TestAutomatedSenders(t *testing.T) {
	for _, answers := range []bool{false, true} {
		r := newRig(t, func(o *Options) { o.AnswersAgents = func(string) bool { return answers } })
		r.remote.addActor("alice", aliceKey(), func(doc map[string]any) { doc["type"] = "Service" })
		r.want(r.deliver(r.mentionNote("1", "hello")).sign(), http.StatusAccepted, "")
		if !r.engine.All()[0].FromAgent {
			t.Error("an automated account passes for a person")
		}
		if reason := r.engine.All()[0].NoReply; (reason == "") != answers {
			t.Errorf("answers agents %v: no reply because %q", answers, reason)
		}
	}
}
