package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/identity"
	"inbox/operator"
)

const (
	steady = "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n"
	closed = "access = \"public\"\n[[agents.rules]]\neffect = \"deny\"\naddress = \"@guest7@inbox.test\"\n"
	more   = "[[agents]]\nname = \"extra\"\nkind = \"echo\"\n"
)

// configure writes the agents of the file anew.
func (s *server) configure(agents string) {
	s.t.Helper()
	s.Settings.Agents = agents
	if err := s.Configure(); err != nil {
		s.t.Fatal(err)
	}
}

// operatorCall asks the operator API and returns status and body.
func (s *server) operatorCall(method, path, body string) (int, string) {
	s.t.Helper()
	token, err := os.ReadFile(filepath.Join(s.Directory, "data", operator.AdminTokenFile))
	if err != nil {
		s.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.URL()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return response.StatusCode, string(answer)
}

func (s *server) reload() (answer operator.Reloaded) {
	s.t.Helper()
	status, body := s.operatorCall(http.MethodPost, "/api/v1/reload", "")
	if status != http.StatusOK || json.Unmarshal([]byte(body), &answer) != nil {
		s.t.Fatalf("reload: %d %s", status, body)
	}
	return answer
}

// TestReloadUnderLoad: no request fails, no message is lost and none is answered twice while agents and rules change, and the process
// does not grow.
func TestReloadUnderLoad(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, steady)
		peer := p.a2aPeer("echo", "ann")

		var tasks, mails atomic.Int64
		stop := make(chan struct{})
		var working sync.WaitGroup
		working.Go(func() {
			for number := 0; !over(stop); number++ {
				text := fmt.Sprintf("task %d", number)
				task, err := peer.Send(t.Context(), load.SendBody(fmt.Sprint("t", number), text, false))
				if err != nil || task.Status.State != completed || !strings.Contains(texts(task), text) || len(task.Answers()) != 1 {
					t.Errorf("%s: %v %+v", text, err, task)
					return
				}
				tasks.Add(1)
			}
		})
		working.Go(func() {
			for number := 0; !over(stop); number++ {
				id := fmt.Sprintf("load%d@sender.test", number)
				if err := p.tryPut(load.Mail{From: "ann@sender.test", To: "echo@inbox.test", MessageID: id, Subject: "Hello", Body: "hello"}); err != nil {
					t.Errorf("mail %d: %v", number, err)
					return
				}
				mails.Add(1)
			}
		})

		turn := func(number int) {
			t.Helper()
			agents := steady
			if number%2 == 0 {
				agents += closed + more
			}
			before := tasks.Load() + mails.Load()
			p.configure(agents)
			if answer := p.reload(); len(answer.Changed) != 2 || len(answer.UnchangedUntilRestart) != 0 {
				t.Errorf("reload %d: %+v", number, answer)
			}
			eventually(t, "messages pass between two reloads", func() bool { return t.Failed() || tasks.Load()+mails.Load() > before+2 })
		}

		for number := range 10 {
			turn(number)
		}
		memory, goroutines := p.memory(), p.metric("go_goroutines")
		for number := range 10 {
			turn(number)
		}
		close(stop)
		working.Wait()

		p.awaitIdle()
		if grown := p.memory() - memory; grown > 48<<20 {
			t.Errorf("the process grew by %d MiB in ten reloads", grown>>20)
		}
		p.awaitMetric("go_goroutines", "no reload leaves a goroutine", func(now float64) bool { return now < goroutines+30 })
		for number := range mails.Load() {
			if replies, _ := p.outbox.repliesTo(fmt.Sprintf("load%d@sender.test", number)); len(replies) != 1 {
				t.Errorf("mail %d has %d replies", number, len(replies))
			}
		}
		t.Logf("%d tasks and %d mails, %d MiB", tasks.Load(), mails.Load(), p.memory()>>20)
	})
}

