package activitypub

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/normalized"
)

// TestGroupsShareActivities: of a wrapped Create only what the author's own server shows is used, and nothing is fetched
// for what is not for us.
func TestGroupsShareActivities(t *testing.T) {
	cases := []struct {
		name   string
		kind   string // of the actor who shares
		serves string // what the author's server shows; empty = nothing
		change func(note map[string]any)
		want   string
	}{
		{"confirmed", "Group", "the author's words", nil, "the author's words"},
		{"not there", "Group", "", nil, ""},
		{"shared by a person", "Person", "the author's words", nil, ""},
		{"not for us", "Group", "the author's words", func(note map[string]any) { delete(note, "cc"); delete(note, "tag") }, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			r.remote.addActor("alice", aliceKey(), func(doc map[string]any) { doc["type"] = c.kind })
			author := newRemoteServer(t)
			note := r.mentionNote("1", "what the group says")["object"].(map[string]any)
			note["id"], note["attributedTo"] = author.base+"/n/1", author.actor("alice")
			if c.change != nil {
				c.change(note)
			}
			if c.serves != "" {
				shown := map[string]any{}
				body, _ := json.Marshal(note)
				_ = json.Unmarshal(body, &shown)
				shown["content"] = c.serves
				author.serve("/n/1", shown)
			}
			r.accept(r.simple("Announce", map[string]any{
				"id": author.base + "/a/1", "type": "Create", "actor": author.actor("alice"), "object": note, "to": document.Public,
			}))
			got := strings.Join(r.texts(), "|")
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if c.change != nil && author.requests.Load() != 0 {
				t.Error("something was fetched for an activity that is not for us")
			}
			if got != "" && r.engine.All()[0].Message.Sender.Identities[0].Subject != author.actor("alice") {
				t.Errorf("sender %+v", r.engine.All()[0].Message.Sender)
			}
		})
	}
}

func TestQuotesAreRefused(t *testing.T) {
	r := newRig(t)
	r.engine.replies["0190"] = exchange.Reply{ID: "0190", TurnID: "t1", Agent: "echo"}
	for _, object := range []string{r.base + "/o/0190", r.base + "/o/0191", "https://elsewhere.example/1"} {
		request := r.simple("QuoteRequest", object)
		request["instrument"] = r.remote.base + "/notes/quote"
		r.want(r.deliver(request).sign(), http.StatusAccepted, "")
	}
	jobs := r.engine.takeJobs(jobActivity)
	if len(jobs) != 1 {
		t.Fatalf("%q", jobs)
	}
	var job laterJob
	var reject struct {
		Type   string
		Object struct{ Type, ID, Object, Instrument string }
	}
	if err := json.Unmarshal([]byte(jobs[0]), &job); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(job.Activity, &reject); err != nil || reject.Type != "Reject" || reject.Object.Type != "QuoteRequest" ||
		reject.Object.Object != r.base+"/o/0190" || reject.Object.Instrument != r.remote.base+"/notes/quote" {
		t.Errorf("%s, %v", job.Activity, err)
	}
}

// FuzzNote: whatever a note holds, what becomes of it keeps the message contract.
func FuzzNote(f *testing.F) {
	r := newRig(f)
	us := r.base + "/agents/echo"
	for _, note := range []string{
		`{"id":"https://m.example/1","type":"Note","content":"<p>hi</p>","to":"as:Public","tag":{"type":"Mention","href":"` + us + `"}}`,
		`{"id":"https://m.example/1","type":["Question"],"contentMap":{"de":"x"},"oneOf":[{"name":"a","replies":{"totalItems":1e9}}],"closed":true}`,
		`{"id":"https://m.example/1","type":"Page","name":"t","summaryMap":{"x":"y"},"image":{"url":[{"href":"https://f/x"}]},"attachment":["https://f.example",[[]],1]}`,
		`{"id":"https://m.example/1","type":"Note","content":"x","tag":[{"type":"Emoji","name":":x:","icon":{"url":"https://f/e"}},{"type":"Link","rel":["a"],"mediaType":"application/activity+json","href":"https://f/q"}],"context":"tag:m.example,1:2","updated":"2026-01-01T00:00:00Z"}`,
	} {
		f.Add([]byte(note))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		note, err := document.Parse(body)
		if err != nil {
			return
		}
		q, err := r.adapter.notes.readNote(document.Object{}, note, "https://m.example/users/a")
		if err != nil || q == nil {
			return
		}
		q.request = true
		q.decide("")
		agent := r.profile("echo")
		parts := r.adapter.notes.parts(q, agent)
		name := r.adapter.notes.ownThread("echo", q)
		if len(name) > 2048 || !utf8.ValidString(name) {
			t.Errorf("thread %q", name)
		}
		profile := new(normalized.SenderProfile)
		if err := q.addFacts(profile); err != nil {
			t.Error(err)
		}
		if len(parts) == 0 {
			return
		}
		limits := normalized.DefaultLimits()
		limits.AllowHTTP = true
		in, err := r.adapter.notes.normalize(t.Context(), &incoming{by: proven{actor: &remoteActor{Actor: document.Actor{ID: q.actor, Username: "a", Inbox: q.actor + "/inbox"}}}}, withActivity(q), agent)
		if err != nil || in == nil {
			t.Fatal(err)
		}
		in.Message.Clean()
		if err := normalized.Validate(in.Message, limits); err != nil && len(q.note) < 1000 {
			t.Errorf("%v\n%s", err, body)
		}
	})
}

