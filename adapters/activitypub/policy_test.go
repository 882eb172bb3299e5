package activitypub

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

// secretly is a Present that puts a secret into the address and counts its calls.
func secretly(calls *int) func(policypart.Part) policypart.Part {
	return func(part policypart.Part) policypart.Part {
		*calls++
		part.URL = strings.Replace(part.URL, "/policy/id", "/policy/secret", 1)
		return part
	}
}

func (r *rig) demand(change ...func(*policypart.Part)) normalized.Part {
	expires := identity.At(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC))
	part := policypart.Part{
		Kind: policypart.ConsentRequired, Title: "Consent", Message: "May I <read> it?\nOnly once.", URL: r.base + "/policy/id",
		ActionLabel: "Decide", ExpiresAt: &expires,
		MessageTranslations: map[string]policypart.Translation{"de": {Title: "Zustimmung", Message: "Darf ich es lesen?"}, "fr": {Message: "Puis-je le lire ?"}},
	}
	for _, apply := range change {
		apply(&part)
	}
	return normalized.Part{Kind: normalized.PartPolicy, Policy: &part}
}

func asCreate(t *testing.T, got arrival) createActivity {
	t.Helper()
	var create createActivity
	if err := json.Unmarshal(got.body, &create); err != nil {
		t.Fatal(err)
	}
	return create
}

// TestPrivateAnswerToAPublicQuestion: what was made possible by a private step goes to the asker, and to those whom the agent names. No
// follower, page or collection has it.
func TestPrivateAnswerToAPublicQuestion(t *testing.T) {
	for name, others := range map[string][]string{"alone": nil, "with one more": {"@bob@elsewhere.example"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.PublicReplies, o.FollowersGetReplies = true, true })
			r.accept(r.simple("Follow", r.base+"/agents/echo"))
			reply := r.reply(r.question("1", "hello"), "4711")
			reply.Response.Visibility, reply.Response.Cc = normalized.VisibilityDirect, others
			r.engine.replies[reply.ID] = reply

			plan, err := r.adapter.outbox.Plan(t.Context(), reply)
			if err != nil || plan.Open || plan.Spread || len(plan.Destinations) != 1+len(others) || !strings.HasSuffix(plan.Destinations[0].Address, "/users/alice/inbox") {
				t.Fatalf("plan %+v, %v", plan, err)
			}
			for _, path := range []string{"/o/" + reply.ID, "/o/" + reply.ID + "/activity", "/agents/echo/outbox?page=true", "/contexts/" + reply.TurnID} {
				if _, _, body := r.fetch(path, activityMediaType); strings.Contains(body, "4711") || strings.Contains(body, reply.ID) {
					t.Errorf("%s: %s", path, body)
				}
			}
			for revision, action := range map[int]string{0: exchange.ActionSend, 1: exchange.ActionUpdate, 2: exchange.ActionDelete} {
				reply.Revision, reply.EditedAt, reply.DeletedAt = revision, reply.CreatedAt, reply.CreatedAt
				_, err := r.adapter.outbox.Deliver(t.Context(), exchange.Delivery{
					ID: "d", Attempt: 1, Reply: reply, NativeID: plan.NativeID, Destination: plan.Destinations[0], Action: action,
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, sent := range r.remote.arrivals() {
				if strings.Contains(string(sent.body), document.Public) || strings.Contains(string(sent.body), "/followers") {
					t.Errorf("sent to more than the asker: %s", sent.body)
				}
			}
		})
	}
}

