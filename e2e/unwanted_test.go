package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
)

// TestCancelledAnswerIsNotSent: the host of a thread is down, the second of two answers is cancelled, the host comes back. It gets one post.
func TestCancelledAnswerIsNotSent(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		community := startFediverse(t, 1)
		s := start(t, instance.Settings{Database: database})
		community.Away(true)
		person := community.Persons[0]
		first := person.Mention(s.Actor("echo"), "first", "one")
		second, err := person.Mention(s.Actor("echo"), "second", "two").With(map[string]any{"inReplyTo": first.NoteID})
		if err != nil {
			t.Fatal(err)
		}
		for _, mention := range []load.Mention{first, second} {
			if status := do(t, delivery(t, person, s.Actor("echo")+"/inbox", mention, load.Signature{})); status != http.StatusAccepted {
				t.Fatalf("a mention is answered %d", status)
			}
		}

		type waiting struct{ ID, State, Turn string }
		var rows []waiting
		eventually(t, "both answers wait for the host", func() bool {
			rows = listedAs[waiting](t, s.inbox("deliveries", "list", "--json"))
			return len(rows) == 2 && slices.ContainsFunc(rows, func(w waiting) bool { return w.State == "retry" })
		})
		blocked := slices.IndexFunc(rows, func(w waiting) bool { return w.State == "pending" })
		if blocked < 0 {
			t.Fatalf("the answers are %+v; want one behind the other", rows)
		}
		s.inbox("deliveries", "cancel", rows[blocked].ID)
		community.Away(false)

		arrival := await.Receive(t, community.arrivals, "the first answer")
		if arrival.InReplyTo != first.NoteID {
			t.Errorf("the answer to %s comes first", arrival.InReplyTo)
		}
		community.quiet(s)
		if after := listedAs[waiting](t, s.inbox("deliveries", "list", "--state", "cancelled", "--json")); len(after) != 1 || after[0].ID != rows[blocked].ID {
			t.Errorf("cancelled: %+v", after)
		}
	})
}

// TestRetryOfAMailGoesToWhomItLacks: one of three recipients is put off until the delivery is given up. A retry by the operator names that
// recipient alone.
func TestRetryOfAMailGoesToWhomItLacks(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, "[[agents]]\nname = \"echo\"\nkind = \"echo\"\nreply_all = true\n", func(s *instance.Settings) { s.Retry = `["100ms"]` })
		const late = "late@sender.test"
		recipients := []string{"ann@sender.test", "bob@sender.test", late}
		p.sink.PutOff(late, true)
		p.send("ann@sender.test", "echo@inbox.test", p.dkimsign(p.mail("three@sender.test", "echo@inbox.test", map[string]string{"Cc": strings.Join(recipients[1:], ", ")})))

		dead := p.awaitDeliveries("dead", 1)
		orders := func() (counts []int) {
			for _, recipient := range recipients {
				counts = append(counts, p.sink.Orders(recipient))
			}
			return counts
		}
		if before := orders(); before[0] != 1 || before[1] != 1 || before[2] != 2 {
			t.Fatalf("the recipients were named %v times; want each once, and the one who is put off twice", before)
		}

		p.sink.PutOff(late, false)
		p.inbox("deliveries", "retry", dead[0].ID)
		p.awaitDeliveries("delivered", 1)
		if after := orders(); after[0] != 1 || after[1] != 1 || after[2] != 3 {
			t.Errorf("the recipients were named %v times; want one more for the last", after)
		}
	})
}
