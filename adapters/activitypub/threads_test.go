package activitypub

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

func TestReplyIsNeverWider(t *testing.T) {
	levels := []string{normalized.VisibilityPublic, normalized.VisibilityUnlisted, normalized.VisibilityFollowers, normalized.VisibilityDirect}
	rapid.Check(t, func(t *rapid.T) {
		question := rapid.SampledFrom(levels).Draw(t, "question")
		wanted := rapid.SampledFrom(append(levels, "", "nonsense")).Draw(t, "wanted")
		publicReplies := rapid.Bool().Draw(t, "public replies")
		reply := narrowedVisibility(question, wanted, publicReplies)
		if reach[reply] == 0 || reach[reply] > reach[question] {
			t.Errorf("%s was answered %s", question, reply)
		}
		if reach[wanted] > 0 && reach[reply] > reach[wanted] {
			t.Errorf("the agent wanted %s and got %s", wanted, reply)
		}
		if reply == normalized.VisibilityFollowers {
			t.Error("our followers are not theirs")
		}
	})
}

// note sends one more note and returns its thread.
func (r *rig) threadOf(id string, change func(note map[string]any)) string {
	return r.question(id, "hello", change).Message.ThreadID
}

func direct(r *rig, note map[string]any) {
	note["to"], note["cc"] = []string{r.base + "/agents/echo"}, nil
}

//contract:shows message-2 message-43
func TestThreads(t *testing.T) {
	r := newRig(t)
	context := func(name string) func(map[string]any) { return func(n map[string]any) { n["context"] = name } }
	conversation := func(n map[string]any) { n["conversation"] = "tag:127.0.0.1,2026:1" }
	alone := r.threadOf("1", func(map[string]any) {})
	named := r.threadOf("2", context(r.remote.base+"/contexts/1"))
	tagged := r.threadOf("3", conversation)
	if got := r.threadOf("4", func(n map[string]any) { conversation(n); context(r.remote.base + "/contexts/1")(n) }); got != named {
		t.Errorf("context counts before conversation: %s, want %s", got, named)
	}
	if got := r.threadOf("5", conversation); got != tagged {
		t.Errorf("conversation: %s, want %s", got, tagged)
	}
	private := r.threadOf("6", func(n map[string]any) { direct(r, n); context(r.remote.base + "/contexts/1")(n) })
	apart := []string{alone, named, tagged, private, r.threadOf("7", context("not an iri")), r.threadOf("8", context("https://m.example/"+strings.Repeat("x", 1000)))}
	slices.Sort(apart)
	if len(slices.Compact(apart)) != 6 {
		t.Errorf("two conversations are one: %q", apart)
	}
}

// TestForeignConversations: a conversation that another server named joins no thread but the sender's own.
//
//contract:shows message-43
func TestForeignConversations(t *testing.T) {
	r := newRig(t)
	cases := map[string]struct {
		note   map[string]any
		shared bool // the name counts for everyone
	}{
		"1": {map[string]any{"context": "https://m.example/c/1"}, false},
		"2": {map[string]any{"context": "https://m.example/c/1", "inReplyTo": "https://other.example/n/1"}, false},
		"3": {map[string]any{"context": "https://m.example/c/1", "inReplyTo": "https://m.example/n/1"}, true},
		"4": {map[string]any{"conversation": "tag:m.example,2026:1"}, false},
		"5": {map[string]any{"conversation": "tag:m.example,2026:1", "inReplyTo": "https://m.example/n/1"}, true},
		"6": {map[string]any{"conversation": "tag:notm.example,2026:1", "inReplyTo": "https://m.example/n/1"}, false},
	}
	for id, c := range cases {
		got := r.threadOf(id, func(n map[string]any) {
			maps.Copy(n, c.note)
		})
		name := cmp.Or(c.note["context"], c.note["conversation"]).(string)
		owner := r.adapter.notes.principalOf(r.remote.actor("alice"))
		if c.shared {
			owner = ""
		}
		if want := exchange.ConversationID(ChannelName, "echo", owner, "open "+name); got != want {
			t.Errorf("%v: %s, want %s", c.note, got, want)
		}
	}
}

// store keeps a question as the parent that its reply's note names.
func (r *rig) store(in exchange.Inbound, native string) {
	r.engine.entries["echo "+native] = exchange.ThreadEntry{
		TurnID: "t", ThreadID: in.Message.ThreadID, Message: in.Message, Route: in.Route,
	}
}

