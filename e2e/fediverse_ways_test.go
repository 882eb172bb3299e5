package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/normalized"
)

// heard is the agent of these tests.
func heard(message normalized.Message) normalized.Response {
	return say("I heard: " + textOf(message.Parts))
}

// TestFedifyInEveryWay: every scheme of signature, the first one refused, with and without proof, in every visibility,
// there and back. One server a database does it all.
func TestFedifyInEveryWay(t *testing.T) {
	peer := startFedify(t)
	onBothDatabases(t, func(t *testing.T, database string) {
		agent := startScripted(t, heard)
		gate, settings := behindGate(t, instance.Settings{Database: database, Agents: agent.table("memory", "")})
		s := start(t, settings)
		for _, knock := range []struct{ first, refused, used string }{
			{rfc9421, "", rfc9421},
			{draftCavage, "", draftCavage},
			{rfc9421, rfc9421, draftCavage},
			{draftCavage, draftCavage, rfc9421},
		} {
			for _, from := range []string{"alice", "bob"} { // with and without proof
				for _, visibility := range []string{"public", "unlisted", "followers", "direct"} {
					name := fmt.Sprintf("%s/refused %s/%s/%s", knock.first, knock.refused, from, visibility)
					t.Run(name, func(t *testing.T) {
						gate.refuse.Store(knock.refused)
						peer.in(t).asks(t, s, agent, errand{From: from, Scheme: knock.first, Visibility: visibility}, knock.used)
					})
				}
			}
		}
	})
}

