package e2e

import (
	"slices"
	"testing"

	"inbox/exchange"
)

// The limits of a server on the internet, which the servers of these tests do not have by themselves.
const usualLimits = `[limits]
sender = ["30/1m", "300/1h"]
host = ["600/1m"]
agent = ["1200/1m"]
total = ["3000/1m"]
thread = ["60/1h"]
mail_sender = ["20/1h"]
mail_pace = "5s"
http = ["3000/1m"]
`

// TestAcknowledgedIsAnsweredAfterRefusals: while the database refuses, peers of all protocols repeat the same messages far
// more often than any limit allows, as real ones do. What is acknowledged afterwards is answered, once, and never kept
// in silence; nothing but stored messages used up a limit.
func TestAcknowledgedIsAnsweredAfterRefusals(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		w := newStormWith(t, database, usualLimits)
		const senders, outages = 12, 2
		w.most = 4
		allow, err := w.s.Refuse(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.begin(senders)
		for outage := range outages {
			before := w.retries.Load()
			eventually(t, "each sender was refused 40 times", func() bool { return w.retries.Load() >= before+40*senders })
			taken := w.acknowledged.Load() // now, while it stays as it is
			if err := allow(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the server takes messages again", func() bool { return w.acknowledged.Load() >= min(taken+senders, int64(senders*w.most)) })
			if outage == outages-1 {
				break
			}
			if allow, err = w.s.Refuse(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "every message is acknowledged", func() bool { return w.acknowledged.Load() == int64(senders*w.most) })
		w.finish()
		w.judge()
		w.allAnswered(senders * w.most)
	})
}

// allAnswered demands that every stored message has its agent's answer: a notice or silence is none.
func (w *storm) allAnswered(messages int) {
	w.t.Helper()
	found := states(w.t, w.s.Instance)
	unanswered := slices.DeleteFunc(slices.Clone(found), func(state string) bool { return state == exchange.StateAnswered })
	if len(found) != messages || len(unanswered) > 0 {
		reasons, _ := w.s.Column(w.t.Context(), "SELECT state || ': ' || reason FROM turns WHERE state <> 'answered' LIMIT 20")
		w.t.Errorf("%d messages are stored, want %d; not answered: %v", len(found), messages, reasons)
	}
}
