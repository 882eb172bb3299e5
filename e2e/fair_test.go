package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"inbox/e2e/load"
	"inbox/exchange"
)

// TestGuestsOfAnAgentThatIsAwayDelayNobody: messages to an agent that no program works for take no place from other agents,
// before and after the server is killed; when a program comes it gets all, those of each sender in their order.
func TestGuestsOfAnAgentThatIsAwayDelayNobody(t *testing.T) {
	const senders, each = 8, 25
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, "[[agents]]\nname = \"away\"\nkind = \"pull\"\nunverified = \"answer\"\n\n"+
			"[[agents]]\nname = \"echo\"\nkind = \"echo\"\n\n[limits]\nsender = []\n")
		mailer, err := load.DialMail(p.Settings.SMTP)
		if err != nil {
			t.Fatal(err)
		}
		defer mailer.Close()
		for number := range each {
			for sender := range senders {
				from := fmt.Sprintf("guest%d@nowhere.test", sender)
				mail := load.Mail{
					From: from, To: "away@inbox.test", MessageID: fmt.Sprintf("m%d-%d@nowhere.test", sender, number),
					Subject: fmt.Sprintf("Question %d", number), Body: fmt.Sprintf("from %d number %02d", sender, number),
				}
				if err := mailer.Send(from, "away@inbox.test", mail.Bytes()); err != nil {
					t.Fatal(err)
				}
			}
		}
		prompt := func(when string) {
			t.Helper()
			for n := range 5 {
				peer := p.a2aPeer("echo", fmt.Sprintf("ann-%s-%d", when, n))
				begun := time.Now()
				answered(t, peer, when)
				if took := time.Since(begun); took > 10*time.Second {
					t.Errorf("%s: another agent answered after %v", when, took)
				}
			}
		}
		prompt("before")
		p.killed()
		prompt("after")
		if running, err := p.Column(t.Context(), "SELECT id FROM jobs WHERE kind = 'turn' AND state = 'running'"); err != nil || len(running) != 0 {
			t.Errorf("%d turns hold places, %v", len(running), err)
		}
		token := strings.TrimSpace(lastLine(p.inbox("tokens", "create", "--agent", "away", "--pull", "puller")))
		next := map[string]int{}
		for taken := range senders * each {
			sender, number := pullOne(t, p.URL(), token)
			if next[sender] != number {
				t.Fatalf("turn %d is number %d of %s; want %d", taken, number, sender, next[sender])
			}
			next[sender]++
		}
		for sender := range senders {
			p.outbox.await(t, fmt.Sprintf("m%d-%d@nowhere.test", sender, each-1))
		}
		if states, err := p.Column(t.Context(), "SELECT id FROM turns WHERE agent = 'away' AND state <> '"+exchange.StateAnswered+"'"); err != nil || len(states) != 0 {
			t.Errorf("%d turns are not answered, %v", len(states), err)
		}
	})
}

// pullOne takes a turn and answers it.
func pullOne(t *testing.T, base, token string) (sender string, number int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	call := func(path string, body []byte) *http.Response {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/pull/away/"+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return response
	}
	taken := call("take?wait=30s", nil)
	defer taken.Body.Close()
	var turn struct {
		Turn    struct{ ID string }
		Lease   struct{ ID string }
		Message struct{ Parts []struct{ Content string } }
	}
	if err := json.NewDecoder(taken.Body).Decode(&turn); err != nil || len(turn.Message.Parts) == 0 {
		t.Fatalf("take: %d, %+v, %v", taken.StatusCode, turn, err)
	}
	text := turn.Message.Parts[0].Content
	_, said, _ := strings.Cut(text, "from ")
	if _, err := fmt.Sscanf(said, "%s number %d", &sender, &number); err != nil {
		t.Fatalf("the question is %q", text)
	}
	answer := []byte(`{"parts": [{"kind": "text", "mime": "text/plain", "content": "thank you"}]}`)
	given := call(turn.Turn.ID+"/answer?lease="+turn.Lease.ID, answer)
	defer given.Body.Close()
	if given.StatusCode != http.StatusOK {
		t.Fatalf("answer: %d", given.StatusCode)
	}
	return sender, number
}
