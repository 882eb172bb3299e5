package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// activityPubBot is a server of activitypub.bot; its account is ann.
type activityPubBot struct {
	fediversePeer
}

func startActivityPubBot(t *testing.T) *activityPubBot {
	t.Helper()
	n := openSecureNetwork(t)
	peer := &activityPubBot{fediversePeer{t: t, network: n}}
	startFediversePeer(t, peer, n.host(t, "bot"), "activitypubbot/server.mjs", "--database", emptyPostgres(t))
	return peer
}

// botExchange is one server of ours, its agent and the peer, whose subtests follow each other.
type botExchange struct {
	peer  *activityPubBot
	agent *scripted
	gate  *schemeGate
	s     *server
}

// TestActivityPubBot talks over TLS with activitypub.bot, a server that shares no code with Fedify.
func TestActivityPubBot(t *testing.T) {
	t.Parallel()
	peer := startActivityPubBot(t)
	onDatabasesInTurn(t, func(t *testing.T, database string) {
		x := &botExchange{peer: peer, agent: startScripted(t, heard)}
		gate, settings := behindGate(t, peer.network, instance.Settings{Database: database, Agents: x.agent.table("memory", "")})
		x.gate, x.s = gate, start(t, settings)
		for _, step := range []struct {
			name string
			test func(*botExchange, *testing.T)
		}{
			{"finds the agent", (*botExchange).findsTheAgent},
			{"follows", (*botExchange).follows},
			{"mentions", (*botExchange).mentions},
			{"goes on", (*botExchange).goesOn},
			{"edits and deletes", (*botExchange).editsAndDeletes},
			{"likes", (*botExchange).likes},
			{"gets changed answers", (*botExchange).getsChangedAnswers},
			{"signs in the older scheme", (*botExchange).signsInTheOlderScheme},
			{"is a bot", (*botExchange).isABot},
			{"follows no more", (*botExchange).followsNoMore},
		} {
			if !t.Run(step.name, func(t *testing.T) { x.in(t, func() { step.test(x, t) }) }) {
				t.FailNow() // what follows builds on it
			}
		}
	})
}

// in hands the peer to a subtest, which then owns its failures.
func (x *botExchange) in(t *testing.T, test func()) {
	outer := x.peer.t
	x.peer.t = t
	defer func() { x.peer.t = outer }()
	test()
}

// handle is the agent's address.
func (x *botExchange) handle() string { return "@memory@" + x.s.Settings.Public }

// say sends a note to the agent and returns its address.
func (x *botExchange) say(path string, what map[string]string) string {
	x.peer.t.Helper()
	var sent struct{ Note string }
	what["to"] = x.handle()
	x.peer.post(path, what, &sent)
	return sent.Note
}

// answered waits for the answer to a note, and for the peer to tell its account that it was mentioned.
func (x *botExchange) answered(t *testing.T, note string) noteActivity {
	t.Helper()
	arrival := x.arrived(t, "the answer to "+note, answers(note))
	reply := readNote(t, arrival)
	if reply.Type != "Create" || reply.Object.Type != "Note" || reply.Object.AttributedTo != x.s.Actor("memory") || reply.Object.InReplyTo != note {
		t.Errorf("the answer to %s is %s", note, arrival.Activity)
	}
	x.peer.await("word of the mention to the account", func(a arrived) bool { return a.Told == "mention" && a.Object == reply.Object.ID })
	return reply
}

// arrived waits for an activity and demands that the peer verified and accepted it.
func (x *botExchange) arrived(t *testing.T, what string, wanted func(arrived) bool) arrived {
	t.Helper()
	arrival := x.peer.await(what, wanted)
	if !arrival.Verified || !arrival.Accepted || arrival.Owner != x.s.Actor("memory") {
		t.Errorf("%s: the peer did not accept it: verified %v by %q, status %d: %s", what, arrival.Verified, arrival.Owner, arrival.Status, arrival.Activity)
	}
	return arrival
}

// findsTheAgent: WebFinger from the peer to us.
func (x *botExchange) findsTheAgent(t *testing.T) {
	var found struct{ ID, Name string }
	x.peer.post("/resolve", map[string]string{"handle": x.handle()}, &found)
	if found.ID != x.s.Actor("memory") || found.Name != "memory" {
		t.Errorf("found %+v behind %s; want %s", found, x.handle(), x.s.Actor("memory"))
	}
}

