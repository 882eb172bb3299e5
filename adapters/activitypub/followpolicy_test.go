package activitypub

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestFieldsOnProfiles(t *testing.T) {
	a := &Adapter{}
	a.options.Fields = []Field{{"Operator", "Ex & Co"}, {"Contact", "ops@example.org"}, {"Account", "@ops@example.org"}, {"Privacy", "https://example.org/privacy"}}
	actor := actorDocument{Context: actorContext}
	a.profileFields(&actor)
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
	(&Adapter{}).profileFields(&plain)
	if plain.Attachment != nil || len(plain.Context) != 0 {
		t.Error("without fields nothing changes")
	}
}

// TestFollowsWaitForTheOperator: nothing is sent and nobody follows until the operator says so; the actor is locked.
func TestFollowsWaitForTheOperator(t *testing.T) {
	for _, accept := range []bool{true, false} {
		r := newRig(t, func(o *Options) { o.Follows = func(string) string { return FollowHold } })
		r.want(r.deliver(r.simple("Follow", r.base+"/agents/echo")).sign(), 202, "")
		if r.follows("echo") || len(r.engine.takeJobs(jobActivity)) != 0 || !r.state.has(PendingNamespace+"echo", r.remote.actor("alice")) {
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
		if r.follows("echo") != accept || len(jobs) != 1 || !strings.Contains(jobs[0], want) || r.state.has(PendingNamespace+"echo", r.remote.actor("alice")) {
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
		if got := asksNoBots(summary); got != want {
			t.Errorf("%q: %v", summary, got)
		}
	}
}
