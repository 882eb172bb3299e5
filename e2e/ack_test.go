package e2e

import (
	"html"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/normalized"
)

// slow is an agent that holds its answers until the test lets them go.
type slow struct {
	*scripted
	begun, release chan struct{}
}

func startSlow(t *testing.T) slow {
	t.Helper()
	s := slow{begun: make(chan struct{}, 16), release: make(chan struct{})}
	s.scripted = startScripted(t, func(message normalized.Message) normalized.Response {
		s.begun <- struct{}{}
		select {
		case <-s.release:
		case <-time.After(2 * patience): // the test failed
		}
		return say("I heard: " + textOf(message.Parts))
	})
	return s
}

// wait waits until that many runs have reached the agent.
func (s slow) wait(t *testing.T, runs int) {
	t.Helper()
	for range runs {
		select {
		case <-s.begun:
		case <-time.After(patience):
			t.Fatalf("the agent was not asked within %s", patience)
		}
	}
}

// mention sends a note and waits for nothing.
func (f *fediverse) mention(s *server, agent, id, text string) load.Mention {
	f.t.Helper()
	mention := f.Persons[0].Mention(s.Actor(agent), id, text)
	if status := do(f.t, delivery(f.t, f.Persons[0], s.Actor(agent)+"/inbox", mention, load.Signature{})); status != http.StatusAccepted {
		f.t.Fatalf("the mention was answered %d", status)
	}
	return mention
}

// nextActivity waits for the next activity.
func (f *fediverse) nextActivity() load.Arrival {
	f.t.Helper()
	select {
	case arrival := <-f.arrivals:
		return arrival
	case <-time.After(patience):
		f.t.Fatalf("nothing arrived within %s", patience)
		return load.Arrival{}
	}
}

// TestLongTurnIsAcknowledgedOnce: the asker is told once, before the answer, also when the server is killed in between.
// A mail of the same age is not acknowledged: no one expects its answer within seconds.
func TestLongTurnIsAcknowledgedOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		agent := startSlow(t)
		p := startPostWith(t, database, agent.table("memory", "ack_after = \"300ms\"\nack_text = \"One moment, please.\""))
		community := startFediverse(t, 1)
		const id = "slow@sender.test"
		signed, err := p.sender.Sign(p.mail(id, "memory@inbox.test", nil))
		if err != nil {
			t.Fatal(err)
		}
		p.send("ann@sender.test", "memory@inbox.test", signed)
		mention := community.mention(p.server, "memory", "1", "how long does it take?")
		agent.wait(t, 2)
		ack := community.nextActivity()
		if text := html.UnescapeString(string(ack.Body)); ack.InReplyTo != mention.NoteID || !strings.Contains(text, "One moment, please.") ||
			strings.Contains(text, public) {
			t.Fatalf("instead of the acknowledgement came %s", text)
		}
		eventually(t, "the acknowledgement is written down as delivered", func() bool {
			return slices.Equal(p.acknowledgements(), []string{"delivered"})
		})
		p.killed()
		agent.wait(t, 2) // both turns run again
		close(agent.release)
		if answer := string(community.nextActivity().Body); !strings.Contains(answer, "how long does it take?") {
			t.Errorf("instead of the answer came %s", answer)
		}
		if reply := plain(p.outbox.await(t, id).Raw); !strings.Contains(reply, "what is this?") {
			t.Errorf("instead of the answer came %s", reply)
		}
		p.nothingMore(community)
		if replies, _ := p.outbox.repliesTo(id); len(replies) != 1 {
			t.Errorf("%d mails; want the answer alone", len(replies))
		}
		if acks := p.acknowledgements(); len(acks) != 1 {
			t.Errorf("acknowledgements: %v; want one", acks)
		}
	})
}

func TestLongTurnIsAcknowledgedByALike(t *testing.T) {
	t.Parallel()
	agent := startSlow(t)
	p := startPostWith(t, "", agent.table("memory", "ack_after = \"300ms\"\nack_like = true"))
	community := startFediverse(t, 1)
	mention := community.mention(p.server, "memory", "1", "how long does it take?")
	like := community.nextActivity()
	if like.Type != "Like" || !strings.Contains(string(like.Body), `"object":"`+mention.NoteID+`"`) {
		t.Fatalf("instead of the like came %s", like.Body)
	}
	close(agent.release)
	if answer := community.nextActivity(); answer.InReplyTo != mention.NoteID || !strings.Contains(string(answer.Body), "how long does it take?") {
		t.Errorf("instead of the answer came %s", answer.Body)
	}
	p.nothingMore(community)
}