// follows: the peer follows once our Accept is there.
func (x *botExchange) follows(t *testing.T) {
	var follow sent
	x.peer.post("/follow", map[string]string{"to": x.handle()}, &follow)
	x.arrived(t, "the Accept", func(a arrived) bool {
		return strings.Contains(string(a.Activity), `"Accept"`) && strings.Contains(string(a.Activity), follow.Activity)
	})
	eventually(t, "the peer counts the agent among those whom it follows", x.isFollowed)
	if _, followers := readActivity(t, x.s.Actor("memory")+"/followers"); !strings.Contains(followers, `"totalItems":1`) {
		t.Errorf("the agent's followers are %s", followers)
	}
}

func (x *botExchange) isFollowed() bool {
	var following bool
	x.peer.get("/following?actor="+url.QueryEscape(x.s.Actor("memory")), &following)
	return following
}

// mentions: in each visibility the agent is told the verified sender, whom we found by WebFinger, and the answer is no wider than the note.
func (x *botExchange) mentions(t *testing.T) {
	for _, visibility := range []string{"public", "unlisted", "followers", "direct"} {
		t.Run(visibility, func(t *testing.T) { x.in(t, func() { x.mentionsAs(t, visibility) }) })
	}
}

func (x *botExchange) mentionsAs(t *testing.T, visibility string) {
	content := "how are you, " + visibility + "?"
	note := x.say("/mention", map[string]string{"visibility": visibility, "content": content})
	reply := x.answered(t, note)
	x.checkSender(t, rfc9421)
	if !strings.Contains(reply.Object.Content, content) {
		t.Errorf("answered %q", reply.Object.Content)
	}
	addressed := slices.Concat(reply.To, reply.Cc)
	open := visibility == "public" || visibility == "unlisted"
	if slices.Contains(addressed, public) != open || slices.Contains(reply.To, public) || !slices.Contains(addressed, x.peer.Actor) {
		t.Errorf("the answer to a %s note goes to %v cc %v", visibility, reply.To, reply.Cc)
	}
	if _, sent := readActivity(t, note); visibility == "public" && !strings.Contains(sent, `"href": "`+x.s.URL()+`/@memory"`) {
		t.Errorf("the note mentions another address than the profile page: %s", sent)
	}
	if !slices.Contains(mentions(t, reply), x.peer.Actor) {
		t.Errorf("the answer does not mention its reader: %s", reply.Object.Tag)
	}
}

// checkSender checks what the agent was told of the sender, and that the name is one that the peer's WebFinger confirms.
func (x *botExchange) checkSender(t *testing.T, scheme string) {
	t.Helper()
	sender := x.agent.last(t).Sender
	place, err := url.Parse(x.peer.Actor)
	if err != nil {
		t.Fatal(err)
	}
	if !sender.Verified || fmt.Sprint(sender.Address) != "@ann@"+place.Host || sender.Identities[0].Subject != x.peer.Actor {
		t.Errorf("the agent was told %+v", sender)
	}
	if !strings.Contains(string(sender.Identities[0].Claims), `"`+scheme+`"`) {
		t.Errorf("the evidence is %s; want the scheme %s", sender.Identities[0].Claims, scheme)
	}
	var reads []read
	x.peer.get("/reads", &reads)
	if !slices.ContainsFunc(reads, func(r read) bool {
		return strings.HasPrefix(r.Path, "/.well-known/webfinger?") && strings.HasPrefix(r.Agent, "inbox/")
	}) {
		t.Errorf("the peer's WebFinger was not read: %+v", reads)
	}
}

// goesOn: the peer fetches a direct answer, which only its reader may, and what it says to it stays in the conversation.
func (x *botExchange) goesOn(t *testing.T) {
	first := x.answered(t, x.say("/mention", map[string]string{"visibility": "direct", "content": "my cat is called Mimi"}))
	if status, _ := readActivity(t, first.Object.ID); status == http.StatusOK {
		t.Error("anybody can read a direct answer")
	}
	thread := x.agent.last(t).ThreadID
	x.answered(t, x.say("/reply", map[string]string{"inReplyTo": first.Object.ID, "content": "what is she called?"}))
	if asked := x.agent.last(t); asked.ThreadID != thread || !strings.Contains(saidBefore(asked), "Mimi") {
		t.Errorf("the second question came in thread %s after %s, with the history %q", asked.ThreadID, thread, saidBefore(asked))
	}
}

