package activitypub

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
)

func TestFieldsOnProfiles(t *testing.T) {
	p := &profiles{site: &site{}}
	p.options.Fields = []Field{{"Operator", "Ex & Co"}, {"Contact", "ops@example.org"}, {"Account", "@ops@example.org"}, {"Privacy", "https://example.org/privacy"}}
	actor := actorDocument{Context: actorContext}
	p.profileFields(&actor)
	if len(actor.Context) != len(actorContext)+1 || len(actor.Attachment) != 4 {
		t.Fatalf("%d contexts, %d fields", len(actor.Context), len(actor.Attachment))
	}
	body, err := json.Marshal(actor)
	if err != nil || !strings.Contains(string(body), `"attachment":[{"type":"PropertyValue"`) {
		t.Errorf("%s %v", body, err)
	}
	for i, want := range []string{"Ex &amp; Co", `<a href="mailto:ops@example.org">ops@example.org</a>`, "@ops@example.org", `<a href="https://example.org/privacy" rel="nofollow noopener" target="_blank">example.org/privacy</a>`} {
		if got := actor.Attachment[i].Value; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	var plain actorDocument
	(&profiles{site: &site{}}).profileFields(&plain)
	if plain.Attachment != nil || len(plain.Context) != 0 {
		t.Error("without fields nothing changes")
	}
}

// TestFollowsWaitForTheOperator: nothing is sent and there is no follower until the operator says so; the actor is locked.
func TestFollowsWaitForTheOperator(t *testing.T) {
	for _, accept := range []bool{true, false} {
		r := newRig(t, func(o *Options) { o.Follows = func(string) string { return FollowHold } })
		r.want(r.deliver(r.simple("Follow", r.base+"/agents/echo")).sign(), 202, "")
		if r.follows("echo") || len(r.engine.takeJobs(jobActivity)) != 0 || !r.state.Has(PendingNamespace+"echo", r.remote.actor("alice")) {
			t.Fatal("the follow does not wait")
		}
		if _, _, body := r.fetch("/agents/echo", activityMediaType); !strings.Contains(body, `"manuallyApprovesFollowers":true`) {
			t.Errorf("not locked: %s", body)
		}
		_, payload, err := FollowDecision("echo", r.remote.actor("alice"), accept)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.adapter.SendActivity(t.Context(), payload); err != nil {
			t.Fatal(err)
		}
		jobs := r.engine.takeJobs(jobActivity)
		want := map[bool]string{true: `"type":"Accept"`, false: `"type":"Reject"`}[accept]
		if r.follows("echo") != accept || len(jobs) != 1 || !strings.Contains(jobs[0], want) || r.state.Has(PendingNamespace+"echo", r.remote.actor("alice")) {
			t.Errorf("accept %v: follows %v, jobs %q", accept, r.follows("echo"), jobs)
		}
	}
}

func TestFollowsAreRejected(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Follows = func(string) string { return FollowReject } })
	r.want(r.deliver(r.simple("Follow", r.base+"/agents/echo")).sign(), 202, "")
	if jobs := r.engine.takeJobs(jobActivity); r.follows("echo") || len(jobs) != 1 || !strings.Contains(jobs[0], `"type":"Reject"`) {
		t.Errorf("jobs %q", jobs)
	}
}

// TestBlockedActorsCostNoFetch: 403 before any connection, for a host and for one actor.
func TestBlockedActorsCostNoFetch(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"host":  func(o *Options) { o.HostAllowed = func(string) bool { return false } },
		"actor": func(o *Options) { o.ActorAllowed = func(string) bool { return false } },
	} {
		r := newRig(t, change)
		t.Run(name, func(t *testing.T) { r.refused(t, r.hello().sign(), 403, 0) })
	}
}

func TestNoBot(t *testing.T) {
	for summary, want := range map[string]bool{
		"#nobot": true, `<p>me. <a href="https://x.example/tags/nobot" class="mention hashtag" rel="tag">#<span>NoBot</span></a>, thanks</p>`: true,
		"": false, "no bots": false, "#nobotany": false,
	} {
		if got := notetext.AsksNoBots(summary); got != want {
			t.Errorf("%q: %v", summary, got)
		}
	}
}