// TestLongDemandIsPrivate: every post of a chain is as private as the demand at its end.
func TestLongDemandIsPrivate(t *testing.T) {
	r := newRig(t, func(o *Options) { o.PostLength = 500 })
	reply := r.reply(r.question("1", "hello"), strings.Repeat("Before I do that, read this. ", 60), r.demand())
	reply.Response.Visibility = normalized.VisibilityDirect
	reply.Posts = 5
	plan, err := r.adapter.outbox.Plan(t.Context(), reply)
	if err != nil || len(plan.Destinations) < 2 {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	for i := range plan.Destinations {
		if err := r.deliverReply(reply, i, 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, sent := range r.remote.arrivals() {
		if create := asCreate(t, sent); len(create.To) != 1 || create.To[0] != r.remote.actor("alice") || len(create.Cc) != 0 {
			t.Errorf("to %v, cc %v", create.To, create.Cc)
		}
	}
}

func TestPolicyAnswerIsPrivate(t *testing.T) {
	calls := 0
	r := newRig(t, func(o *Options) { o.Present, o.PublicReplies = secretly(&calls), true })
	reply := r.reply(r.question("1", "hello"), r.demand(), "Before I do that:")
	reply.Response.Cc, reply.Response.Visibility = []string{"@bob@elsewhere.example"}, normalized.VisibilityPublic
	r.engine.replies[reply.ID] = reply
	plan, err := r.adapter.outbox.Plan(t.Context(), reply)
	if err != nil || len(plan.Destinations) != 1 || !strings.HasSuffix(plan.Destinations[0].Address, "/users/alice/inbox") {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	for _, path := range []string{"/o/" + reply.ID, "/o/" + reply.ID + "/activity", "/agents/echo/outbox?page=true"} {
		for _, accept := range []string{activityMediaType, "text/html"} {
			status, _, body := r.fetch(path, accept)
			if strings.HasPrefix(path, "/o/") && status != http.StatusNotFound || strings.Contains(body, "policy") || strings.Contains(body, reply.ID) {
				t.Errorf("%s as %s: %d %s", path, accept, status, body)
			}
		}
	}
	if calls != 0 {
		t.Error("the secret was put into a public document")
	}
	if err := r.deliverReply(reply, 0, 1); err != nil {
		t.Fatal(err)
	}
	got := r.remote.arrivals()[0]
	create := asCreate(t, got)
	if !cmp.Equal(create.To, []string{r.remote.actor("alice")}) || len(create.Cc) != 0 || len(create.Object.Tag) != 1 || got.path != "/users/alice/inbox" {
		t.Errorf("to %v cc %v tags %v at %s", create.To, create.Cc, create.Object.Tag, got.path)
	}
	r.golden("policy.json", got.body)
}

// TestDemandAndAnswer: one question gets a demand and later its answer, which are two notes of one conversation.
func TestDemandAndAnswer(t *testing.T) {
	r := newRig(t)
	in := r.question("1", "hello")
	demand := r.reply(in, r.demand())
	demand.Notice = 1
	answer := r.reply(in, "it is done")
	answer.ID = "01939f3e-0000-7000-8000-000000000002"
	for _, reply := range []exchange.Reply{demand, answer} {
		if err := r.deliverReply(reply, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	first, second := asCreate(t, r.remote.arrivals()[0]), asCreate(t, r.remote.arrivals()[1])
	if first.ID == second.ID || first.Object.ID == second.Object.ID || first.Object.InReplyTo != r.remote.base+"/notes/1" ||
		second.Object.InReplyTo != first.Object.InReplyTo || first.Object.Thread != second.Object.Thread {
		t.Errorf("demand %+v\nanswer %+v", first, second)
	}
	if !cmp.Equal(second.Cc, []string{document.Public}) {
		t.Errorf("the answer to a public question is addressed %v | %v", second.To, second.Cc)
	}
	// The asker writes under the demand: our own note names the agent, and its stored question names the thread.
	r.engine.replies[demand.ID] = demand
	r.engine.entries["echo "+r.base+"/o/"+demand.ID] = exchange.ThreadEntry{ThreadID: in.Message.ThreadID, Message: in.Message, Route: in.Route}
	next := r.question("2", "which one?", func(note map[string]any) { note["inReplyTo"], note["tag"] = r.base+"/o/"+demand.ID, nil })
	if next.Message.ThreadID != in.Message.ThreadID || next.Message.Recipient != in.Message.Recipient {
		t.Errorf("thread %s, want %s", next.Message.ThreadID, in.Message.ThreadID)
	}
}

func TestPrivateNoteIsReadByItsRecipient(t *testing.T) {
	calls := 0
	r := newRig(t, func(o *Options) { o.Present = secretly(&calls) })
	r.remote.addActor("mallory", malloryKey(), nil)
	reply := r.reply(r.question("1", "hello"), r.demand())
	get := func(path, actor string) *delivery {
		key := aliceKey()
		if actor != "alice" {
			key = malloryKey()
		}
		return &delivery{
			method: http.MethodGet, path: path, host: r.domain, keyID: r.remote.actor(actor) + "#main-key", key: key, algorithm: "rsa-sha256",
			header:  http.Header{"Accept": {activityMediaType}, "Date": {r.adapter.now().UTC().Format(http.TimeFormat)}},
			covered: []string{"(request-target)", "host", "date"},
		}
	}
	for _, path := range []string{"/o/" + reply.ID, "/o/" + reply.ID + "/activity"} {
		r.want(get(path, "mallory").sign(), http.StatusNotFound, "no such object")
		r.want(get(path, "alice"), http.StatusNotFound, "no such object")
		forged := get(path, "alice")
		forged.key = malloryKey()
		r.want(forged.sign(), http.StatusNotFound, "no such object")
		other := get(path, "alice")
		other.target = "/o/another"
		other.sign()
		r.want(other, http.StatusNotFound, "no such object")
		if calls != 0 {
			t.Fatal("a stranger's request was rendered with the secret")
		}
		status, body, header := r.send(get(path, "alice").sign())
		if status != http.StatusOK || !strings.Contains(body, "/policy/secret") || header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s: %d %v %s", path, status, header, body)
		}
		calls = 0
	}
}

func TestPolicyText(t *testing.T) {
	r := newRig(t)
	seconds := int64(90)
	link := `<a href="` + r.base + `/policy/id" rel="nofollow noreferrer">` + r.base + `/policy/id</a>`
	for name, c := range map[string]struct {
		locale string
		change func(*policypart.Part)
		want   string
	}{
		"own words":         {"", nil, `<strong>Consent</strong><br>May I &lt;read&gt; it?<br>Only once.<br>Decide: ` + link + `<br>Valid until 1 December 2026, 10:00 UTC`},
		"translated":        {"de-AT", nil, `<strong>Zustimmung</strong><br>Darf ich es lesen?<br>Decide: ` + link + `<br>Valid until 1 December 2026, 10:00 UTC`},
		"translated partly": {"FR", nil, `<strong>Consent</strong><br>Puis-je le lire ?<br>Decide: ` + link + `<br>Valid until 1 December 2026, 10:00 UTC`},
		"no such language":  {"ja", func(p *policypart.Part) { p.ExpiresAt = nil }, `<strong>Consent</strong><br>May I &lt;read&gt; it?<br>Only once.<br>Decide: ` + link},
		"one line each": {"", func(p *policypart.Part) {
			p.Title, p.Message, p.ActionLabel, p.ExpiresAt = "a\nb\u202e", "m", "Yes\nhttps://evil.example", nil
		}, `<strong>a b</strong><br>m<br>Yes https://evil.example: ` + link},
		"markup": {"", func(p *policypart.Part) {
			p.Title, p.Message, p.ActionLabel, p.ExpiresAt = "", `<a href="https://evil.example">x</a>`, "<b>", nil
		}, `&lt;a href=&#34;https://evil.example&#34;&gt;x&lt;/a&gt;<br>&lt;b&gt;: ` + link},
		"without address": {"", func(p *policypart.Part) { p.URL, p.ExpiresAt = "", nil }, `<strong>Consent</strong><br>May I &lt;read&gt; it?<br>Only once.`},
		"later": {"", func(p *policypart.Part) {
			*p = policypart.Part{Kind: policypart.TooManyRequests, Message: "Slow down.", RetryAfterSeconds: &seconds}
		}, `Slow down.<br>Please try again in 1m30s`},
	} {
		t.Run(name, func(t *testing.T) {
			change := c.change
			if change == nil {
				change = func(*policypart.Part) {}
			}
			text := writing{locale: c.locale, present: func(part policypart.Part) policypart.Part { return part }}
			if diff := cmp.Diff("<p>"+c.want+"</p>", text.policy(r.demand(change))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestForeignPolicyAddressIsRemoved(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Domain, o.PublicURL = "inbox.example", "https://inbox.example" })
	for address, stays := range map[string]bool{
		"https://inbox.example/policy/id": true, "https://evil.example/policy/id": false, "http://inbox.example/policy/id": false,
		"https://inbox.example:8443/": false, "https://inbox.example@evil.example/": false, "javascript:alert(1)": false,
	} {
		reply := exchange.Reply{ID: "1", Agent: "echo", Route: json.RawMessage(`{"actor":"https://m.example/u","visibility":"public"}`)}
		reply.Response.Parts = []normalized.Part{r.demand(func(p *policypart.Part) { p.URL = address })}
		made, err := r.adapter.renderer.render(reply, 1, nil, r.adapter.options.Present)
		if err != nil || strings.Contains(made.Content, "href=\""+address) != stays || strings.Contains(made.Content, "evil.example") {
			t.Errorf("%s: %s, %v", address, made.Content, err)
		}
		made, err = r.adapter.renderer.render(reply, 1, nil, withoutAddress)
		if err != nil || strings.Contains(made.Content, "/policy/") {
			t.Errorf("%s in a public document: %s, %v", address, made.Content, err)
		}
	}
}

func TestLocale(t *testing.T) {
	for name, c := range map[string]struct {
		note, actor map[string]any
		want        string
	}{
		"of the note":        {map[string]any{"contentMap": map[string]string{"de-AT": "hello"}}, map[string]any{"nameMap": map[string]string{"fr": "Alice"}}, "de-AT"},
		"of the actor":       {nil, map[string]any{"summaryMap": map[string]string{"fr": "moi"}}, "fr"},
		"of several":         {map[string]any{"contentMap": map[string]string{"de": "hallo", "en": "hello"}}, nil, "en"},
		"actor of several":   {nil, map[string]any{"summaryMap": map[string]string{"fr": "moi", "en": "me"}}, ""},
		"undetermined":       {map[string]any{"contentMap": map[string]string{"und": "hello"}}, nil, ""},
		"nothing":            {nil, nil, ""},
		"no language at all": {map[string]any{"contentMap": map[string]string{"x\nBcc: y": "hello"}}, map[string]any{"nameMap": "de"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.remote.addActor("alice", aliceKey(), func(doc map[string]any) {
				maps.Copy(doc, c.actor)
			})
			in := r.question("1", "hello", func(note map[string]any) {
				maps.Copy(note, c.note)
			})
			if got := in.Message.Sender.Profile.Locale; got != c.want {
				t.Errorf("locale %q, want %q", got, c.want)
			}
		})
	}
}

// interactionAnswer is what a server that asked about an interaction reads of our answer.
type interactionAnswer struct {
	ID, Type, Result string
	Object           struct{ ID, Type, Object, Instrument string }
}

func (r *rig) askToInteract(kind, target, instrument string) (interactionAnswer, bool) {
	r.t.Helper()
	request := r.simple(kind, target)
	request["id"], request["instrument"] = r.remote.base+"/requests/"+kind+"/"+actorKey(target, instrument), instrument
	r.accept(request)
	jobs := r.engine.takeJobs(jobActivity)
	if len(jobs) == 0 {
		return interactionAnswer{}, false
	}
	var job laterJob
	var said interactionAnswer
	if len(jobs) != 1 || json.Unmarshal([]byte(jobs[0]), &job) != nil || json.Unmarshal(job.Activity, &said) != nil {
		r.t.Fatalf("%q", jobs)
	}
	if said.Object.Type != kind || said.Object.Instrument != instrument || job.Inbox != r.remote.actor("alice")+"/inbox" {
		r.t.Errorf("answered %s to %s", job.Activity, job.Inbox)
	}
	return said, true
}

// TestInteractionRequests: GoToSocial asks before an account likes, answers or shares a post, and keeps the interaction to itself
// until it is answered.
func TestInteractionRequests(t *testing.T) {
	for request, authorization := range interactionRequests {
		t.Run(request, func(t *testing.T) {
			r := newRig(t)
			reply := r.reply(r.question("1", "hello"), "hi")
			r.engine.replies[reply.ID] = reply
			target, instrument := r.base+"/o/"+reply.ID, r.remote.base+"/interactions/1"

			said, answered := r.askToInteract(request, target, instrument)
			if !answered || said.Type != "Accept" {
				t.Fatalf("answered %+v", said)
			}
			status, _, body := r.fetch(strings.TrimPrefix(said.Result, r.base), activityMediaType)
			var shown struct {
				ID, Type, AttributedTo, InteractingObject, InteractionTarget string
			}
			if err := json.Unmarshal([]byte(body), &shown); err != nil || status != http.StatusOK {
				t.Fatalf("%s: %d %s", said.Result, status, body)
			}
			if shown.ID != said.Result || shown.Type != authorization || shown.AttributedTo != r.base+"/agents/echo" ||
				shown.InteractingObject != instrument || shown.InteractionTarget != target {
				t.Errorf("the authorization is %s", body)
			}

			if said, _ := r.askToInteract(request, target, "https://elsewhere.example/1"); said.Type != "Reject" || said.Result != "" {
				t.Errorf("an interaction of somebody else: %+v", said)
			}
			if said, answered := r.askToInteract(request, r.base+"/o/0199", instrument); answered {
				t.Errorf("a post that is not there: %+v", said)
			}

			reply.DeletedAt = reply.CreatedAt
			r.engine.replies[reply.ID] = reply
			if status, _, _ := r.fetch(strings.TrimPrefix(said.Result, r.base), activityMediaType); status != http.StatusGone {
				t.Errorf("the authorization outlives the post: %d", status)
			}
		})
	}
}

// TestInteractionsWithPrivatePosts: who got a private answer may like and answer it; no one may share it, and no
// authorization about it is shown to others.
func TestInteractionsWithPrivatePosts(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hi")
	reply.Open = false
	asked, err := readRoute(reply.Route)
	if err != nil {
		t.Fatal(err)
	}
	asked.Visibility = "direct"
	if reply.Route, err = json.Marshal(asked); err != nil {
		t.Fatal(err)
	}
	r.engine.replies[reply.ID] = reply
	target := r.base + "/o/" + reply.ID
	for request, want := range map[string]string{"LikeRequest": "Accept", "ReplyRequest": "Accept", "AnnounceRequest": "Reject"} {
		if said, _ := r.askToInteract(request, target, r.remote.base+"/interactions/1"); said.Type != want {
			t.Errorf("%s: %s, want %s", request, said.Type, want)
		}
	}
	forged := r.adapter.interactions.authorizationIRI(exchange.Reply{Agent: "echo"}, "LikeAuthorization", target, "https://elsewhere.example/1")
	if status, _, body := r.fetch(strings.TrimPrefix(forged, r.base), activityMediaType); status != http.StatusNotFound {
		t.Errorf("a stranger's interaction with a private post: %d %s", status, body)
	}
}
