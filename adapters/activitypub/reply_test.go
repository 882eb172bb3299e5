package activitypub

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/signature"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// question brings a note in over the wire and returns the message as the engine got it.
func (r *rig) question(id, content string, change ...func(note map[string]any)) exchange.Inbound {
	r.t.Helper()
	activity := r.mentionNote(id, content)
	for _, apply := range change {
		apply(activity["object"].(map[string]any))
	}
	r.want(r.deliver(activity).sign(), http.StatusAccepted, "")
	taken := r.engine.All()
	if len(taken) == 0 {
		r.t.Fatal("no message")
	}
	return taken[len(taken)-1]
}

// reply makes the engine's answer to a question and keeps it, as the engine would.
func (r *rig) reply(in exchange.Inbound, parts ...any) exchange.Reply {
	reply := exchange.Reply{
		ID: "01939f3e-0000-7000-8000-000000000001", TurnID: "01939f3d-0000-7000-8000-00000000000a", Agent: "echo", Message: in.Message, Route: in.Route,
		Response:  normalized.Response{InReplyTo: in.Message.ID},
		CreatedAt: time.Date(2026, 11, 21, 12, 0, 0, 123456, time.UTC),
	}
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			reply.Response.Parts = append(reply.Response.Parts, normalized.Text(part))
		case normalized.Part:
			reply.Response.Parts = append(reply.Response.Parts, part)
		}
	}
	r.engine.replies[reply.ID] = reply
	return reply
}

// deliverReply plans and makes one attempt at one destination.
func (r *rig) deliverReply(reply exchange.Reply, index, attempt int) error {
	r.t.Helper()
	plan, err := r.adapter.outbox.Plan(r.t.Context(), reply)
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = r.adapter.outbox.Deliver(r.t.Context(), exchange.Delivery{
		ID: "d", Attempt: attempt, Reply: reply, NativeID: plan.NativeID, Destination: plan.Destinations[index],
	})
	return err
}

func TestReplyArrivesSigned(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hello yourself")
	if err := r.deliverReply(reply, 0, 1); err != nil {
		t.Fatal(err)
	}
	arrived := r.remote.arrivals()
	if len(arrived) != 1 || arrived[0].path != "/inbox" {
		t.Fatalf("arrivals %v, want one at the shared inbox", arrived)
	}
	r.checkArrival(arrived[0], "echo")
	if got := arrived[0].header; got.Get("Content-Type") != activityMediaType || !strings.HasPrefix(got.Get("User-Agent"), "inbox/1.2.3 (+") {
		t.Errorf("header %v", got)
	}
	var create createActivity
	if err := json.Unmarshal(arrived[0].body, &create); err != nil {
		t.Fatal(err)
	}
	alice := r.remote.actor("alice")
	if create.ID != r.base+"/o/"+reply.ID+"/activity" || create.Object.ID != r.base+"/o/"+reply.ID || create.Object.InReplyTo != r.remote.base+"/notes/1" {
		t.Errorf("ids %s", arrived[0].body)
	}
	if diff := cmp.Diff([]string{alice}, create.To) + cmp.Diff([]string{document.Public}, create.Cc) + cmp.Diff(create.To, create.Object.To) + cmp.Diff(create.Cc, create.Object.Cc); diff != "" {
		t.Error(diff)
	}
	if want := []noteTag{{"Mention", alice, "@alice@" + document.HostOf(r.remote.base)}}; !cmp.Equal(want, create.Object.Tag) {
		t.Errorf("tags %v", create.Object.Tag)
	}
	want := `<p><span class="h-card" translate="no"><a href="` + r.remote.base + `/@alice" class="u-url mention">@<span>alice</span></a></span> hello yourself</p>`
	if create.Object.Content != want {
		t.Errorf("content %s, want %s", create.Object.Content, want)
	}
	if err := r.deliverReply(reply, 0, 2); err != nil || !cmp.Equal(r.remote.arrivals()[0].body, r.remote.arrivals()[1].body) {
		t.Error("a repeated delivery is another activity")
	}
}

