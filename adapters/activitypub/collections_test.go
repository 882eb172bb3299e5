package activitypub

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
)

// keep stores a reply under an id of its own and delivers it.
func (r *rig) keep(id string, reply exchange.Reply) exchange.Reply {
	r.t.Helper()
	reply.ID = id
	r.engine.replies[id] = reply
	if err := r.deliverReply(reply, 0, 1); err != nil {
		r.t.Fatal(err)
	}
	return reply
}

// repliesTo reads the collection of a note as other servers do: the first page inside it and the page at its own address say
// the same.
func (r *rig) repliesTo(path string) []string {
	r.t.Helper()
	var whole struct {
		Type, ID string
		First    struct {
			Type, ID, PartOf string
			Items            []string
		}
	}
	var page struct {
		Type, PartOf string
		Items        []string
	}
	for address, into := range map[string]any{path: &whole, path + "?page=true": &page} {
		status, header, body := r.fetch(address, activityMediaType)
		if status != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), activityMediaType) || json.Unmarshal([]byte(body), into) != nil {
			r.t.Fatalf("%s: %d %s", address, status, body)
		}
	}
	if whole.Type != "Collection" || whole.ID != r.base+path || whole.First.Type != "CollectionPage" || whole.First.PartOf != whole.ID ||
		whole.First.ID != r.base+path+"?page=true" || page.Type != "CollectionPage" || page.PartOf != whole.ID || !slices.Equal(page.Items, whole.First.Items) {
		r.t.Errorf("%s: %+v, its page %+v", path, whole, page)
	}
	return page.Items
}

// TestRepliesOfANote: what people asked about an answer and got answered is listed, as long as it is public.
func TestRepliesOfANote(t *testing.T) {
	excluded := ""
	r := newRig(t, func(o *Options) { o.HostAllowed = func(host string) bool { return host != excluded } })
	first := r.keep("01939f3e-0000-7000-8000-000000000001", r.reply(r.question("1", "hello"), "hi"))
	path := "/o/" + first.ID + "/replies"
	if items := r.repliesTo(path); len(items) != 0 {
		t.Errorf("before anybody answered: %v", items)
	}
	to := func(parent string) func(map[string]any) {
		return func(note map[string]any) { note["inReplyTo"] = parent }
	}
	open := r.question("2", "and you?", to(r.base+"/o/"+first.ID))
	if items := r.repliesTo(path); len(items) != 0 {
		t.Errorf("a question that is not answered: %v", items)
	}
	second := r.keep("01939f3e-0000-7000-8000-000000000002", r.reply(open, "fine"))
	r.keep("01939f3e-0000-7000-8000-000000000003", r.reply(r.question("3", "psst", to(r.base+"/o/"+first.ID), func(note map[string]any) { direct(r, note) }), "psst"))
	r.keep("01939f3e-0000-7000-8000-000000000004", r.reply(r.question("4", "about another post", to(r.base+"/o/"+first.ID+"/2")), "ok"))
	want := []string{r.remote.base + "/notes/2"}
	if items := r.repliesTo(path); !slices.Equal(items, want) {
		t.Errorf("%v, want %v", items, want)
	}

	excluded = document.HostOf(r.remote.base)
	if items := r.repliesTo(path); len(items) != 0 {
		t.Errorf("of a host that is excluded: %v", items)
	}
	excluded = ""
	second.Message.Parts = nil // the engine erases what was taken back
	r.engine.replies[second.ID] = second
	if items := r.repliesTo(path); len(items) != 0 {
		t.Errorf("of a question that was taken back: %v", items)
	}

	first.DeletedAt = time.Now()
	r.engine.replies[first.ID] = first
	if status, _, _ := r.fetch(path, activityMediaType); status != http.StatusGone {
		t.Errorf("of a note that was taken back: %d", status)
	}
}

// TestRepliesOfAChain: each post names the next one, in the note and in its collection.
func TestRepliesOfAChain(t *testing.T) {
	r := newRig(t, func(o *Options) { o.PostLength = 20 })
	reply := r.reply(r.question("1", "tell me"), "the first paragraph\n\nthe second paragraph")
	reply.Posts = 2
	r.engine.replies[reply.ID] = reply
	next := r.base + "/o/" + reply.ID + "/2"
	for path, want := range map[string][]string{"/o/" + reply.ID: {next}, "/o/" + reply.ID + "/2": {}} {
		var made note
		_, _, body := r.fetch(path, activityMediaType)
		if err := json.Unmarshal([]byte(body), &made); err != nil || made.Replies == nil || made.Replies.ID != r.base+path+"/replies" || !slices.Equal(made.Replies.First.Items, want) {
			t.Errorf("%s: %v %s", path, err, body)
		}
		if items := r.repliesTo(path + "/replies"); !slices.Equal(items, want) {
			t.Errorf("%s: %v, want %v", path, items, want)
		}
	}
}