func withActivity(q *inboundNote) *inboundNote {
	q.activity = "https://m.example/activity/1"
	return q
}

// withdrawn demands that the deletion of an answer tells the servers that quote it, once for all its deliveries.
func (r *rig) withdrawn(reply exchange.Reply, stamp string) {
	r.t.Helper()
	plan, err := r.adapter.outbox.Plan(r.t.Context(), reply)
	if err != nil {
		r.t.Fatal(err)
	}
	for range 2 {
		delivery := exchange.Delivery{ID: "d", Attempt: 1, Reply: reply, NativeID: plan.NativeID, Destination: plan.Destinations[0], Action: exchange.ActionDelete}
		if _, err := r.adapter.outbox.Deliver(r.t.Context(), delivery); err != nil {
			r.t.Error(err)
		}
	}
	jobs := r.engine.takeJobs(jobActivity)
	var job laterJob
	var said struct {
		ID, Type, Actor, Object string
		To                      []string
	}
	if len(jobs) != 1 || json.Unmarshal([]byte(jobs[0]), &job) != nil || json.Unmarshal(job.Activity, &said) != nil {
		r.t.Fatalf("%q", jobs)
	}
	alice := r.remote.actor("alice")
	if said.Type != "Delete" || said.Object != stamp || said.ID != stamp+"#delete" || said.Actor != r.base+"/agents/echo" ||
		len(said.To) != 1 || said.To[0] != alice || job.Inbox != alice+"/inbox" || job.Actor != alice {
		r.t.Errorf("%+v to %s", said, job.Inbox)
	}
}

// TestQuoteOfALaterPost: the stamp names the post of the chain that is quoted; one that is not there counts as the first.
func TestQuoteOfALaterPost(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Profile = func(string) Profile { return Profile{QuotesByFans: true} } })
	reply := r.reply(r.question("1", "hello"), "hi")
	reply.Posts = 2
	r.engine.replies[reply.ID] = reply
	r.accept(r.simple("Follow", r.base+"/agents/echo"))
	first := r.base + "/o/" + reply.ID
	for quoted, want := range map[string]string{first: first, first + "/2": first + "/2", first + "/3": first} {
		r.engine.takeJobs(jobActivity)
		request := r.simple("QuoteRequest", quoted)
		request["id"], request["instrument"] = r.remote.base+"/requests/"+quoted[len(first):], r.remote.base+"/notes/quote"
		r.accept(request)
		var job laterJob
		var said struct {
			Result string
			Object struct{ Object string }
		}
		if jobs := r.engine.takeJobs(jobActivity); len(jobs) != 1 || json.Unmarshal([]byte(jobs[0]), &job) != nil || json.Unmarshal(job.Activity, &said) != nil {
			t.Fatalf("%q", jobs)
		}
		_, _, body := r.fetch(strings.TrimPrefix(said.Result, r.base), activityMediaType)
		if said.Object.Object != want || !strings.Contains(body, `"interactionTarget":"`+want+`"`) {
			t.Errorf("%s: %+v %s", quoted, said, body)
		}
	}
}

// TestQuotesByFollowers: a follower gets a stamp that is served until the answer is deleted; no one else does.
func TestQuotesByFollowers(t *testing.T) {
	for _, follows := range []bool{true, false} {
		r := newRig(t, func(o *Options) { o.Profile = func(string) Profile { return Profile{QuotesByFans: true} } })
		reply := r.reply(r.question("1", "hello"), "hi")
		r.engine.replies[reply.ID] = reply
		if follows {
			r.accept(r.simple("Follow", r.base+"/agents/echo"))
			r.engine.takeJobs(jobActivity)
		}
		request := r.simple("QuoteRequest", r.base+"/o/"+reply.ID)
		request["instrument"] = r.remote.base + "/notes/quote"
		r.accept(request)
		var job laterJob
		var said struct{ Type, Result string }
		jobs := r.engine.takeJobs(jobActivity)
		if len(jobs) != 1 || json.Unmarshal([]byte(jobs[0]), &job) != nil || json.Unmarshal(job.Activity, &said) != nil {
			t.Fatalf("%q", jobs)
		}
		if !follows {
			if said.Type != "Reject" || said.Result != "" {
				t.Errorf("%+v", said)
			}
			continue
		}
		path := strings.TrimPrefix(said.Result, r.base)
		status, _, body := r.fetch(path, activityMediaType)
		if said.Type != "Accept" || status != http.StatusOK || !strings.Contains(body, `"interactingObject":"`+r.remote.base+`/notes/quote"`) ||
			!strings.Contains(body, `"interactionTarget":"`+r.base+"/o/"+reply.ID+`"`) {
			t.Errorf("%+v: %d %s", said, status, body)
		}
		reply.DeletedAt = reply.CreatedAt
		r.engine.replies[reply.ID] = reply
		if status, _, _ := r.fetch(path, activityMediaType); status != http.StatusGone {
			t.Errorf("the stamp outlives the answer: %d", status)
		}
		r.withdrawn(reply, said.Result)
	}
}
