package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/normalized"
)

// tell delivers a mention and wants it taken; no one waits for an answer.
func (f *fediverse) tell(s *server, agent string, person int, text string) string {
	f.t.Helper()
	mention, status := f.knock(s, s.Settings.HTTP, agent, person, text)
	if status != http.StatusAccepted {
		f.t.Fatalf("%q was answered %d", text, status)
	}
	return mention.ActivityID
}

// awaitIdle waits until the server has nothing left to do, so that no reply can come any more.
func (s *server) awaitIdle() {
	s.t.Helper()
	eventually(s.t, "the server is idle", func() bool { return s.rows()["jobs"] == 0 })
}

// quiet demands that nothing arrived since the last arrival that was read.
func (f *fediverse) quiet(s *server) {
	f.t.Helper()
	s.awaitIdle()
	for len(f.arrivals) > 0 {
		f.t.Errorf("there should be silence: %s", f.next(f.t))
	}
}

// audited counts the records of a code on record.
func audited(t *testing.T, s *server, code string) int {
	t.Helper()
	var records []exchange.AuditRecord
	if err := decodeList(s.inbox("audit", "list", "--json", "--code", code), &records); err != nil {
		t.Fatal(err)
	}
	return len(records)
}

// Windows are those of the clock: one of 31 days ends in none of these tests but once in 31 days.
const twoMessages = "[limits]\nsender = [\"2/744h\"]\n"

const cannotAnswer = "cannot answer more messages"

// TestOverTheLimitIsSaidOnce: who writes too much reads one polite sentence and then nothing, whatever restarts; others
// are answered.
func TestOverTheLimitIsSaidOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		community := startFediverse(t, 2)
		s := start(t, instance.Settings{Database: database, More: twoMessages})
		for _, text := range []string{"first words", "second words"} {
			if _, answer := community.ask(s, "echo", 0, text); !strings.Contains(answer, text) {
				t.Errorf("%s is answered %s", text, answer)
			}
		}
		if _, answer := community.ask(s, "echo", 0, "third words"); !strings.Contains(answer, cannotAnswer) || strings.Contains(answer, "third words") {
			t.Errorf("over the limit the answer is %s", answer)
		}
		community.tell(s, "echo", 0, "fourth words")
		community.quiet(s)
		s.awaitCount("2")
		s.killed()
		last := community.tell(s, "echo", 0, "fifth words")
		community.quiet(s)
		if found := states(t, s.Instance); !slices.Equal(found, []string{"answered", "answered", "refused", "silent", "silent"}) {
			t.Errorf("the turns are %v", found)
		}
		if shown := s.inbox("show", last); !strings.Contains(shown, "limit:sender") {
			t.Errorf("the reason is not shown:\n%s", shown)
		}
		if n := audited(t, s, "limit:*"); n != 1 {
			t.Errorf("%d records of the limit; want 1", n)
		}
		if _, answer := community.ask(s, "echo", 1, "somebody else"); !strings.Contains(answer, "somebody else") {
			t.Errorf("another sender is answered %s", answer)
		}
	})
}

// TestOverTheLimitMailIsPutOff: one mail says it, later ones are put off with 452 4.7.0.
func TestOverTheLimitMailIsPutOff(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, "[[agents]]\nname = \"memory\"\nkind = \"echo\"\n"+twoMessages)
		for i := range 2 {
			if reply := p.ask(fmt.Sprintf("within-%d@sender.test", i), "hello there"); !strings.Contains(plain(reply.Raw), "hello there") {
				t.Errorf("mail %d is answered %s", i, plain(reply.Raw))
			}
		}
		if reply := p.ask("over@sender.test", "hello there"); !strings.Contains(plain(reply.Raw), cannotAnswer) {
			t.Errorf("over the limit the answer is %s", plain(reply.Raw))
		}
		p.awaitIdle()
		p.awaitCount("2")
		p.killed()
		refusal := p.put(load.Mail{From: "ann@sender.test", To: "memory@inbox.test", MessageID: "later@sender.test", Subject: "Hi", Body: "hello?"})
		if !strings.HasPrefix(refusal, "452") || !strings.Contains(refusal, "4.7.0") {
			t.Errorf("later mail is answered %s; want 452 4.7.0", refusal)
		}
		p.awaitIdle()
		if replies, _ := p.outbox.repliesTo("later@sender.test"); len(replies) != 0 {
			t.Error("mail that was put off is answered")
		}
	})
}

