package activitypub

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/normalized"
)

// elder serves a note of another author under /notes/<id> that answers another one.
func (r *rig) elder(id, actor, parent string, change func(note map[string]any)) string {
	iri := r.remote.base + "/notes/" + id
	note := map[string]any{
		"id": iri, "type": "Note", "attributedTo": r.remote.actor(actor), "content": "<p>" + id + "</p>", "to": []string{document.Public},
		"published": "2026-11-20T10:00:00Z",
	}
	if parent != "" {
		note["inReplyTo"] = parent
	}
	if change != nil {
		change(note)
	}
	r.remote.serve("/notes/"+id, note)
	return iri
}

// turnOf makes the engine's row of a question.
func turnOf(in exchange.Inbound) exchange.TurnRecord {
	return exchange.TurnRecord{ID: "t", Agent: "echo", ThreadID: in.Message.ThreadID, Message: in.Message, Route: in.Route}
}

func (r *rig) ancestors(in exchange.Inbound) (texts []string) {
	r.t.Helper()
	turn := turnOf(in)
	if !r.adapter.notes.Late(turn) {
		r.t.Fatal("the message is not late")
	}
	found, err := r.adapter.notes.Ancestors(r.t.Context(), turn)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, one := range found {
		message := in.Message
		message.History = []normalized.HistoricalMessage{one}
		limits := normalized.DefaultLimits()
		limits.AllowHTTP = true
		if err := normalized.Validate(message, limits); err != nil {
			r.t.Error(err)
		}
		texts = append(texts, one.Sender.Address[:strings.LastIndexByte(one.Sender.Address, '@')]+" "+normalized.PlainText(one.Parts))
	}
	return texts
}

func TestAncestorsOldestFirst(t *testing.T) {
	r := newRig(t)
	first := r.elder("first", "bob", "", nil)
	second := r.elder("second", "carol", first, func(note map[string]any) { note["to"], note["cc"] = []string{}, "as:Public" })
	in := r.question("3", "what do you think?", func(note map[string]any) { note["inReplyTo"] = second })
	if got, want := r.ancestors(in), []string{"@bob first", "@carol second"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if r.remote.count("/notes/first") != 1 || r.remote.count("/users/bob") != 0 {
		t.Error("more was fetched than the notes")
	}
	found, _ := r.adapter.notes.Ancestors(t.Context(), turnOf(in))
	if found[0].Sender.Verified || found[0].Timestamp.Format("2006") != "2026" {
		t.Errorf("%+v", found[0])
	}
}

// TestNothingIsFetchedInTheInbox: the sender does not wait for third servers, and cannot make us ask them at once.
func TestNothingIsFetchedInTheInbox(t *testing.T) {
	r := newRig(t)
	parent := r.elder("first", "bob", "", nil)
	r.question("3", "hello", func(note map[string]any) { note["inReplyTo"] = parent })
	if r.remote.count("/notes/first") != 0 {
		t.Error("the parent was fetched in the request")
	}
}

func TestWhatIsNotLate(t *testing.T) {
	r := newRig(t)
	first := r.question("1", "hello")
	r.store(first, first.Message.ID)
	for id, parent := range map[string]string{"2": "", "3": r.base + "/o/0190", "4": r.remote.base + "/notes/1", "5": "urn:x:1"} {
		in := r.question(id, "hello", func(note map[string]any) {
			if parent != "" {
				note["inReplyTo"] = parent
			}
		})
		if r.adapter.notes.Late(turnOf(in)) {
			t.Errorf("%s is late", parent)
		}
		if id == "4" && in.Message.ThreadID != first.Message.ThreadID {
			t.Errorf("the note that it answers is here, and its thread is %s", in.Message.ThreadID)
		}
	}
}

// TestWalksThatEnd: each of these notes is where a walk stops, so that what is behind it is not asked for.
func TestWalksThatEnd(t *testing.T) {
	cases := map[string]func(r *rig, note map[string]any){
		"not public":              func(r *rig, note map[string]any) { note["to"] = []string{r.remote.actor("carol")} },
		"for followers":           func(r *rig, note map[string]any) { note["to"] = []string{r.remote.actor("bob") + "/followers"} },
		"by an actor elsewhere":   func(_ *rig, note map[string]any) { note["attributedTo"] = "https://elsewhere.example/users/bob" },
		"by nobody":               func(_ *rig, note map[string]any) { delete(note, "attributedTo") },
		"no note":                 func(_ *rig, note map[string]any) { note["type"] = "Event" },
		"another id":              func(_ *rig, note map[string]any) { note["id"] = "https://elsewhere.example/notes/middle" },
		"larger than 256 KiB":     func(_ *rig, note map[string]any) { note["content"] = strings.Repeat("x", maxAncestorBytes) },
		"says nothing":            func(_ *rig, note map[string]any) { note["content"] = "" },
		"answers what answers it": func(r *rig, note map[string]any) { note["inReplyTo"] = r.remote.base + "/notes/middle" },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			first := r.elder("first", "bob", "", nil)
			middle := r.elder("middle", "bob", first, func(note map[string]any) { change(r, note) })
			in := r.question("3", "hello", func(note map[string]any) { note["inReplyTo"] = middle })
			got := r.ancestors(in)
			if len(got) > 1 || len(got) == 1 && name != "answers what answers it" || r.remote.count("/notes/first") != 0 {
				t.Errorf("%q", got)
			}
		})
	}
	for _, code := range []int{401, 403, 404, 410, 500} {
		r := newRig(t)
		r.remote.handle("/notes/middle", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		in := r.question("3", "hello", func(note map[string]any) { note["inReplyTo"] = r.remote.base + "/notes/middle" })
		if got := r.ancestors(in); len(got) != 0 || r.remote.count("/notes/middle") != 1 {
			t.Errorf("%d: %q", code, got)
		}
	}
}

