package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
)

// TestAHundredSessionsOfOneAddressAreOneGuest: who begins a new session for each message hits the limit of one sender,
// while a guest at another address is answered.
func TestAHundredSessionsOfOneAddressAreOneGuest(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		s := start(t, instance.Settings{
			Database: database, Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\naccess = \"public\"\nunverified = \"answer\"\n",
			More: "[limits]\nsender = [\"30/744h\"]\n", Proxies: []string{"127.0.0.0/8"},
		})
		ask := func(address string, i int) string {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"parts":[{"type":"text","text":"hello %d"}]}}}`, i)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/agent/echo", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("X-Forwarded-For", address)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			answer, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			switch { // JSON-RPC says both with 200
			case bytes.Contains(answer, fmt.Appendf(nil, "hello %d", i)):
				return "answered"
			case bytes.Contains(answer, []byte("Too many messages")):
				return "refused"
			}
			return string(answer)
		}
		outcomes := map[string]int{}
		for i := range 100 {
			outcomes[ask("203.0.113.7", i)]++
		}
		if outcomes["answered"] != 30 || outcomes["refused"] != 70 {
			t.Errorf("100 sessions of one address: %v; want 30 answers and 70 refusals", outcomes)
		}
		if outcome := ask("198.51.100.7", 1); outcome != "answered" {
			t.Errorf("another address hears %s", outcome)
		}
	})
}

// TestSixForgedMailsLeaveABoundedDisk: six mails of 20 MB that prove nothing left 138 MB.
func TestSixForgedMailsLeaveABoundedDisk(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPost(t, database)
		used := func() (bytes int64) {
			_ = filepath.WalkDir(filepath.Join(p.Directory, "data"), func(_ string, entry fs.DirEntry, err error) error {
				if info, failed := entry.Info(); err == nil && failed == nil && !entry.IsDir() {
					bytes += info.Size()
				}
				return nil
			})
			return bytes
		}
		before := used()
		body := strings.Repeat(strings.Repeat("x", 70)+"\n", 20_000_000/71)
		for i := range 6 {
			mail := load.Mail{From: "bob@nowhere.test", To: "echo@inbox.test", MessageID: fmt.Sprintf("large-%d@nowhere.test", i), Subject: "Hi", Body: body}
			sender, err := load.DialMail(p.Settings.SMTP)
			if err != nil {
				t.Fatal(err)
			}
			if err := sender.Send(mail.From, mail.To, mail.Bytes()); err == nil || !strings.Contains(err.Error(), "552") {
				t.Errorf("mail %d of 20 MB is answered %v; want 552", i, err)
			}
			sender.Close()
		}
		if grown := used() - before; grown > 10<<20 {
			t.Errorf("six refused mails left %d bytes", grown)
		}
	})
}

// TestMailConversationIsBraked: a program that answers every answer gets as many as the operator allows, whatever is killed
// meanwhile, and no notice; the reason is shown.
func TestMailConversationIsBraked(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, "[[agents]]\nname = \"memory\"\nkind = \"echo\"\n[limits]\nmail_thread = [\"3/744h\"]\n")
		answer := func(i int) load.Mail {
			mail := load.Mail{From: "ann@sender.test", To: "memory@inbox.test", MessageID: fmt.Sprintf("loop-%d@sender.test", i), Subject: "Re: Hi", Body: fmt.Sprintf("answer %d", i)}
			if i > 0 {
				mail.Extra = map[string]string{"In-Reply-To": "<loop-0@sender.test>"}
			}
			return mail
		}
		for i := range 3 {
			if refusal := p.put(answer(i)); refusal != "" {
				t.Fatalf("mail %d: %s", i, refusal)
			}
			p.outbox.await(t, answer(i).MessageID)
		}
		if refusal := p.put(answer(3)); refusal != "" {
			t.Fatal(refusal)
		}
		p.awaitIdle()
		p.awaitCount("3")
		p.killed()
		if refusal := p.put(answer(4)); refusal != "" {
			t.Fatal(refusal)
		}
		p.awaitIdle()
		for i := 3; i < 5; i++ {
			if replies, _ := p.outbox.repliesTo(answer(i).MessageID); len(replies) != 0 {
				t.Errorf("mail %d is answered", i)
			}
			if shown := p.inbox("show", answer(i).MessageID); !strings.Contains(shown, "brake:answers_thread: 3 answers in this conversation within 744h") {
				t.Errorf("the reason is not shown:\n%s", shown)
			}
		}
		if n := audited(t, p.server, "brake:*"); n != 1 {
			t.Errorf("%d records of the brake; want 1", n)
		}
	})
}

// TestPausedAgentTakesNothing: each protocol hears its code; the agent works again when the operator lets it.
func TestPausedAgentTakesNothing(t *testing.T) {
	t.Parallel()
	p := startPostWith(t, "", "[[agents]]\nname = \"memory\"\nkind = \"echo\"\n")
	community := startFediverse(t, 1)
	p.inbox("agents", "pause", "memory", "--reason", "a new model")
	community.awaitStatus(p.server, p.Settings.HTTP, "memory", http.StatusServiceUnavailable)
	mail := load.Mail{From: "ann@sender.test", To: "memory@inbox.test", MessageID: "paused@sender.test", Subject: "Hi", Body: "hello?"}
	if refusal := p.put(mail); !strings.HasPrefix(refusal, "550 5.2.1") {
		t.Errorf("mail is answered %s; want 550 5.2.1", refusal)
	}
	if shown := p.inbox("agents", "pause"); !strings.Contains(shown, "memory") || !strings.Contains(shown, "a new model") {
		t.Errorf("who rests: %s", shown)
	}
	p.inbox("agents", "resume", "memory")
	community.awaitStatus(p.server, p.Settings.HTTP, "memory", http.StatusAccepted)
	if reply := p.ask("resumed@sender.test", "hello again"); !strings.Contains(plain(reply.Raw), "hello again") {
		t.Errorf("the answer is %s", plain(reply.Raw))
	}
}

// TestFullDisk: nothing is taken on any protocol before the disk is full, and a balancer is told to ask another node.
func TestFullDisk(t *testing.T) {
	p := startPostWith(t, "", "[[agents]]\nname = \"memory\"\nkind = \"echo\"\n[limits]\nfree_disk = \"1000000TiB\"\n",
		func(settings *instance.Settings) { settings.Unready = true })
	community := startFediverse(t, 1)
	if _, status := community.knock(p.server, p.Settings.HTTP, "memory", 0, "hello?"); status != http.StatusServiceUnavailable {
		t.Errorf("the fediverse hears %d", status)
	}
	for _, to := range []string{"memory@inbox.test", "postmaster@inbox.test"} {
		refusal := p.put(load.Mail{From: "ann@sender.test", To: to, MessageID: "full@sender.test", Subject: "Hi", Body: "hello?"})
		if !strings.HasPrefix(refusal, "452 4.3.1") {
			t.Errorf("mail to %s is answered %s; want 452 4.3.1", to, refusal)
		}
	}
	if found := states(t, p.Instance); len(found) != 0 {
		t.Errorf("taken: %v", found)
	}
	if status := readiness(t, p.server); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz says %d", status)
	}
}

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