// put brings a signed mail and returns the refusal as it was said; empty = it was taken.
func (p *post) put(mail load.Mail) string {
	p.t.Helper()
	signed, err := p.sender.Sign(mail.Bytes())
	if err != nil {
		p.t.Fatal(err)
	}
	sender, err := load.DialMail(p.Settings.SMTP)
	if err != nil {
		p.t.Fatal(err)
	}
	defer sender.Close()
	err = sender.Send(mail.From, mail.To, signed)
	if refusal, is := errors.AsType[*textproto.Error](err); is {
		return fmt.Sprintf("%d %s", refusal.Code, refusal.Msg)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return ""
}

// TestDailyBudgetOutlivesRestarts: runs and money of a day are counted over a graceful end and over a sudden one.
func TestDailyBudgetOutlivesRestarts(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		agent := startScripted(t, func(message normalized.Message) normalized.Response {
			said := heard(message)
			said.Metadata = map[string]string{"cost": "0.30"}
			return said
		})
		community := startFediverse(t, 4)
		s := start(t, instance.Settings{
			Database: database, Agents: agent.table("memory", "") + "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n",
			More: "[limits]\nsender_runs_per_day = 1\nagent_cost_per_day = \"0.50\"\n",
		})
		ask := func(agent string, person int, text string, answered bool) {
			t.Helper()
			if _, answer := community.ask(s, agent, person, text); strings.Contains(answer, text) != answered || strings.Contains(answer, cannotAnswer) == answered {
				t.Errorf("%s of person %d to %s is answered %s; want an answer: %v", text, person, agent, answer, answered)
			}
		}
		ask("echo", 0, "first run", true)
		ask("memory", 1, "for thirty cents", true)
		s.stop()
		s.start()
		ask("echo", 0, "second run", false)
		ask("memory", 2, "for thirty more", true)
		s.awaitIdle()
		s.awaitCount("600000")
		s.killed()
		if _, status := community.knock(s, s.Settings.HTTP, "memory", 3, "for nothing"); status != http.StatusTooManyRequests {
			t.Errorf("an agent that has spent its budget answers %d; want 429", status)
		}
		if n := len(agent.questions()); n != 2 {
			t.Errorf("the agent was asked %d times; its budget ends with the second", n)
		}
		ask("echo", 3, "another agent", true)
	})
}

// awaitCount waits until a counter was written; the server does so every second.
func (s *server) awaitCount(amount string) {
	s.t.Helper()
	eventually(s.t, "the count is written", func() bool {
		found, err := s.Column(s.t.Context(), "SELECT CAST(amount AS TEXT) FROM counters")
		return err == nil && slices.Contains(found, amount)
	})
}