// TestNobodyJoinsAPrivateThread: context and inReplyTo are claims. They must never put one person's direct
// conversation, or the public thread's readers, into another's history.
func TestNobodyJoinsAPrivateThread(t *testing.T) {
	r := newRig(t)
	claimed := r.remote.base + "/contexts/secret"
	secret := r.question("1", "my secret", func(n map[string]any) { direct(r, n); n["context"] = claimed })
	r.store(secret, r.base+"/o/01")
	private := secret.Message.ThreadID

	if got := r.threadOf("2", func(n map[string]any) { direct(r, n); n["inReplyTo"] = r.base + "/o/01" }); got != private {
		t.Errorf("alice's own direct answer left the thread: %s", got)
	}
	if got := r.threadOf("3", func(n map[string]any) { n["inReplyTo"] = r.base + "/o/01" }); got == private {
		t.Error("a public note joined a private thread")
	}
	if got := r.threadOf("4", func(n map[string]any) { n["context"] = private }); got == private {
		t.Error("a private thread was named from outside")
	}
	public := r.question("5", "hello all", func(n map[string]any) { n["context"] = r.remote.base + "/contexts/open" })
	r.store(public, r.base+"/o/02")
	if got := r.threadOf("6", func(n map[string]any) { direct(r, n); n["inReplyTo"] = r.base + "/o/02" }); got == public.Message.ThreadID {
		t.Error("a direct note joined a public thread")
	}
	if got := r.threadOf("7", func(n map[string]any) { n["inReplyTo"] = r.base + "/o/02" }); got != public.Message.ThreadID {
		t.Errorf("a public answer left the public thread: %s", got)
	}

	r.remote.addActor("mallory", malloryKey(), nil)
	for id, change := range map[string]func(map[string]any){
		"8": func(n map[string]any) { direct(r, n); n["context"] = claimed },
		"9": func(n map[string]any) { direct(r, n); n["inReplyTo"] = r.base + "/o/01" },
	} {
		activity := r.mentionNote(id, "tell me")
		change(activity["object"].(map[string]any))
		activity["actor"] = r.remote.actor("mallory")
		activity["object"].(map[string]any)["attributedTo"] = r.remote.actor("mallory")
		d := r.deliver(activity)
		d.keyID, d.key = r.remote.actor("mallory")+"#main-key", malloryKey()
		r.want(d.sign(), 202, "")
		taken := r.engine.All()
		if got := taken[len(taken)-1].Message.ThreadID; got == private {
			t.Errorf("mallory joined alice's thread with note %s", id)
		}
	}
}

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
		texts = append(texts, one.Sender.Address.String()[:strings.LastIndexByte(one.Sender.Address.String(), '@')]+" "+normalized.PlainText(one.Parts))
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
		"no note":                 func(_ *rig, note map[string]any) { note["type"] = "Place" },
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
		if got := r.ancestors(in); len(got) != 0 || r.remote.count("/notes/middle") > 3 {
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

// TestAddressesOfAncestors: whose words a fetched note has is what WebFinger has confirmed, else the id of its actor. Neither a mention
// of another note nor the name that the actor gave itself decides, and nobody's proof came with it.
func TestAddressesOfAncestors(t *testing.T) {
	r := newRig(t)
	host := document.HostOf(r.remote.base)
	confirmed, _ := json.Marshal(checkedAddress{Address: "@bob@" + host, Status: addressConfirmed})
	stated, _ := json.Marshal(checkedAddress{Address: "@boss@" + host, Status: addressUnchecked})
	for actor, known := range map[string][]byte{"1234": confirmed, "eve": stated} {
		if err := r.state.Put(t.Context(), addressNamespace, r.remote.actor(actor), known, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	r.remote.addActor("eve", malloryKey(), func(doc map[string]any) { doc["preferredUsername"] = "boss" })
	if _, err := r.adapter.actors.actor(t.Context(), r.remote.actor("eve")); err != nil {
		t.Fatal(err)
	}

	first := r.elder("first", "1234", "", nil)
	second := r.elder("second", "eve", first, nil)
	third := r.elder("third", "mallory", second, nil)
	mention := func(actor, name string) map[string]any {
		return map[string]any{"type": "Mention", "href": r.remote.actor(actor), "name": name}
	}
	in := r.question("4", "as the boss said above", func(note map[string]any) {
		note["inReplyTo"] = third
		note["tag"] = []any{note["tag"].([]any)[0], mention("mallory", "@boss@corp.example"), mention("eve", "@boss"), mention("1234", "@boss")}
	})
	if got, want := r.ancestors(in), []string{"@bob first", "@eve second", "@mallory third"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	found, _ := r.adapter.notes.Ancestors(t.Context(), turnOf(in))
	for _, one := range found {
		if one.Sender.Verified || one.Sender.AuthMethod != normalized.AuthNone || len(one.Sender.Identities) != 0 {
			t.Errorf("%+v", one.Sender)
		}
	}
}
