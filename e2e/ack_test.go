package e2e

import (
	"html"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

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
// A mail of the same age is not acknowledged: nobody expects its answer within seconds.
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