// TestSpreadLeavesOutWhoWantsNothing: neither who said stop nor who asks programs not to write gets posts as a follower. A
// shared inbox gets them for the others.
func TestSpreadLeavesOutWhoWantsNothing(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.FollowersGetReplies = true
		o.Stopped = func(agent, principal string) bool {
			return agent == "echo" && principal == o.Domain+" https://a.example/u/stopped"
		}
	})
	put := func(namespace, key string, document any) {
		value, _ := json.Marshal(document)
		_ = r.state.Put(t.Context(), namespace, key, value, time.Time{})
	}
	for _, actor := range []string{"https://a.example/u/stopped", "https://a.example/u/nobot", "https://b.example/u/nobot", "https://b.example/u/fan", "https://c.example/u/changed", "https://d.example/u/fan"} {
		entry := follower{Inbox: actor + "/inbox", NoBot: strings.HasSuffix(actor, "nobot")}
		if host := document.HostOf(actor); host == "b.example" || host == "d.example" {
			entry.SharedInbox = "https://" + host + "/inbox"
		}
		put(FollowerNamespace+"echo", actor, entry)
	}
	put(actorNamespace, "https://c.example/u/changed", remoteActor{Actor: document.Actor{ID: "https://c.example/u/changed"}, NoBot: true}) // since the follow
	places, _, err := r.adapter.outbox.Spread(t.Context(), r.reply(r.question("1", "hello"), "hi"), "")
	if err != nil {
		t.Fatal(err)
	}
	var inboxes []string
	for _, place := range places {
		inboxes = append(inboxes, place.Address)
	}
	if want := []string{"https://b.example/inbox", "https://d.example/inbox"}; !slices.Equal(inboxes, want) {
		t.Errorf("inboxes %q, want %q", inboxes, want)
	}
}

// TestSpreadFollowsMovedInboxes: a follower whose inboxes changed since the Follow gets the post where they are now.
func TestSpreadFollowsMovedInboxes(t *testing.T) {
	r := newRig(t, func(o *Options) { o.FollowersGetReplies = true })
	r.accept(r.simple("Follow", r.base+"/agents/echo"))
	reply := r.reply(r.question("1", "hello"), "hi")
	bob := "https://server.example/users/bob"
	for _, err := range []error{
		r.adapter.putJSON(t.Context(), FollowerNamespace+"echo", bob, follower{Inbox: bob + "/inbox"}),
		r.adapter.putJSON(t.Context(), actorNamespace, bob, remoteActor{Actor: document.Actor{ID: bob, Inbox: "https://server.example/new/bob", SharedInbox: "https://server.example/new"}}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	places, _, err := r.adapter.outbox.Spread(t.Context(), reply, "")
	if err != nil || len(places) != 1 || places[0].Address != "https://server.example/new" {
		t.Errorf("%+v, %v", places, err)
	}
}

// TestSpreadReadsFollowersTogether: a page of followers costs two reads, however many they are.
func TestSpreadReadsFollowersTogether(t *testing.T) {
	r := newRig(t, func(o *Options) { o.FollowersGetReplies = true })
	reply := r.reply(r.question("1", "hello"), "hi")
	for i := range spreadPage - 1 {
		actor := fmt.Sprintf("https://server%d.example/users/a", i)
		if err := r.adapter.putJSON(t.Context(), FollowerNamespace+"echo", actor, follower{Inbox: actor + "/inbox"}); err != nil {
			t.Fatal(err)
		}
	}
	r.state.Reads()
	places, next, err := r.adapter.outbox.Spread(t.Context(), reply, "")
	if err != nil || next != "" || len(places) != spreadPage-1 {
		t.Fatalf("%d places, next %q, %v", len(places), next, err)
	}
	if single, several := r.state.Reads(); single != 0 || several != 1 {
		t.Errorf("%d single reads and %d of several, want 0 and 1", single, several)
	}
}

// TestFollowersOnly: only who follows the agent is answered.
func TestFollowersOnly(t *testing.T) {
	h := newHouse(t, func(_ *house, o *Options) { o.FollowersOnly = func(agent string) bool { return agent == "echo" } })
	h.accept(h.mentionNote("1", "as a stranger"))
	if turn := h.settled(); turn.State != exchange.StateSilent || !strings.Contains(turn.Reason, "does not follow") {
		t.Errorf("%s (%s)", turn.State, turn.Reason)
	}
	h.accept(h.simple("Follow", h.base+"/agents/echo"))
	h.accept(h.mentionNote("2", "as a follower"))
	h.run("as a follower")
	undo := h.simple("Undo", h.simple("Follow", h.base+"/agents/echo"))
	h.accept(undo)
	h.accept(h.mentionNote("3", "as a stranger again"))
	if turn := h.turns()[0]; turn.State != exchange.StateSilent {
		t.Errorf("%s (%s)", turn.State, turn.Reason)
	}
	if asked := h.questions(); len(asked) != 1 {
		t.Errorf("asked %q", asked)
	}
}
