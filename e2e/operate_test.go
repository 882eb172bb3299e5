package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/operator"
)

// typed runs a command with something on its standard input, and returns what it printed and whether it ended well.
func (s *server) typed(input string, arguments ...string) (string, bool) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), s.Binary, append([]string{"--config", s.ConfigFile()}, arguments...)...)
	command.Dir, command.Env, command.Stdin = s.Directory, append(os.Environ(), "INBOX_TOKEN="), strings.NewReader(input)
	output, err := command.CombinedOutput()
	if command.ProcessState == nil {
		s.t.Fatal(err)
	}
	return string(output), err == nil
}

func decodedAs[T any](t *testing.T, text string) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return value
}

// decodeList reads the rows of a list that a command printed.
func decodeList[T any](text string, rows *[]T) error {
	var list exchange.List[T]
	err := json.Unmarshal([]byte(text), &list)
	*rows = list.Items
	return err
}

// listedAs returns the rows of a list that a command printed.
func listedAs[T any](t *testing.T, text string) (rows []T) {
	t.Helper()
	if err := decodeList(text, &rows); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return rows
}

// TestOperatorTalks has the operator talk to agents from the terminal of the server.
func TestOperatorTalks(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		s := start(t, instance.Settings{Database: database, Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n\n" +
			"[[agents]]\nname = \"closed\"\nkind = \"echo\"\naccess = \"rules\"\n\n[[agents.rules]]\neffect = \"allow\"\naddress = \"@ana@social.test\"\n\n" +
			"[[agents]]\nname = \"staff\"\nkind = \"echo\"\naccess = \"rules\"\n\n[[agents.rules]]\neffect = \"allow\"\nmethod = \"urn:mentionable:auth:local-operator:v0.1\"\nsubject = \"operator:*\"\n"})

		if got := s.inbox("chat", "@echo", "hello", "there"); got != "hello there\n" {
			t.Errorf("the answer is %q", got)
		}
		again := decodedAs[struct{ Session, Reply, Status string }](t, s.inbox("chat", "--json", "--continue", "@echo", "again"))
		shown := decodedAs[operator.Shown](t, s.inbox("show", "--json", again.Session))
		if again.Reply != "again" || again.Status != "completed" || len(shown.Others) != 1 {
			t.Errorf("the answer is %+v, and its session has %v besides", again, shown.Others)
		}
		if got := shown.Turn.Message.Sender.Identities; len(got) != 1 || got[0].Method != "urn:mentionable:auth:local-operator:v0.1" || !strings.HasPrefix(got[0].Subject, "operator:") {
			t.Errorf("the evidence is %+v", got)
		}

		if got, fine := s.typed("one\n\ntwo", "chat", "@echo"); got != "one\ntwo\n" || !fine {
			t.Errorf("a conversation: %q, %v", got, fine)
		}
		if got := s.inbox("chat", "@staff", "hello"); got != "hello\n" {
			t.Errorf("an agent with a rule for the operator says %q", got)
		}
		if got, fine := s.typed("", "chat", "@closed", "hello"); !strings.Contains(got, "this agent is not open to you") || fine {
			t.Errorf("an agent that is closed to the operator: %q, %v", got, fine)
		}
		if got, fine := s.typed("", "chat", "hello"); !strings.Contains(got, "name the agent, one of @echo, @closed, @staff") || fine {
			t.Errorf("without an agent: %q, %v", got, fine)
		}

		s.stop()
		if got, fine := s.typed("", "chat", "@echo", "hello"); !strings.Contains(got, `start it with "inbox serve"`) || strings.Count(got, "\n") != 1 || fine {
			t.Errorf("without a server: %q, %v", got, fine)
		}
		s.start()
	})
}

// outOfService is a mail server that takes nothing for good, until the function it returns is called: then nothing listens there.
func outOfService(t *testing.T) (address string, end func()) {
	t.Helper()
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = listener.Close() })
	t.Cleanup(end)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				_, _ = fmt.Fprint(connection, "220 mail.test ESMTP\r\n")
				for lines := bufio.NewScanner(connection); lines.Scan(); {
					answer := "554 5.3.2 the server is out of service"
					if strings.HasPrefix(lines.Text(), "EHLO") {
						answer = "250 mail.test"
					}
					_, _ = fmt.Fprint(connection, answer+"\r\n")
				}
			}()
		}
	}()
	return address, end
}

