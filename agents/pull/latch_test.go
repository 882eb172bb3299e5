package pull

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"inbox/internal/await"
	"inbox/internal/fault"
)

// rivalMailbox lets another node write a document just before this node would.
type rivalMailbox struct {
	Mailbox

	key    string // of the document
	value  string
	writes int // how often the other node was first
}

func (m *rivalMailbox) PutIfAbsent(ctx context.Context, namespace, key string, value []byte, expires time.Time) ([]byte, bool, error) {
	if m.key == key && strings.HasPrefix(namespace, runSpace) {
		m.key = ""
		m.writes++
		if _, _, err := m.Mailbox.PutIfAbsent(ctx, namespace, key, []byte(m.value), expires); err != nil {
			return nil, false, err
		}
	}
	return m.Mailbox.PutIfAbsent(ctx, namespace, key, value, expires)
}

// TestClaimOfADeadNodeIsHeld: a node claims an offer for a program and dies before the program has it. No other program gets the run; when its
// lease is over the turn is tried again.
func TestClaimOfADeadNodeIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mailbox := &rivalMailbox{Mailbox: NewMemory()}
		n := newNode(t, mailbox, Settings{})
		turn := question()
		done := n.run(t.Context(), turn)
		synctest.Wait()
		mailbox.key, mailbox.value = claimKey, `{"agent":"helper","turn":"`+turn.ID+`","attempt":1,"until":"2100-01-01T00:00:00Z"}`
		if status, said := n.ask(t, http.MethodPost, "/take", ""); status != http.StatusNoContent || mailbox.writes != 1 {
			t.Fatalf("a claimed run is given out: %d %s", status, said)
		}

		if got := await.Receive(t, done, "the end of the lease"); got.err == nil || fault.Of(got.err).Permanent {
			t.Fatalf("the run of the dead node ends with %v", got.err)
		}

		turn.Attempt++
		done = n.run(t.Context(), turn)
		taken := n.take(t)
		n.want(t, http.StatusOK, taken.path("answer"), answerHello)
		mustAnswer(t, done, "hello")
	})
}

// TestFirstEndCounts: two nodes end a run at a time. The turn has the end that was stored, and the program of the other one hears so.
func TestFirstEndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mailbox := &rivalMailbox{Mailbox: NewMemory()}
		n := newNode(t, mailbox, Settings{})
		done := n.run(t.Context(), question())
		taken := n.take(t)
		mailbox.key, mailbox.value = endKey, `{"outcome":"answered","digest":"other","response":{"status":"completed","parts":[{"kind":"text","mime":"text/plain","content":"first"}]}}`
		if said := n.want(t, http.StatusConflict, taken.path("answer"), answerHello); mailbox.writes != 1 {
			t.Errorf("says %s", said)
		}
		mustAnswer(t, done, "first")
	})
}