// editsAndDeletes: what the peer changes and takes back is changed and gone in the conversation.
func (x *botExchange) editsAndDeletes(t *testing.T) {
	edited := x.say("/mention", map[string]string{"content": "the capital is Bonn"})
	reply := x.answered(t, edited)
	x.say("/edit", map[string]string{"note": edited, "content": "the capital is Berlin"})
	deleted := x.say("/reply", map[string]string{"inReplyTo": reply.Object.ID, "content": "my secret is xyzzy-bot"})
	second := x.answered(t, deleted)
	x.say("/remove", map[string]string{"note": deleted})
	eventually(t, "the deleted words are erased", func() bool { return x.kept(t, "xyzzy-bot") == 0 })
	x.answered(t, x.say("/reply", map[string]string{"inReplyTo": second.Object.ID, "content": "what did I say?"}))
	if said := saidBefore(x.agent.last(t)); !strings.Contains(said, "Berlin") || strings.Contains(said, "Bonn") || strings.Contains(said, "xyzzy") {
		t.Errorf("after the edit and the deletion the history says %q", said)
	}
}

func (x *botExchange) kept(t *testing.T, words string) int {
	t.Helper()
	return (&exchangeOf{s: x.s}).kept(t, words)
}

// likes: a reaction to an answer, and its Undo, are on the timeline.
func (x *botExchange) likes(t *testing.T) {
	reply := x.answered(t, x.say("/mention", map[string]string{"content": "say something nice"}))
	x.say("/like", map[string]string{"note": reply.Object.ID})
	x.awaitEvent(t, "reaction")
	x.say("/unlike", map[string]string{"note": reply.Object.ID})
	x.awaitEvent(t, "reaction.gone")
}

func (x *botExchange) awaitEvent(t *testing.T, kind string) {
	t.Helper()
	eventually(t, kind+" is on the timeline", func() bool {
		found, err := x.s.Column(t.Context(), "SELECT turn_id FROM events WHERE kind = '"+kind+"'")
		return err == nil && len(found) == 1
	})
}

// getsChangedAnswers: what the operator edits and takes back reaches the peer.
func (x *botExchange) getsChangedAnswers(t *testing.T) {
	reply := x.answered(t, x.say("/mention", map[string]string{"content": "say something that you will regret"}))
	file := filepath.Join(t.TempDir(), "answer.md")
	if err := os.WriteFile(file, []byte("I meant something else."), 0o600); err != nil {
		t.Fatal(err)
	}
	about := func(kind string) func(arrived) bool {
		return func(a arrived) bool {
			return strings.Contains(string(a.Activity), `"`+kind+`"`) && strings.Contains(string(a.Activity), reply.Object.ID)
		}
	}
	x.s.inbox("edit", reply.Object.ID, file)
	if update := x.arrived(t, "the edit", about("Update")); !strings.Contains(string(update.Activity), "something else") {
		t.Errorf("the edit is %s", update.Activity)
	}
	x.s.inbox("delete", reply.Object.ID)
	x.arrived(t, "the deletion", about("Delete"))
}

// signsInTheOlderScheme: the peer signs as of RFC 9421 first, and after a 401 as of draft-cavage.
func (x *botExchange) signsInTheOlderScheme(t *testing.T) {
	x.gate.refuse.Store(rfc9421)
	defer x.gate.refuse.Store("")
	x.answered(t, x.say("/mention", map[string]string{"content": "and in the older scheme?"}))
	x.checkSender(t, draftCavage)
}

// isABot: an account that says it is one is not answered, so that two of them never talk without end.
func (x *botExchange) isABot(t *testing.T) {
	before := len(x.agent.questions())
	x.say("/mention", map[string]string{"from": "clock", "content": "tick"})
	eventually(t, "the message of a bot is left unanswered", func() bool { return slices.Contains(states(t, x.s.Instance), "silent") })
	if n := len(x.agent.questions()) - before; n != 0 {
		t.Errorf("the agent was asked %d times", n)
	}
}

// followsNoMore: Undo of the Follow.
func (x *botExchange) followsNoMore(t *testing.T) {
	x.say("/unfollow", map[string]string{})
	eventually(t, "the agent has no followers", func() bool {
		_, followers := readActivity(t, x.s.Actor("memory")+"/followers")
		return strings.Contains(followers, `"totalItems":0`)
	})
	if x.isFollowed() {
		t.Error("the peer still counts the agent among those whom it follows")
	}
}
