package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/instance"
	"inbox/normalized"
)

// heard is the agent of these tests.
func heard(message normalized.Message) normalized.Response {
	return say("I heard: " + textOf(message.Parts))
}

// exchangeOf is one server, one agent and the peer, whose subtests follow each other.
type exchangeOf struct {
	peer  *fedify
	agent *scripted
	gate  *schemeGate
	s     *server
	hold  sync.Mutex // while it is held, the agent thinks
}

// TestFedify talks with Fedify in every way, over TLS. One server a database does it all; on the second database the
// matrix has one way a scheme.
func TestFedify(t *testing.T) {
	t.Parallel()
	peer := startFedify(t)
	onDatabasesInTurn(t, func(t *testing.T, database string) {
		x := &exchangeOf{peer: peer}
		x.agent = startScripted(t, func(message normalized.Message) normalized.Response {
			x.hold.Lock()
			defer x.hold.Unlock()
			return heard(message)
		})
		gate, settings := behindGate(t, peer.network, instance.Settings{Database: database, Agents: x.agent.table("memory", "")})
		x.gate, x.s = gate, start(t, settings)
		t.Run("in every way", func(t *testing.T) { x.inEveryWay(t, database == "") })
		for name, test := range map[string]func(*exchangeOf, *testing.T){
			"in secure mode": (*exchangeOf).inSecureMode, "sends three times": (*exchangeOf).sendsThreeTimes,
			"edits and deletes": (*exchangeOf).editsAndDeletes, "gets changed answers": (*exchangeOf).changesItsAnswers,
			"forwards": (*exchangeOf).forwards, "enters late": (*exchangeOf).entersLate,
		} {
			t.Run(name, func(t *testing.T) { x.in(t, test) })
		}
		t.Run("refuses one scheme", func(t *testing.T) { x.in(t, (*exchangeOf).refusesOneScheme) })
		t.Run("is down for a while", func(t *testing.T) { x.in(t, (*exchangeOf).isDownForAWhile) })
	})
}

// in hands the exchange to a subtest, which owns its failures and leaves the peer as it was.
func (x *exchangeOf) in(t *testing.T, test func(*exchangeOf, *testing.T)) {
	outer := x.peer
	x.peer = outer.in(t)
	defer func() {
		outer.behave("", false)
		x.peer = outer
	}()
	test(x, t)
}

// inEveryWay goes through schemes of signature (the first one taken or refused), with and without proof, and
// visibilities, there and back.
func (x *exchangeOf) inEveryWay(t *testing.T, all bool) {
	visibilities := []string{"public", "unlisted", "followers", "direct"}
	for i, knock := range []struct{ first, refused, used string }{
		{rfc9421, "", rfc9421},
		{draftCavage, "", draftCavage},
		{rfc9421, rfc9421, draftCavage},
		{draftCavage, draftCavage, rfc9421},
	} {
		x.gate.refuse.Store(knock.refused)
		for j, from := range []string{"alice", "bob"} { // with and without proof
			for k, visibility := range visibilities {
				if !all && (i != k || i%2 != j) {
					continue
				}
				name := fmt.Sprintf("%s first, refused %s/%s/%s", knock.first, knock.refused, from, visibility)
				t.Run(name, func(t *testing.T) {
					x.in(t, func(x *exchangeOf, t *testing.T) {
						x.ask(t, errand{From: from, Scheme: knock.first, Visibility: visibility}, knock.used)
					})
				})
			}
		}
	}
	x.gate.refuse.Store("")
}