func TestReplyVisibilities(t *testing.T) {
	echo, alice := "echo", "alice"
	cases := []struct {
		name, wanted string
		to, cc       []string
		publicly     bool
		visible      string // "to | cc" of the reply
		inbox        string
	}{
		{"public", "", []string{document.Public}, []string{echo}, false, "alice | public", "/inbox"},
		{"public, publicly by configuration", "", []string{document.Public}, []string{echo}, true, "public | alice", "/inbox"},
		{"public, publicly by the agent", normalized.VisibilityPublic, []string{document.Public}, []string{echo}, false, "public | alice", "/inbox"},
		{"public, directly by the agent", normalized.VisibilityDirect, []string{document.Public}, []string{echo}, true, "alice | ", "/users/alice/inbox"},
		{"as:Public", "", []string{"as:Public"}, []string{echo}, false, "alice | public", "/inbox"},
		{"unlisted", "", []string{"followers"}, []string{document.Public, echo}, false, "alice | public", "/inbox"},
		{"unlisted never becomes public", normalized.VisibilityPublic, []string{"followers"}, []string{document.Public, echo}, true, "alice | public", "/inbox"},
		{"followers-only", "", []string{"followers"}, []string{echo}, false, "alice | ", "/users/alice/inbox"},
		{"direct", "", []string{echo}, nil, true, "alice | ", "/users/alice/inbox"},
		{"direct never becomes public", normalized.VisibilityPublic, []string{echo}, nil, true, "alice | ", "/users/alice/inbox"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { o.PublicReplies = c.publicly })
			names := map[string]string{echo: r.base + "/agents/echo", alice: r.remote.actor("alice"), "followers": r.remote.actor("alice") + "/followers"}
			full := func(list []string) (iris []string) {
				for _, name := range list {
					if iri, known := names[name]; known {
						name = iri
					}
					iris = append(iris, name)
				}
				return iris
			}
			reply := r.reply(r.question("1", "hello", func(note map[string]any) { note["to"], note["cc"] = full(c.to), full(c.cc) }), "hi")
			reply.Response.Visibility = c.wanted
			if err := r.deliverReply(reply, 0, 1); err != nil {
				t.Fatal(err)
			}
			got := r.remote.arrivals()[0]
			var create createActivity
			if err := json.Unmarshal(got.body, &create); err != nil {
				t.Fatal(err)
			}
			short := strings.NewReplacer(document.Public, "public", r.remote.actor("alice"), "alice")
			if visible := short.Replace(strings.Join(create.To, " ") + " | " + strings.Join(create.Cc, " ")); visible != c.visible || got.path != c.inbox {
				t.Errorf("%q at %s, want %q at %s", visible, got.path, c.visible, c.inbox)
			}
		})
	}
}

func TestDeliveryStatuses(t *testing.T) {
	wait := func(seconds string, code int) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.Header().Set("Retry-After", seconds); w.WriteHeader(code) }
	}
	cases := []struct {
		name    string
		answers []func(http.ResponseWriter)
		attempt int
		retry   bool
		after   time.Duration
		posts   int
	}{
		{"400", []func(http.ResponseWriter){status(400), status(400)}, 1, false, 0, 2},
		{"401 first", []func(http.ResponseWriter){status(401), status(401)}, 1, true, 0, 2},
		{"401 at last", []func(http.ResponseWriter){status(401), status(401)}, 4, false, 0, 2},
		{"403", []func(http.ResponseWriter){status(403)}, 1, false, 0, 1},
		{"404", []func(http.ResponseWriter){status(404)}, 1, false, 0, 1},
		{"405", []func(http.ResponseWriter){status(405)}, 1, false, 0, 1},
		{"410", []func(http.ResponseWriter){status(410)}, 1, false, 0, 1},
		{"413", []func(http.ResponseWriter){status(413)}, 1, false, 0, 1},
		{"408", []func(http.ResponseWriter){status(408)}, 1, true, 0, 1},
		{"429 with Retry-After", []func(http.ResponseWriter){wait("120", 429)}, 1, true, 2 * time.Minute, 1},
		{"429 for a year", []func(http.ResponseWriter){wait("31536000", 429)}, 1, true, 24 * time.Hour, 1},
		{"500", []func(http.ResponseWriter){status(500)}, 1, true, 0, 1},
		{"501", []func(http.ResponseWriter){status(501)}, 1, false, 0, 1},
		{"503 with Retry-After", []func(http.ResponseWriter){wait("30", 503)}, 9, true, 30 * time.Second, 1},
		{"302", []func(http.ResponseWriter){status(302)}, 1, false, 0, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			reply := r.reply(r.question("1", "hello"), "hi")
			r.remote.answer(c.answers...)
			err := r.deliverReply(reply, 0, c.attempt)
			got := fault.Of(err)
			if err == nil || got.Permanent == c.retry || got.RetryAfter != c.after {
				t.Errorf("error %v, permanent %v, after %v", err, got.Permanent, got.RetryAfter)
			}
			if n := len(r.remote.arrivals()); n != c.posts {
				t.Errorf("%d posts, want %d", n, c.posts)
			}
		})
	}
}