// TestStopWordOutlivesRestarts: who said stop hears nothing from that agent until they say start.
func TestStopWordOutlivesRestarts(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		community := startFediverse(t, 2)
		s := start(t, instance.Settings{Database: database, Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n[[agents]]\nname = \"other\"\nkind = \"echo\"\n"})
		if _, answer := community.ask(s, "echo", 0, "stop"); !strings.Contains(answer, "I will not write to you again") {
			t.Errorf("stop is answered %s", answer)
		}
		s.awaitIdle() // what is on the wire when a server dies comes again, under its id
		s.killed()
		community.tell(s, "echo", 0, "are you still there?")
		community.tell(s, "echo", 0, "Stop!")
		community.quiet(s)
		var stops []exchange.ListEntry
		if err := decodeList(s.inbox("block", "list", "--stop", "--json"), &stops); err != nil || len(stops) != 1 ||
			!strings.HasSuffix(stops[0].Target, community.Persons[0].ID) || stops[0].Agent != "echo" {
			t.Errorf("the stop words are %+v (%v)", stops, err)
		}
		for who, person := range map[string]int{"other": 0, "echo": 1} { // the other agent, the other person
			if _, answer := community.ask(s, who, person, "hello there"); !strings.Contains(answer, "hello there") {
				t.Errorf("%s answers person %d %s", who, person, answer)
			}
		}
		if _, answer := community.ask(s, "echo", 0, "start"); !strings.Contains(answer, "Welcome back") {
			t.Errorf("start is answered %s", answer)
		}
		s.awaitIdle()
		s.killed()
		if _, answer := community.ask(s, "echo", 0, "hello again"); !strings.Contains(answer, "hello again") {
			t.Errorf("after start the answer is %s", answer)
		}
		if list := s.inbox("block", "list", "--stop", "--json"); strings.Contains(list, community.Persons[0].ID) {
			t.Errorf("after start the stop words are %s", list)
		}
	})
}

// TestServersWhoseAgentsAnswerEachOtherStop: two agents that mention each other in every answer fall silent by themselves,
// and the timeline says why.
func TestServersWhoseAgentsAnswerEachOtherStop(t *testing.T) {
	for name, c := range map[string]struct{ agent, limits, code, why string }{
		"too fast": {"max_hops = 32\n", "[limits]\nbot_turns = 3\n", "chain:ping_pong", "more than 3 messages of this agent in this thread within"},
		"too long": {"max_hops = 32\n", "[limits]\nbot_turns_per_thread = 3\n", "chain:too_deep", "more than 3 messages of this agent in this thread"},
		"used up":  {"max_hops = 3\n", "", "chain:exhausted", "agents have answered each other 3 times in this thread"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hostA, hostB := freeAddress(t), freeAddress(t)
			mentioning := func(address string) func(normalized.Message) normalized.Response {
				return func(normalized.Message) normalized.Response {
					said := say("Dear " + address + ", what do you think?")
					said.Cc = []string{address}
					return said
				}
			}
			first, second := startScripted(t, mentioning("@second@"+hostB)), startScripted(t, mentioning("@first@"+hostA))
			more := "answer_agents = true\n" + c.agent
			a := start(t, instance.Settings{HTTP: hostA, Agents: first.table("first", more), More: c.limits})
			b := start(t, instance.Settings{HTTP: hostB, Database: postgres(t), Agents: second.table("second", more), More: c.limits})
			community := startFediverse(t, 1)
			community.ask(a, "first", 0, "hello")
			eventually(t, "one of the agents falls silent", func() bool {
				return slices.Contains(states(t, a.Instance), "silent") || slices.Contains(states(t, b.Instance), "silent")
			})
			a.awaitIdle()
			b.awaitIdle()
			asked := len(first.questions()) + len(second.questions())
			if asked < 4 || asked > 12 {
				t.Errorf("the agents were asked %d times", asked)
			}
			silent, on := silentTurn(t, a), a
			if silent == "" {
				silent, on = silentTurn(t, b), b
			}
			if shown := on.inbox("show", silent); !strings.Contains(shown, c.code+": "+c.why) {
				t.Errorf("the timeline does not say %s: %s\n%s", c.code, c.why, shown)
			}
			if n := audited(t, on, "chain:*"); n != 1 {
				t.Errorf("%d records of the chain; want 1", n)
			}
		})
	}
}

// silentTurn returns the id of a turn that is not answered; empty = there is none.
func silentTurn(t *testing.T, s *server) string {
	t.Helper()
	found, err := s.Column(t.Context(), "SELECT id FROM turns WHERE state = 'silent'")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		return ""
	}
	return found[0]
}
