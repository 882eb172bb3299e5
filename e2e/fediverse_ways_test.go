package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
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

// TestFedify talks with outside software in every way. One server a database does it all; on the second database the
// matrix has one way a scheme.
func TestFedify(t *testing.T) {
	peer := startFedify(t)
	onDatabasesInTurn(t, func(t *testing.T, database string) {
		x := &exchangeOf{peer: peer}
		x.agent = startScripted(t, func(message normalized.Message) normalized.Response {
			x.hold.Lock()
			defer x.hold.Unlock()
			return heard(message)
		})
		gate, settings := behindGate(t, instance.Settings{Database: database, Agents: x.agent.table("memory", "")})
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
