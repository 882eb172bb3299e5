package load

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLedgerTellsRepeatsFromSecondReplies(t *testing.T) {
	now := time.Now()
	ledger := NewLedger()
	for _, id := range []string{"good", "repeated", "twice", "lost"} {
		ledger.Sent("email", id, now)
		ledger.Acknowledged(id)
	}
	ledger.Sent("email", "refused", now)
	ledger.Replied("good", "r1", now.Add(time.Second))
	ledger.Replied("repeated", "r2", now)
	ledger.Replied("repeated", "r2", now)
	ledger.Replied("twice", "r3", now)
	ledger.Replied("twice", "r4", now)
	ledger.Replied("never sent", "r5", now)

	want := Counts{
		Sent: 5, Acknowledged: 4, Replied: 3, Missing: 1, Doubled: 1, Repeated: 1, Unasked: 1,
		Examples: []string{"doubled twice", "missing lost", "unasked never sent"},
	}
	if difference := cmp.Diff(want, ledger.Count("")); difference != "" {
		t.Errorf("counts (-want +got):\n%s", difference)
	}
	if got := len(ledger.Latencies("email")); got != 3 {
		t.Errorf("%d latencies; want 3", got)
	}
	select {
	case <-ledger.Answered("good"):
	default:
		t.Error("a reply is not announced")
	}
}