// asks sends a mention and checks what the agent got of it and what Fedify makes of the reply.
func (f *fedify) asks(t *testing.T, s *server, agent *scripted, what errand, used string) arrived {
	t.Helper()
	what.To, what.Content = s.Actor("memory"), fmt.Sprintf("how are you, %d?", len(agent.questions()))
	question := f.command("/mention", what)
	arrival := f.await("the reply to "+question.Note, taken(question.Note))
	message := agent.last(t)
	claims := struct{ Scheme string }{}
	if err := json.Unmarshal(message.Sender.Identities[0].Claims, &claims); err != nil {
		t.Fatal(err)
	}
	if claims.Scheme != used || message.Sender.KeyID == "" || !message.Sender.Verified || !strings.HasSuffix(message.Sender.Identities[0].Subject, what.From) {
		t.Errorf("the agent was told %+v, scheme %q; want %s by %s", message.Sender, claims.Scheme, what.From, used)
	}
	reply := readNote(t, arrival)
	if !arrival.Verified || !arrival.Accepted || arrival.Owner != s.Actor("memory") || arrival.Proof == "invalid" {
		t.Errorf("Fedify did not take the reply: verified %v by %q, accepted %v, proof %s, status %d, reason %s",
			arrival.Verified, arrival.Owner, arrival.Accepted, arrival.Proof, arrival.Status, arrival.Reason)
	}
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

// taken passes over knocks that the peer refused.
func taken(note string) func(arrived) bool {
	return func(a arrived) bool { return answers(note)(a) && a.Status != http.StatusUnauthorized }
}

// TestFedifyRefusesOneScheme: the server knocks twice and remembers per host what was taken.
func TestFedifyRefusesOneScheme(t *testing.T) {
	peer := startFedify(t)
	agent := startScripted(t, heard)
	s := start(t, instance.Settings{Agents: agent.table("memory", "")})
	defer peer.behave("", false)
	for _, step := range []struct {
		refuses string
		knocks  []string
	}{
		{"", []string{draftCavage}},
		{draftCavage, []string{draftCavage, rfc9421}},
		{draftCavage, []string{rfc9421}}, // remembered
		{rfc9421, []string{rfc9421, draftCavage}},
	} {
		t.Run("refuses "+step.refuses, func(t *testing.T) {
			peer := peer.in(t)
			peer.behave(step.refuses, false)
			before := len(peer.received(0))
			peer.asks(t, s, agent, errand{From: "alice", Visibility: "public"}, rfc9421)
			var knocks []string
			for _, one := range peer.received(before) {
				knocks = append(knocks, one.Scheme)
			}
			if !slices.Equal(knocks, step.knocks) {
				t.Errorf("knocked %v, want %v", knocks, step.knocks)
			}
		})
	}
}

// TestFedifyInSecureMode: actors and notes of the peer want a signed GET, and Fedify verifies ours.
func TestFedifyInSecureMode(t *testing.T) {
	peer := startFedify(t)
	peer.behave("", true)
	agent := startScripted(t, heard)
	s := start(t, instance.Settings{Agents: agent.table("memory", "")})
	for _, from := range []string{"alice", "bob"} {
		peer.asks(t, s, agent, errand{From: from, Scheme: draftCavage, Visibility: "direct"}, draftCavage)
	}
	signed := 0
	for _, read := range peer.reads() {
		if read.Agent == "" {
			t.Errorf("%s was read without a User-Agent", read.Path)
		}
		if read.Scheme != "none" && strings.HasPrefix(read.Path, "/users/") {
			signed++
		}
	}
	if signed == 0 {
		t.Error("no GET was signed")
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

// TestFedifyIsDownForAWhile: the reply comes once, after the peer is back.
func TestFedifyIsDownForAWhile(t *testing.T) {
	peer := startFedify(t)
	onBothDatabases(t, func(t *testing.T, database string) {
		peer := peer.in(t)
		release := make(chan struct{})
		agent := startScripted(t, func(message normalized.Message) normalized.Response {
			<-release
			return heard(message)
		})
		s := start(t, instance.Settings{Database: database, Agents: agent.table("memory", "")})
		question := peer.command("/mention", errand{To: s.Actor("memory"), Content: "are you there?"})
		eventually(t, "the agent is asked", func() bool { return len(agent.questions()) == 1 })
		var nothing struct{}
		peer.post("/down", nothing, &nothing)
		close(release)
		eventually(t, "a delivery failed", func() bool {
			failed, err := s.Column(t.Context(), "SELECT id FROM deliveries WHERE state = 'retry'")
			return err == nil && len(failed) > 0
		})
		peer.post("/up", nothing, &nothing)
		peer.await("the reply to "+question.Note, answers(question.Note))
		eventually(t, "the delivery is done", func() bool {
			states, err := s.Column(t.Context(), "SELECT state FROM deliveries")
			return err == nil && slices.Equal(states, []string{"delivered"})
		})
		if n := peer.countReplies(question.Note); n != 1 {
			t.Errorf("the reply came %d times", n)
		}
	})
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

// TestFedifySendsThreeTimes: the same activity by the personal, the shared and again the personal inbox is answered
// once, in the conversation of the question.
func TestFedifySendsThreeTimes(t *testing.T) {
	peer := startFedify(t)
	onBothDatabases(t, func(t *testing.T, database string) {
		peer := peer.in(t)
		agent := startScripted(t, heard)
		s := start(t, instance.Settings{Database: database, Agents: agent.table("memory", "")})
		question := peer.command("/mention", errand{To: s.Actor("memory"), Content: "three times", Inboxes: []string{"personal", "shared", "personal"}})
		first := peer.await("the reply to "+question.Note, answers(question.Note))

		second := peer.command("/mention", errand{To: s.Actor("memory"), Content: "and on", InReplyTo: readNote(t, first).Object.ID})
		peer.await("the reply to "+second.Note, answers(second.Note))
		if n := peer.countReplies(question.Note); n != 1 {
			t.Errorf("%d replies to one activity that came three times", n)
		}
		asked := agent.questions()
		if len(asked) != 2 || asked[0].ThreadID != asked[1].ThreadID || !strings.Contains(historyOf(asked[1]), "three times") {
			t.Errorf("the agent was asked %d times, in the threads %v; want 2 in one, the second with its history", len(asked), threads(asked))
		}
	})
}

func threads(messages []normalized.Message) []string {
	var ids []string
	for _, one := range messages {
		ids = append(ids, one.ThreadID)
	}
	return ids
}