// ask sends a mention and checks what the agent got of it and what Fedify makes of the reply.
func (x *exchangeOf) ask(t *testing.T, what errand, used string) arrived {
	t.Helper()
	what.To, what.Content = x.s.Actor("memory"), fmt.Sprintf("how are you, %d?", len(x.agent.questions()))
	question := x.peer.command("/mention", what)
	arrival := x.peer.await("the reply to "+question.Note, taken(question.Note))
	x.checkQuestion(t, what, used)
	if !arrival.Verified || !arrival.Accepted || arrival.Owner != x.s.Actor("memory") || arrival.Proof != "valid" {
		t.Errorf("Fedify did not take the reply: verified %v by %q, accepted %v, proof %s, status %d, reason %s",
			arrival.Verified, arrival.Owner, arrival.Accepted, arrival.Proof, arrival.Status, arrival.Reason)
	}
	reply := readNote(t, arrival)
	if !strings.Contains(reply.Object.Content, what.Content) {
		t.Errorf("answered %q, want %q in it", reply.Object.Content, what.Content)
	}
	addressed := slices.Concat(reply.To, reply.Cc)
	open := what.Visibility == "public" || what.Visibility == "unlisted"
	if slices.Contains(addressed, public) != open || slices.Contains(reply.To, public) {
		t.Errorf("the reply to a %s note goes to %v cc %v", what.Visibility, reply.To, reply.Cc)
	}
	return arrival
}