func TestSecondKnock(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hi")
	schemes := func() string {
		var names []string
		for _, got := range r.remote.arrivals() {
			names = append(names, signature.SchemeOf(got.header))
		}
		return strings.Join(names, ", then ")
	}
	r.remote.answer(status(401))
	if err := r.deliverReply(reply, 0, 1); err != nil {
		t.Fatal(err)
	}
	if got := schemes(); got != "draft-cavage, then rfc9421" {
		t.Fatalf("knocked with %s", got)
	}
	r.checkArrival(r.remote.arrivals()[1], "echo")
	r.adapter.transport.schemes = newCache[knownScheme](10) // another node, or after a restart
	if err := r.deliverReply(reply, 0, 1); err != nil || schemes() != "draft-cavage, then rfc9421, then rfc9421" {
		t.Fatalf("the scheme was not remembered: %s, %v", schemes(), err)
	}
	r.remote.answer(status(401))
	if err := r.deliverReply(reply, 0, 1); err != nil || schemes() != "draft-cavage, then rfc9421, then rfc9421, then rfc9421, then draft-cavage" {
		t.Fatalf("the way back was not found: %s, %v", schemes(), err)
	}
	r.remote.answer(status(500))
	_ = r.deliverReply(reply, 0, 1)
	if got := schemes(); got != "draft-cavage, then rfc9421, then rfc9421, then rfc9421, then draft-cavage, then draft-cavage" {
		t.Errorf("500 is no knock signal: %s", got)
	}
}

func TestMovedInbox(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hi")
	r.remote.addActor("alice", aliceKey(), func(doc map[string]any) {
		delete(doc, "endpoints")
		doc["inbox"] = r.remote.base + "/new"
	})
	r.remote.answer(status(308))
	if err := r.deliverReply(reply, 0, 1); err != nil {
		t.Fatal(err)
	}
	if got := r.remote.arrivals(); len(got) != 2 || got[1].path != "/new" {
		t.Errorf("arrivals %v", got)
	}
}

func TestPeerDown(t *testing.T) {
	r := newRig(t)
	gone := newRemoteServer(t)
	reply := r.reply(r.question("1", "hello"), "hi")
	reply.Route = json.RawMessage(strings.ReplaceAll(string(reply.Route), r.remote.base, "http://127.0.0.1:1"))
	if err := r.deliverReply(reply, 0, 1); fault.Of(err).Permanent || err == nil {
		t.Errorf("a server that is down is not retried: %v", err)
	}
	_ = gone
}

func TestDeliveryToOurselvesIsRefused(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hi")
	reply.Route = json.RawMessage(strings.ReplaceAll(string(reply.Route), r.remote.base, r.base))
	if err := r.deliverReply(reply, 0, 1); !fault.Of(err).Permanent {
		t.Errorf("error %v", err)
	}
}

// TestMentionRelay: the agent names another account, which gets the note too and is mentioned in it.
//
//contract:shows message-37
func TestMentionRelay(t *testing.T) {
	r := newRig(t)
	bob := newRemoteServer(t)
	bob.addActor("bob", malloryKey(), nil)
	bobAddress := "@bob@" + document.HostOf(bob.base)
	bob.handle("/.well-known/webfinger", func(w http.ResponseWriter, q *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"subject": q.URL.Query().Get("resource"),
			"links":   []any{map[string]string{"rel": "self", "type": activityMediaType, "href": bob.actor("bob")}},
		})
	})
	reply := r.reply(r.question("1", "hello"), "please ask "+bobAddress+", who knows")
	reply.Response.Cc = []string{bobAddress, "@echo@" + r.domain, "not an address"}
	plan, err := r.adapter.outbox.Plan(t.Context(), reply)
	if err != nil || len(plan.Destinations) != 2 || plan.Destinations[1].Address != bobAddress {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	if bob.connections.Load() != 0 {
		t.Error("Plan went to the network")
	}
	for i := range plan.Destinations {
		if err := r.deliverReply(reply, i, 1); err != nil {
			t.Fatal(err)
		}
	}
	toAlice, toBob := r.remote.arrivals()[0], bob.arrivals()[0]
	if !cmp.Equal(toAlice.body, toBob.body) || toBob.path != "/users/bob/inbox" {
		t.Errorf("two different notes, or to %s", toBob.path)
	}
	var create createActivity
	if err := json.Unmarshal(toBob.body, &create); err != nil {
		t.Fatal(err)
	}
	if !cmp.Equal(create.To, []string{r.remote.actor("alice"), bob.actor("bob")}) || len(create.Object.Tag) != 2 {
		t.Errorf("to %v, tags %v", create.To, create.Object.Tag)
	}
	if !strings.Contains(create.Object.Content, `please ask <span class="h-card" translate="no"><a href="`+bob.base+`/@bob" class="u-url mention">@<span>bob</span></a></span>, who knows`) {
		t.Errorf("content %s", create.Object.Content)
	}
	if n := bob.count("/.well-known/webfinger"); n != 1 {
		t.Errorf("resolved %d times, want 1", n)
	}
}