// acknowledgements returns the states of their deliveries.
func (p *post) acknowledgements() []string {
	p.t.Helper()
	found, err := p.Column(p.t.Context(), "SELECT state FROM deliveries WHERE reply_id IN (SELECT id FROM replies WHERE notice = -1)")
	if err != nil {
		p.t.Fatal(err)
	}
	return found
}

// nothingMore waits until nothing is left to do and demands that nothing else arrived.
func (p *post) nothingMore(community *fediverse) {
	p.t.Helper()
	eventually(p.t, "nothing is left to do", func() bool {
		jobs, err := p.Column(p.t.Context(), "SELECT id FROM jobs")
		if err != nil {
			p.t.Fatal(err)
		}
		return len(jobs) == 0
	})
	select {
	case arrival := <-community.arrivals:
		p.t.Errorf("more arrived: %s", arrival.Body)
	default:
	}
}

// acceptance is what must hold for the server to be a citizen of the fediverse, and the tests that show it: a folder,
// a function, and the name of a subtest where one of many is meant.
var acceptance = []struct {
	item  string
	shown []string
}{
	{"mention and reply with Fedify and GoToSocial, each visibility, both signature schemes, with and without proof", []string{
		"e2e TestFedify in every way", "e2e TestServersWithHabits GoToSocial",
		"adapters/activitypub TestRecordedSoftware", "adapters/activitypub TestProofs", "adapters/activitypub TestOurActivitiesCarryProofs",
	}},
	{"every forged case is answered 4xx, runs no agent, and fetches nothing when policy refuses it", []string{
		"adapters/activitypub TestSecurity", "adapters/activitypub TestRefusedWithoutFetch", "adapters/activitypub TestRefusedAfterFetch",
		"adapters/activitypub TestForwarded", "e2e TestForgedDeliveriesAreRefusedAndLeaveNoRow",
	}},
	{"the same activity three times by personal and shared inbox has one reply", []string{
		"e2e TestFedify sends three times", "adapters/activitypub TestSameActivityThreeTimes",
	}},
	{"what is said to a reply stays in its conversation", []string{
		"e2e TestFedify sends three times", "adapters/activitypub TestThreads", "adapters/activitypub TestForeignConversations",
	}},
	{"a peer that is down gets its reply afterwards, once; a peer that refuses one scheme gets the other", []string{
		"e2e TestFedify is down for a while", "e2e TestServersWithHabits down for a while", "e2e TestFedify refuses one scheme",
		"e2e TestServersWithHabits RFC 9421 alone", "adapters/activitypub TestSecondKnock", "adapters/activitypub TestPeerDown",
	}},
	{"a note that is deleted before the run has none; one that is deleted afterwards is erased; edits likewise", []string{
		"e2e TestFedify edits and deletes", "e2e TestFedify gets changed answers",
	}},
	{"servers in secure mode answer our signed GETs", []string{
		"e2e TestFedify in secure mode", "e2e TestServersWithHabits GoToSocial", "adapters/activitypub TestGoToSocialKeys", "adapters/activitypub TestOurFetchesVerify",
	}},
	{"1000 Deletes of unknown actors cost no fetch and no row", []string{"adapters/activitypub TestUnknownActorDeletes"}},
	{"redirecting, rebinding and huge servers are refused", []string{
		"internal/safehttp TestRebinding", "internal/safehttp TestRedirectToPrivateIsRefused", "internal/safehttp TestRedirectLimits",
		"internal/safehttp TestBodyCap", "adapters/activitypub TestRefusedAfterFetch redirect to another server", "adapters/activitypub TestRefusedAfterFetch huge actor",
	}},
	{"percent-encoded and queried inbox paths verify", []string{
		"adapters/activitypub TestAcceptedForms percent-encoded path", "adapters/activitypub TestAcceptedForms queried inbox",
	}},
}

// TestAcceptanceIsShown keeps the list true: the tests that it names exist.
func TestAcceptanceIsShown(t *testing.T) {
	t.Parallel()
	root, err := instance.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range acceptance {
		for _, shown := range entry.shown {
			folder, rest, _ := strings.Cut(shown, " ")
			function, subtest, _ := strings.Cut(rest, " ")
			if !hasTest(t, filepath.Join(root, folder), function, subtest) {
				t.Errorf("%s: there is no test %s", entry.item, shown)
			}
		}
	}
}

// hasTest looks for the function, and for the subtest's name as a text in the same file.
func hasTest(t *testing.T, folder, function, subtest string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(function) + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(text) && strings.Contains(string(text), subtest) {
			return true
		}
	}
	return false
}