// checkQuestion checks what the agent was told of the sender.
func (x *exchangeOf) checkQuestion(t *testing.T, what errand, used string) {
	t.Helper()
	sender := x.agent.last(t).Sender
	claims := struct{ Scheme string }{}
	if err := json.Unmarshal(sender.Identities[0].Claims, &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Scheme != used || !sender.Verified || !strings.HasSuffix(sender.Identities[0].Subject, "/users/"+what.From) {
		t.Errorf("the agent was told %+v, scheme %q; want %s by %s", sender, claims.Scheme, what.From, used)
	}
}

// taken passes over knocks that the peer refused.
func taken(note string) func(arrived) bool {
	return func(a arrived) bool { return answers(note)(a) && a.Status != http.StatusUnauthorized }
}

// refusesOneScheme: the server knocks twice and remembers per host what was taken.
func (x *exchangeOf) refusesOneScheme(t *testing.T) {
	for _, step := range []struct {
		refuses string
		knocks  []string
	}{
		{"", []string{draftCavage}},
		{draftCavage, []string{draftCavage, rfc9421}},
		{draftCavage, []string{rfc9421}}, // remembered
		{rfc9421, []string{rfc9421, draftCavage}},
	} {
		x.peer.behave(step.refuses, false)
		before := len(x.peer.received(0))
		x.ask(t, errand{From: "alice", Visibility: "public"}, rfc9421)
		x.s.awaitState("") // what the peer took is remembered before the delivery is done
		var knocks []string
		for _, one := range x.peer.received(before) {
			knocks = append(knocks, one.Scheme)
		}
		if !slices.Equal(knocks, step.knocks) {
			t.Errorf("refusing %q: knocked %v, want %v", step.refuses, knocks, step.knocks)
		}
	}
}

// inSecureMode: actors and notes of the peer want a signed GET, and Fedify verifies ours. The actor is a new one,
// because a known key is not fetched.
func (x *exchangeOf) inSecureMode(t *testing.T) {
	x.peer.behave("", true)
	name := fmt.Sprintf("carol%d", len(x.agent.questions()))
	x.ask(t, errand{From: name, Scheme: draftCavage, Visibility: "direct"}, draftCavage)
	signed := 0
	for _, read := range x.peer.reads() {
		if read.Agent == "" {
			t.Errorf("%s was read without a User-Agent", read.Path)
		}
		if read.Scheme != "none" && read.Path == "/users/"+name {
			signed++
		}
	}
	if signed == 0 {
		t.Error("the actor was not read with a signature")
	}
}

// read is one GET of an actor, a note or a collection at the peer.
type read struct{ Path, Agent, Scheme string }

func (f *fedify) reads() []read {
	f.t.Helper()
	var list []read
	f.get("/reads", &list)
	return list
}

// isDownForAWhile: the reply comes once, after the peer is back.
func (x *exchangeOf) isDownForAWhile(t *testing.T) {
	x.hold.Lock()
	asked := len(x.agent.questions())
	question := x.peer.command("/mention", errand{To: x.s.Actor("memory"), Content: "are you there?"})
	eventually(t, "the agent is asked", func() bool { return len(x.agent.questions()) > asked })
	var nothing struct{}
	x.peer.post("/down", nothing, &nothing)
	x.hold.Unlock()
	x.s.awaitState("retry")
	x.peer.post("/up", nothing, &nothing)
	x.peer.await("the reply to "+question.Note, answers(question.Note))
	x.s.awaitState("")
	if n := x.peer.countReplies(question.Note); n != 1 {
		t.Errorf("the reply came %d times", n)
	}
}

func (f *fedify) countReplies(note string) int {
	f.t.Helper()
	count, liked := 0, answers(note)
	for _, one := range f.received(0) {
		if liked(one) {
			count++
		}
	}
	return count
}

// sendsThreeTimes: the same activity by the personal, the shared and again the personal inbox is answered once; and
// what is said to the answer stays in the conversation, and is found from the answer.
func (x *exchangeOf) sendsThreeTimes(t *testing.T) {
	before := len(x.agent.questions())
	question := x.peer.command("/mention", errand{To: x.s.Actor("memory"), Content: "three times", Inboxes: []string{"personal", "shared", "personal"}})
	first := x.peer.await("the reply to "+question.Note, answers(question.Note))
	answer := readNote(t, first).Object.ID
	second := x.peer.command("/mention", errand{To: x.s.Actor("memory"), Content: "and on", InReplyTo: answer})
	x.peer.await("the reply to "+second.Note, answers(second.Note))
	if status, replies := readActivity(t, answer+"/replies?page=true"); status != http.StatusOK || !strings.Contains(replies, `"`+second.Note+`"`) {
		t.Errorf("the replies to the answer are %d %s; want %s", status, replies, second.Note)
	}
	if n := x.peer.countReplies(question.Note); n != 1 {
		t.Errorf("%d replies to one activity that came three times", n)
	}
	asked := x.agent.questions()[before:]
	if len(asked) != 2 || asked[0].ThreadID != asked[1].ThreadID || !strings.Contains(historyOf(asked[1]), "three times") {
		t.Errorf("the agent was asked %d times: %+v; want 2 in one thread, the second with its history", len(asked), asked)
	}
}

// changesItsAnswers: what the operator edits and takes back reaches the peer, verified by Fedify, and the address says
// that the answer is gone.
func (x *exchangeOf) changesItsAnswers(t *testing.T) {
	_, reply := x.answered("say something that you will regret", "")
	file := filepath.Join(t.TempDir(), "answer.md")
	if err := os.WriteFile(file, []byte("I meant **something else**."), 0o600); err != nil {
		t.Fatal(err)
	}
	x.s.inbox("edit", "--type", "text/markdown", reply.Object.ID, file)
	update := x.change(t, "Update", reply.Object.ID)
	changed := readNote(t, update)
	if !strings.Contains(changed.Object.Content, "<strong>something else</strong>") || !strings.Contains(string(update.Activity), `"updated"`) {
		t.Errorf("the edit says %s", update.Activity)
	}
	x.s.inbox("delete", reply.Object.ID)
	x.change(t, "Delete", reply.Object.ID)
	if status, body := readActivity(t, reply.Object.ID); status != http.StatusGone || !strings.Contains(body, "Tombstone") {
		t.Errorf("the address of the answer says %d %s", status, body)
	}
}

// change waits for an activity about a note of ours and demands that Fedify took it.
func (x *exchangeOf) change(t *testing.T, kind, note string) arrived {
	t.Helper()
	change := x.peer.await(kind+" of "+note, func(a arrived) bool {
		var activity struct {
			Type   string
			Object json.RawMessage
		}
		return json.Unmarshal(a.Activity, &activity) == nil && activity.Type == kind && strings.Contains(string(activity.Object), note)
	})
	if !change.Verified || !change.Accepted || change.Proof != "valid" || change.Owner != x.s.Actor("memory") {
		t.Errorf("Fedify did not take the %s: verified %v by %q, accepted %v, proof %s, status %d, reason %s",
			kind, change.Verified, change.Owner, change.Accepted, change.Proof, change.Status, change.Reason)
	}
	return change
}

// readActivity reads an address as another server does.
func readActivity(t *testing.T, address string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/activity+json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// forwards: an activity that another party brings is believed for its proof, or for what its own server shows, and
// otherwise not.
func (x *exchangeOf) forwards(t *testing.T) {
	for name, c := range map[string]struct {
		from, by string
		status   int
	}{
		"with proof, signed by another":         {"alice", "bob", http.StatusAccepted},
		"with proof, not signed":                {"alice", "", http.StatusAccepted},
		"without proof, signed by another":      {"bob", "alice", http.StatusAccepted}, // read again at its origin
		"without proof and signature":           {"bob", "", http.StatusUnauthorized},
		"without proof, by somebody who is not": {"carol", "", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			x.in(t, func(x *exchangeOf, t *testing.T) {
				before := len(x.agent.questions())
				note := x.peer.command("/forward", errand{To: x.s.Actor("memory"), From: c.from, By: c.by, Content: "brought by somebody"})
				if note.Status != c.status {
					t.Fatalf("answered %d %s, want %d", note.Status, note.Reason, c.status)
				}
				if c.status != http.StatusAccepted {
					x.s.awaitState("")
					if n := len(x.agent.questions()) - before; n != 0 {
						t.Errorf("the agent was asked %d times", n)
					}
					return
				}
				x.peer.await("the reply to "+note.Note, answers(note.Note))
				sender := x.agent.last(t).Sender
				if !strings.HasSuffix(sender.Identities[0].Subject, "/users/"+c.from) || !sender.Verified {
					t.Errorf("the agent was told that %+v asked; want %s", sender, c.from)
				}
			})
		})
	}
}

// entersLate: a mention under a note that never came here brings the note along, as history.
func (x *exchangeOf) entersLate(t *testing.T) {
	written := x.peer.command("/write", errand{To: x.s.Actor("memory"), Content: "the moon is made of cheese"})
	question := x.peer.command("/mention", errand{To: x.s.Actor("memory"), From: "bob", Content: "is that so?", InReplyTo: written.Note})
	x.peer.await("the reply to "+question.Note, answers(question.Note))
	if said := saidBefore(x.agent.last(t)); !strings.Contains(said, "made of cheese") {
		t.Errorf("the history of a thread that was entered late says %q", said)
	}
}

// editsAndDeletes: what a person at the peer does to a note reaches the conversation, whether the agent answered or not.
func (x *exchangeOf) editsAndDeletes(t *testing.T) {
	for name, test := range map[string]func(*exchangeOf, *testing.T){
		"edit after the answer": (*exchangeOf).editsAfterwards, "edit before the answer": (*exchangeOf).editsMeanwhile,
		"delete after the answer": (*exchangeOf).deletesAfterwards, "delete before the answer": (*exchangeOf).deletesMeanwhile,
		"delete before the run": (*exchangeOf).deletesBeforeTheRun,
	} {
		t.Run(name, func(t *testing.T) { x.in(t, test) })
	}
}

// say sends a note that mentions the agent.
func (x *exchangeOf) say(content, inReplyTo string) sent {
	return x.peer.command("/mention", errand{To: x.s.Actor("memory"), Content: content, InReplyTo: inReplyTo})
}

// answered sends a note and waits for the reply.
func (x *exchangeOf) answered(content, inReplyTo string) (sent, noteActivity) {
	x.peer.t.Helper()
	question := x.say(content, inReplyTo)
	return question, readNote(x.peer.t, x.peer.await("the reply to "+question.Note, answers(question.Note)))
}

func (x *exchangeOf) edits(question sent, content string) {
	x.peer.command("/edit", errand{To: x.s.Actor("memory"), Note: question.Note, Content: content})
}

func (x *exchangeOf) deletes(question sent) {
	x.peer.command("/remove", errand{To: x.s.Actor("memory"), Note: question.Note})
}

// thinking sends a note while the agent is held and waits until it was asked.
func (x *exchangeOf) thinking(t *testing.T, content, inReplyTo string) sent {
	t.Helper()
	before := len(x.agent.questions())
	question := x.say(content, inReplyTo)
	eventually(t, "the agent is asked", func() bool { return len(x.agent.questions()) > before })
	return question
}

// askedWith returns the questions that have the words in their text.
func (x *exchangeOf) askedWith(words string) []normalized.Message {
	return slices.DeleteFunc(x.agent.questions(), func(m normalized.Message) bool { return !strings.Contains(textOf(m.Parts), words) })
}

// kept counts the rows that still have the words: messages, originals and the timeline.
func (x *exchangeOf) kept(t *testing.T, words string) int {
	t.Helper()
	count := 0
	for _, query := range []string{
		"SELECT id FROM turns WHERE message LIKE '%" + words + "%'", "SELECT digest FROM originals WHERE body LIKE '%" + words + "%'",
		"SELECT turn_id FROM events WHERE body LIKE '%" + words + "%'",
	} {
		found, err := x.s.Column(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		count += len(found)
	}
	return count
}

func (x *exchangeOf) editsAfterwards(t *testing.T) {
	question, reply := x.answered("the capital is Bonn", "")
	x.edits(question, "the capital is Berlin")
	x.answered("what did I say?", reply.Object.ID)
	if said := saidBefore(x.agent.last(t)); !strings.Contains(said, "Berlin") || strings.Contains(said, "Bonn") {
		t.Errorf("after the edit the history says: %s", said)
	}
	if n := len(x.askedWith("Berlin")); n != 0 {
		t.Errorf("the agent was asked the edited question %d times although it had answered", n)
	}
	if n := x.peer.countReplies(question.Note); n != 1 {
		t.Errorf("%d replies to the note", n)
	}
}

func (x *exchangeOf) editsMeanwhile(t *testing.T) {
	x.hold.Lock()
	question := x.thinking(t, "old words of a slow question", "")
	x.edits(question, "new words of a slow question")
	x.hold.Unlock()
	reply := readNote(t, x.peer.await("the reply to "+question.Note, answers(question.Note)))
	if !strings.Contains(reply.Object.Content, "new words") {
		t.Errorf("the answer is to the old words: %s", reply.Object.Content)
	}
	x.s.awaitState("")
	if n := x.peer.countReplies(question.Note); n != 1 {
		t.Errorf("%d replies to the note", n)
	}
}

func (x *exchangeOf) deletesAfterwards(t *testing.T) {
	question, reply := x.answered("my secret is xyzzy-afterwards", "")
	x.deletes(question)
	eventually(t, "the deleted words are erased", func() bool { return x.kept(t, "xyzzy-afterwards") == 0 })
	x.answered("what is my secret?", reply.Object.ID)
	if said := saidBefore(x.agent.last(t)); strings.Contains(said, "xyzzy-afterwards") {
		t.Errorf("the deleted words are in the history: %s", said)
	}
}

// saidBefore is what people said in the history of a message.
func saidBefore(message normalized.Message) string {
	var texts []string
	for _, turn := range message.History {
		if turn.Role == normalized.RoleUser {
			texts = append(texts, textOf(turn.Parts))
		}
	}
	return strings.Join(texts, "\n")
}

func (x *exchangeOf) deletesMeanwhile(t *testing.T) {
	x.hold.Lock()
	question := x.thinking(t, "my secret is xyzzy-meanwhile", "")
	x.deletes(question)
	x.hold.Unlock()
	eventually(t, "the deleted words are erased", func() bool { return x.kept(t, "xyzzy-meanwhile") == 0 })
	x.answered("hello after that", "")
	if n := x.peer.countReplies(question.Note); n != 0 {
		t.Errorf("%d replies to a note that was deleted before the answer", n)
	}
}

func (x *exchangeOf) deletesBeforeTheRun(t *testing.T) {
	_, begin := x.answered("let us begin", "")
	x.hold.Lock()
	first := x.thinking(t, "a slow question", begin.Object.ID)
	second := x.say("my secret is xyzzy-before", begin.Object.ID) // waits for its thread
	x.deletes(second)
	x.hold.Unlock()
	x.peer.await("the reply to "+first.Note, answers(first.Note))
	x.answered("and a third", begin.Object.ID)
	if n, replies := len(x.askedWith("xyzzy-before")), x.peer.countReplies(second.Note); n != 0 || replies != 0 {
		t.Errorf("the agent was asked %d times about a note that was deleted before its run and answered %d times", n, replies)
	}
	if n := x.kept(t, "xyzzy-before"); n != 0 {
		t.Errorf("the deleted words are in %d rows", n)
	}
}