func TestSomebodyUnknownDoesNotHoldUpTheAnswer(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello"), "hi")
	reply.Response.To = []string{"@nobody@" + document.HostOf(r.remote.base)}
	if err := r.deliverReply(reply, 0, 1); err != nil {
		t.Errorf("to the asker: %v", err)
	}
	if err := r.deliverReply(reply, 1, 1); err == nil || fault.Of(err).Permanent {
		t.Errorf("to nobody: %v, want a retry", err)
	}
}

// TestHashtagsOfAnswers: Mastodon wants the tag and the link with its classes; what is private is not to be found.
func TestHashtagsOfAnswers(t *testing.T) {
	r := newRig(t)
	made := must(r.adapter.renderer.render(r.reply(r.question("1", "hello"), "sunny #Weather #Weather"), 1, nil, withoutAddress))
	tag := noteTag{"Hashtag", r.base + "/@echo", "#Weather"}
	link := `<a href="` + r.base + `/@echo" class="mention hashtag" rel="tag">#<span>Weather</span></a>`
	if len(made.Tag) != 2 || made.Tag[1] != tag || strings.Count(made.Content, link) != 2 {
		t.Errorf("%+v %s", made.Tag, made.Content)
	}
	private := must(r.adapter.renderer.render(r.reply(r.question("2", "psst", func(note map[string]any) { direct(r, note) }), "sunny #Weather"), 1, nil, withoutAddress))
	if len(private.Tag) != 1 || strings.Contains(private.Content, "hashtag") {
		t.Errorf("%+v %s", private.Tag, private.Content)
	}
}

// acknowledgement is what the engine says about a question that takes long.
func (r *rig) acknowledgement(in exchange.Inbound) exchange.Reply {
	ack := r.reply(in, "I am working on it.")
	ack.Notice = exchange.NoticeAck
	r.engine.replies[ack.ID] = ack
	return ack
}

// TestAcknowledgementIsADirectNote: even under a public question it is for the asker alone.
func TestAcknowledgementIsADirectNote(t *testing.T) {
	r := newRig(t, func(o *Options) { o.PublicReplies = true })
	ack := r.acknowledgement(r.question("1", "hello"))
	if got := r.adapter.AckAfter(time.Second); got != time.Second {
		t.Errorf("after %v", got)
	}
	if err := r.deliverReply(ack, 0, 1); err != nil {
		t.Fatal(err)
	}
	arrived := r.remote.arrivals()[0]
	create := asCreate(t, arrived)
	if arrived.path != "/users/alice/inbox" || !cmp.Equal(create.To, []string{r.remote.actor("alice")}) || len(create.Cc) != 0 ||
		create.Object.InReplyTo != r.remote.base+"/notes/1" {
		t.Errorf("%s at %s", arrived.body, arrived.path)
	}
	if status, _, body := r.fetch("/o/"+ack.ID, activityMediaType); status != http.StatusNotFound {
		t.Errorf("anybody reads it: %d %s", status, body)
	}
}

// TestAcknowledgementIsALike: nothing is written and nothing can be read.
func TestAcknowledgementIsALike(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Likes = func(agent string) bool { return agent == "echo" } })
	in := r.question("1", "hello")
	ack := r.acknowledgement(in)
	plan, err := r.adapter.outbox.Plan(t.Context(), ack)
	if err != nil || plan.NativeID != "" || len(plan.Destinations) != 1 {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	for attempt := range 2 {
		if err := r.deliverReply(ack, 0, attempt+1); err != nil {
			t.Fatal(err)
		}
	}
	arrived := r.remote.arrivals()
	if len(arrived) != 2 || !cmp.Equal(arrived[0].body, arrived[1].body) || arrived[0].path != "/users/alice/inbox" {
		t.Fatalf("a repeated delivery is another activity: %v", arrived)
	}
	r.checkArrival(arrived[0], "echo")
	var like likeActivity
	if err := json.Unmarshal(arrived[0].body, &like); err != nil {
		t.Fatal(err)
	}
	actor := r.base + "/agents/echo"
	want := likeActivity{document.ActivityStreams, actor + "#likes/" + ack.ID, "Like", actor, r.remote.base + "/notes/1", []string{r.remote.actor("alice")}}
	if diff := cmp.Diff(want, like); diff != "" {
		t.Error(diff)
	}
	answer := r.reply(in, "hello yourself")
	answer.ID = "01939f3e-0000-7000-8000-000000000002"
	later, err := r.adapter.outbox.Plan(t.Context(), answer)
	if err != nil || later.Destinations[0].Key != plan.Destinations[0].Key || later.NativeID == "" {
		t.Errorf("the answer goes %+v, %v; order is kept by key", later, err)
	}
	if err := r.deliverReply(answer, 0, 1); err != nil {
		t.Fatal(err)
	}
	if asCreate(t, r.remote.arrivals()[2]).Object.ID != r.base+"/o/"+answer.ID {
		t.Errorf("the answer became %s", r.remote.arrivals()[2].body)
	}
}