// TestRepliesOfPrivateNotes: there is no such collection for any reader, and secure mode holds for the open ones.
func TestRepliesOfPrivateNotes(t *testing.T) {
	r := newRig(t)
	private := r.reply(r.question("1", "psst", func(note map[string]any) { direct(r, note) }), "psst")
	made := must(r.adapter.renderer.render(private, 1, nil, withoutAddress))
	if made.Replies != nil {
		t.Errorf("a private note has replies: %+v", made.Replies)
	}
	for _, path := range []string{"/o/" + private.ID + "/replies", "/o/" + private.ID + "/replies?page=true", "/o/unknown/replies", "/o/" + private.ID + "/7/replies"} {
		if status, _, body := r.fetch(path, activityMediaType); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	d := r.deliver("")
	d.method, d.path, d.body, d.covered = http.MethodGet, "/o/"+private.ID+"/replies", nil, []string{"(request-target)", "host", "date"}
	r.want(d.sign(), http.StatusNotFound, "")

	secure := newRig(t, func(o *Options) { o.AuthorizedFetch = true })
	open := secure.reply(secure.question("1", "hello"), "hi")
	if status, _, _ := secure.fetch("/o/"+open.ID+"/replies", activityMediaType); status != http.StatusUnauthorized {
		t.Errorf("in secure mode without a signature: %d", status)
	}
	d = secure.deliver("")
	d.method, d.path, d.body, d.covered = http.MethodGet, "/o/"+open.ID+"/replies", nil, []string{"(request-target)", "host", "date"}
	secure.want(d.sign(), http.StatusOK, "CollectionPage")
}

// TestRepliesWithoutStore: what cannot be remembered is tried again before anything is sent, and what cannot be read is no
// empty list.
func TestRepliesWithoutStore(t *testing.T) {
	r := newRig(t)
	reply := r.reply(r.question("1", "hello", func(note map[string]any) { note["inReplyTo"] = r.base + "/o/parent" }), "hi")
	r.state.Fail(fault.New(fault.Unavailable, "down"))
	if err := r.deliverReply(reply, 0, 1); err == nil || fault.Of(err).Permanent || len(r.remote.arrivals()) != 0 {
		t.Errorf("%v, %d arrivals", err, len(r.remote.arrivals()))
	}
	if status, _, _ := r.fetch("/o/"+reply.ID+"/replies", activityMediaType); status != http.StatusServiceUnavailable {
		t.Errorf("status %d", status)
	}
}

// TestConversationWithoutAName: where the question has no context our answer names the conversation, what answers it inherits
// the name, and the name leads to the posts.
func TestConversationWithoutAName(t *testing.T) {
	r := newRig(t)
	publicly := func(note map[string]any) { note["to"] = []string{document.Public, r.base + "/agents/echo"} }
	first := r.reply(r.question("1", "hello", publicly), "hi")
	delete(r.engine.replies, first.ID)
	first = r.keep("01939f3e-0000-7000-8000-00000000000b", first)
	named := asCreate(t, r.remote.arrivals()[0]).Object.Thread
	if named != r.base+"/contexts/"+first.TurnID {
		t.Fatalf("the conversation is %q", named)
	}

	post := r.base + "/o/" + first.ID
	r.engine.entries["echo "+post] = exchange.ThreadEntry{TurnID: first.TurnID, ThreadID: first.Message.ThreadID, Message: first.Message, Route: first.Route}
	in := r.question("2", "and now?", publicly, func(note map[string]any) { note["inReplyTo"] = post })
	second := r.reply(in, "later")
	delete(r.engine.replies, second.ID)
	second.TurnID = "01939f3d-0000-7000-8000-00000000000c"
	second = r.keep("01939f3e-0000-7000-8000-00000000000d", second)
	if inherited := asCreate(t, r.remote.arrivals()[1]).Object.Thread; inherited != named {
		t.Errorf("the second answer is in %q, the first in %q", inherited, named)
	}
	if err := r.adapter.outbox.keepFollowUp(t.Context(), second); err != nil {
		t.Fatal(err)
	}

	var shown struct {
		ID, Type     string
		TotalItems   int
		OrderedItems []string
	}
	status, _, body := r.fetch(strings.TrimPrefix(named, r.base), activityMediaType)
	if err := json.Unmarshal([]byte(body), &shown); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %s", named, status, body)
	}
	want := []string{r.remote.base + "/notes/1", post, r.remote.base + "/notes/2", r.base + "/o/" + second.ID}
	if shown.ID != named || shown.Type != "OrderedCollection" || shown.TotalItems != len(want) || !slices.Equal(shown.OrderedItems, want) {
		t.Errorf("the conversation shows %s", body)
	}
	if status, _, _ := r.fetch("/contexts/unknown", activityMediaType); status != http.StatusNotFound {
		t.Errorf("an unknown conversation: %d", status)
	}
}

// TestPrivateConversationIsShownToNobody: its name leads nowhere.
func TestPrivateConversationIsShownToNobody(t *testing.T) {
	r := newRig(t)
	in := r.question("1", "hello", func(note map[string]any) { note["to"], note["cc"] = []string{r.base + "/agents/echo"}, []string{} })
	reply := r.reply(in, "hi")
	if status, _, body := r.fetch("/contexts/"+reply.TurnID, activityMediaType); status != http.StatusNotFound {
		t.Errorf("%d %s", status, body)
	}
}

// TestQuestionFoundByItsPage: what people copy from their browser is the page of a post, not its IRI.
func TestQuestionFoundByItsPage(t *testing.T) {
	r := newRig(t)
	page := r.remote.base + "/@alice/1"
	in := r.question("1", "hello", func(note map[string]any) { note["url"] = page })
	r.question("2", "mine now", func(note map[string]any) { note["url"] = page })
	r.question("3", "elsewhere", func(note map[string]any) { note["url"] = "https://elsewhere.example/@alice/3" })

	for address, want := range map[string]string{
		page: in.Message.ID, r.remote.base + "/notes/1": in.Message.ID, "https://elsewhere.example/@alice/3": "", r.remote.base + "/notes/9": "",
	} {
		activity, found, err := ActivityOf(t.Context(), r.state, address)
		if err != nil || activity != want || found != (want != "") {
			t.Errorf("%s is of %q, %v, want %q", address, activity, err, want)
		}
	}
}

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
	if err := r.adapter.putJSON(t.Context(), FollowerNamespace+"echo", bob, follower{Inbox: bob + "/inbox", SharedInbox: r.remote.base + "/inbox"}); err != nil {
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
			if LaterTo(waiting[0].Payload).Key == "" {
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