func over(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// tryPut is put from any goroutine.
func (p *post) tryPut(mail load.Mail) error {
	signed, err := p.sender.Sign(mail.Bytes())
	if err != nil {
		return err
	}
	sender, err := load.DialMail(p.Settings.SMTP)
	if err != nil {
		return err
	}
	defer sender.Close()
	return sender.Send(mail.From, mail.To, signed)
}

func (s *server) memory() int64 {
	s.t.Helper()
	bytes, err := s.Memory()
	if err != nil {
		s.t.Fatal(err)
	}
	return bytes
}

// TestReloadTakesEffect: a new agent is reached by every way, a rule holds, a removed agent is gone, and what cannot change is named.
func TestReloadTakesEffect(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, steady)
		guest, extra := p.a2aPeer("echo", "guest7"), p.a2aPeer("extra", "ann")
		if _, err := extra.Send(t.Context(), load.SendBody("early", "hello", false)); err == nil {
			t.Fatal("an agent answers that is not configured yet")
		}

		p.Settings.More = "[operator]\nname = \"Somebody\"\n"
		p.configure(steady + closed + more)
		said := p.inbox("reload")
		for _, want := range []string{"The server at " + p.URL(), "agents[echo].rules: changed", "agents[extra]: changed", "operator.name: needs a restart"} {
			if !strings.Contains(said, want) {
				t.Errorf("reload says\n%s\nwithout %q", said, want)
			}
		}

		if _, err := guest.Send(t.Context(), load.SendBody("g", "hello", false)); err == nil {
			t.Error("a sender is let in whom the new rule keeps out")
		}
		if task, err := extra.Send(t.Context(), load.SendBody("late", "by A2A", false)); err != nil || !strings.Contains(texts(task), "by A2A") {
			t.Errorf("the new agent: %v %s", err, texts(task))
		}
		address := identity.Address{Local: "extra", Domain: "inbox.test"}
		if got := p.status("/.well-known/webfinger?resource=" + address.Acct()); got != http.StatusOK {
			t.Errorf("WebFinger of the new agent: %d", got)
		}
		if refusal := p.put(load.Mail{From: "ann@sender.test", To: "extra@inbox.test", MessageID: "new@sender.test", Subject: "Hello", Body: "hello"}); refusal != "" {
			t.Errorf("mail to the new agent: %s", refusal)
		}
		p.outbox.await(t, "new@sender.test")

		p.mistake()

		p.configure(steady)
		if err := p.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the removed agent is gone", func() bool { return p.status("/agents/extra") != http.StatusOK })
		if _, err := guest.Send(t.Context(), load.SendBody("g2", "hello", false)); err != nil {
			t.Errorf("the rule that is gone still holds: %v", err)
		}
	})
}

// mistake writes a bad file, which changes nothing and is told with its line.
func (p *post) mistake() {
	p.t.Helper()
	good := p.Settings.Agents
	p.configure(more + "access = \"nobody\"\n")
	defer p.configure(good)

	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	if _, err := p.Run(ctx, "reload"); err == nil || !strings.Contains(err.Error(), "inbox.toml:") || !strings.Contains(err.Error(), "access") {
		p.t.Errorf("inbox reload of a bad file says: %v", err)
	}
	if status, body := p.operatorCall(http.MethodPost, "/api/v1/reload", ""); status != http.StatusBadRequest || !strings.Contains(body, "inbox.toml:") {
		p.t.Errorf("a bad file is answered %d %s", status, body)
	}
	if !strings.Contains(p.Log(), "changes nothing") {
		p.t.Error("the log does not tell of the bad file")
	}
	if got := p.status("/agents/echo"); got != http.StatusOK {
		p.t.Errorf("after a bad file the old agent answers %d", got)
	}
}

// TestReloadNeedsAServer: the command says that no one was reached.
func TestReloadNeedsAServer(t *testing.T) {
	t.Parallel()
	s := newServer(t, instance.Settings{})
	_, err := s.Run(t.Context(), "reload")
	if err == nil || !strings.Contains(err.Error(), "no server answers at "+s.URL()) {
		t.Error(errors.Join(errors.New("without a server the command says"), err))
	}
}