// TestWalkBudget: at most ten notes of one host, and twenty of a thread.
func TestWalkBudget(t *testing.T) {
	r := newRig(t)
	others := []*remoteServer{newRemoteServer(t), newRemoteServer(t), newRemoteServer(t)}
	parent := ""
	for i := range 60 {
		server := others[i%3]
		note := map[string]any{
			"id": fmt.Sprintf("%s/n/%d", server.base, i), "type": "Note", "attributedTo": server.actor("bob"), "content": fmt.Sprint(i), "to": document.Public,
		}
		if parent != "" {
			note["inReplyTo"] = parent
		}
		server.serve(fmt.Sprintf("/n/%d", i), note)
		parent = note["id"].(string)
	}
	if got := r.ancestors(r.question("1", "hello", func(note map[string]any) { note["inReplyTo"] = parent })); len(got) != maxAncestorDepth {
		t.Errorf("%d notes", len(got))
	}
	var last string
	for i := range 30 {
		last = r.elder(fmt.Sprintf("chain%d", i), "bob", last, nil)
	}
	if got := r.ancestors(r.question("2", "hello", func(note map[string]any) { note["inReplyTo"] = last })); len(got) != maxAncestorsOfHost {
		t.Errorf("%d notes of one host", len(got))
	}
}

// TestPrivateAncestors: private talk enters only the private talk of those who were in it.
func TestPrivateAncestors(t *testing.T) {
	r := newRig(t)
	alice, echo := r.remote.actor("alice"), r.base+"/agents/echo"
	private := func(to ...string) func(map[string]any) { return func(note map[string]any) { note["to"] = to } }
	cases := []struct {
		name, author string
		to           []string
		public       bool
		want         int
	}{
		{"hers, in private", "alice", []string{r.remote.actor("bob")}, false, 1},
		{"hers, in public", "alice", []string{r.remote.actor("bob")}, true, 0},
		{"to both, in private", "bob", []string{alice, echo}, false, 1},
		{"to both, in public", "bob", []string{alice, echo}, true, 0},
		{"to us alone", "bob", []string{echo}, false, 0},
		{"to her alone", "bob", []string{alice}, false, 0},
		{"to nobody", "bob", nil, false, 0},
	}
	for i, c := range cases {
		elder := r.elder(fmt.Sprint("elder", i), c.author, "", private(c.to...))
		in := r.question(fmt.Sprint(100+i), "hello", func(note map[string]any) {
			note["inReplyTo"] = elder
			if !c.public {
				direct(r, note)
			}
		})
		if got := r.ancestors(in); len(got) != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}

// TestStoreBeforeNetwork: what is here is not asked for, and private threads stay apart.
func TestStoreBeforeNetwork(t *testing.T) {
	r := newRig(t)
	here := r.question("1", "said before")
	r.store(here, here.Message.ID)
	answered := r.reply(here, "our answer")
	answered.TurnID = "t"
	r.engine.replies[answered.ID] = answered
	between := r.elder("between", "bob", r.base+"/o/"+answered.ID, nil)
	in := r.question("3", "and now?", func(note map[string]any) { note["inReplyTo"] = between })
	if got, want := r.ancestors(in), []string{"@alice said before", "@echo our answer", "@bob between"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if r.remote.count("/notes/1") != 0 {
		t.Error("a stored note was fetched")
	}
	secret := r.question("5", "my secret", func(note map[string]any) { direct(r, note) })
	r.store(secret, secret.Message.ID)
	public := r.elder("public", "bob", r.remote.base+"/notes/5", nil)
	if got := r.ancestors(r.question("6", "hm", func(note map[string]any) { note["inReplyTo"] = public })); !slices.Equal(got, []string{"@bob public"}) {
		t.Errorf("private talk entered a public thread: %q", got)
	}
}

func TestAddressesOfAncestors(t *testing.T) {
	r := newRig(t)
	first := r.elder("first", "1234", "", nil)
	second := r.elder("second", "carol", first, func(note map[string]any) {
		note["tag"] = []any{map[string]any{"type": "Mention", "href": r.remote.actor("1234"), "name": "@bob"}}
	})
	in := r.question("3", "hello", func(note map[string]any) { note["inReplyTo"] = second })
	if got, want := r.ancestors(in), []string{"@bob first", "@carol second"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