// TestRetryAfterAnOutage lets answers die while the mail server of all receivers is away, and sends them when it is back.
func TestRetryAfterAnOutage(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		address, back := outOfService(t)
		p := startPostWith(t, database, agents, func(settings *instance.Settings) { settings.Smarthost = "smtp://" + address })

		const mails = 4
		var ids []string
		for i := range mails {
			id := fmt.Sprintf("outage-%d@sender.test", i)
			mail := load.Mail{From: fmt.Sprintf("ann%d@sender.test", i), To: "open@inbox.test", MessageID: id, Subject: "Hi", Body: "hello?"}
			if err := smtp.SendMail(p.Settings.SMTP, nil, mail.From, []string{mail.To}, mail.Bytes()); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		overview := func() operator.Overview { return decodedAs[operator.Overview](t, p.inbox("waiting", "--json")) }
		eventually(t, "the death of all deliveries", func() bool { return overview().Deliveries == mails })

		back()
		var sink *load.Sink
		eventually(t, "the address being free", func() (free bool) { // a program that another test begins has a copy of the listener until it runs
			var err error
			sink, err = load.NewSink(address, p.outbox.arrived)
			return err == nil
		})
		t.Cleanup(sink.Close)
		for _, open := range overview().Breakers {
			p.inbox("breakers", "close", open.Target)
		}

		type outcome struct{ Deliveries exchange.RetriedWork }
		retry := func(more ...string) exchange.RetriedWork {
			return decodedAs[outcome](t, p.inbox(append([]string{"retry", "--deliveries", "--since", "1h", "--json"}, more...)...)).Deliveries
		}
		if planned := retry("--dry-run", "--channel", "email"); planned.Retried != mails || len(planned.Work) != mails {
			t.Errorf("it would send %+v", planned)
		}
		if other := retry("--channel", "activitypub"); other.Retried != 0 {
			t.Errorf("of another channel: %+v", other)
		}

		results := make([]exchange.RetriedWork, 2) // at once, as when an operator is impatient
		var both sync.WaitGroup
		for i := range results {
			both.Go(func() { results[i] = retry("--agent", "open") })
		}
		both.Wait()
		if results[0].Retried+results[1].Retried != mails {
			t.Errorf("two commands at once sent %+v", results)
		}
		if again := retry(); again.Retried != 0 {
			t.Errorf("a third one sent %+v", again)
		}
		for _, id := range ids {
			p.outbox.await(t, id)
		}
		eventually(t, "the end of all that waits", func() bool { found := overview(); return found.Deliveries == 0 && len(found.Breakers) == 0 })
		p.retriesDeadJobs()
		for _, id := range ids {
			if replies, _ := p.outbox.repliesTo(id); len(replies) != 1 {
				t.Errorf("%d answers to %s", len(replies), id)
			}
		}
	})
}

// retriesDeadJobs gives up the work on a message that was answered all the same, as a server does that dies again and again behind the answer, and has it
// done once more: by the first command alone, and without a second answer.
func (p *post) retriesDeadJobs() {
	p.t.Helper()
	turns, err := p.Column(p.t.Context(), `SELECT id FROM turns ORDER BY id LIMIT 1`)
	if err != nil || len(turns) != 1 {
		p.t.Fatal(turns, err)
	}
	database, err := p.Writable()
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = database.Close() }()
	const dead = `INSERT INTO jobs (id, kind, partition_of, partition_key, state, attempt, run_at, lease_owner, lease_until, fence, created_at, updated_at, reason, payload)
		VALUES ($1, 'turn', '', '', 'dead', 9, $2, '', 0, 0, $2, $2, 'it was given up', $3)`
	if _, err := database.ExecContext(p.t.Context(), dead, uuid.Must(uuid.NewV7()).String(), time.Now().UnixMicro(), turns[0]); err != nil {
		p.t.Fatal(err)
	}

	type outcome struct{ Jobs exchange.RetriedWork }
	for _, try := range []struct {
		more []string
		want int
	}{{[]string{"--dry-run"}, 1}, {[]string{"--channel", "activitypub"}, 0}, {[]string{"--agent", "open"}, 1}, {nil, 0}} {
		done := decodedAs[outcome](p.t, p.inbox(append([]string{"retry", "--jobs", "--since", "1h", "--json"}, try.more...)...)).Jobs
		if done.Retried != try.want || try.want == 1 && done.Work[0].TurnID != turns[0] {
			p.t.Errorf("retry --jobs %v: %+v, want %d", try.more, done, try.want)
		}
	}
	eventually(p.t, "the end of the work", func() bool {
		left, err := p.Column(p.t.Context(), `SELECT id FROM jobs WHERE kind = 'turn'`)
		return err == nil && len(left) == 0
	})
}

// TestGreeting: with a configuration file a terminal is greeted with addresses, and a pipe is not.
func TestGreeting(t *testing.T) {
	t.Parallel()
	s := newServer(t, instance.Settings{})
	if err := s.Configure(); err != nil {
		t.Fatal(err)
	}

	terminal, file := newTerminal(t)
	command := exec.CommandContext(t.Context(), s.Binary, "--config", s.ConfigFile(), "serve")
	command.Dir, command.Env, command.Stdout = s.Directory, os.Environ(), terminal
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	_ = terminal.Close()
	greeting := make(chan string, 1)
	go func() { greeting <- readTo(file, "Look: inbox doctor") }()
	got := <-greeting
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"runs with " + s.ConfigFile(), "@echo@", s.URL() + "/@echo/chat", s.URL() + "/a2a/echo/.well-known/agent-card.json", s.URL() + "/console, sign in with the token in ", s.URL() + "/api/v1",
		"SMTP at " + s.Settings.SMTP, "standard error", filepath.Base(s.ConfigFile()),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the greeting lacks %q:\n%s", want, got)
		}
	}

	s.start()
	s.stop()
	if log := s.Log(); strings.Contains(log, "Look: inbox doctor") {
		t.Errorf("a file is greeted, too:\n%s", log)
	}
}
