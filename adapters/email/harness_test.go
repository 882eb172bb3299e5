package email

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inbox/adapters/email/emailtest"
	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must come; machines may be slow.
const patience = await.Patience

// engine records what is received and returns it by id, as the store would.
type engine struct {
	exchangetest.Receiver
	exchangetest.Agents

	mu      sync.Mutex
	replies map[string]int // native id of a reply → index of its question
}

func (e *engine) ContinuedMessage(_ context.Context, agent, _, principal string, ids []string) (exchange.ThreadEntry, bool, error) {
	for _, id := range ids {
		if entry, found := e.find(agent, id, func(in exchange.Inbound) bool { return in.Audience.Has(in.Message.Sender.Principal(), principal) }); found {
			return entry, true, nil
		}
	}
	return exchange.ThreadEntry{}, false, nil
}

func (e *engine) RepliedMessage(_ context.Context, agent, _, id string) (exchange.ThreadEntry, bool, error) {
	e.mu.Lock()
	question, replied := e.replies[id]
	e.mu.Unlock()
	if !replied {
		return exchange.ThreadEntry{}, false, nil
	}
	entry, found := e.find(agent, e.All()[question].Message.ID, func(exchange.Inbound) bool { return true })
	return entry, found, nil
}

func (e *engine) SentMessage(_ context.Context, agent, principal, id string) (exchange.ThreadEntry, bool, error) {
	entry, found := e.find(agent, id, func(in exchange.Inbound) bool {
		return in.Message.ID == id && in.Message.Sender.Principal() == principal
	})
	return entry, found, nil
}

func (e *engine) find(agent, id string, accept func(exchange.Inbound) bool) (exchange.ThreadEntry, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, in := range e.All() {
		question, replied := e.replies[id]
		if strings.HasPrefix(in.Message.Recipient, "@"+agent+"@") && (in.Message.ID == id || replied && question == i) && accept(in) {
			return exchange.ThreadEntry{ThreadID: in.Message.ThreadID, Message: in.Message, Route: in.Route}, true
		}
	}
	return exchange.ThreadEntry{}, false
}

var ourAgents = exchangetest.Agents{
	{Name: "echo", Address: "@echo@inbox.test", DisplayName: "Echo, the agent"},
	{Name: "helper", Address: "@helper@inbox.test", DisplayName: "Echo, the agent"},
}

// setup is one adapter with everything that it needs.
type setup struct {
	t       testing.TB
	names   *emailtest.NameServer
	engine  *engine
	state   *exchangetest.Documents
	mailbox *exchangetest.Mailbox
	adapter *Adapter
	stop    func()
}

var ourKey = sync.OnceValue(func() *exchangetest.Documents {
	state := exchangetest.NewDocuments()
	if _, err := LoadKey(state, ""); err != nil {
		panic(err)
	}
	return state
})

// start runs an adapter. change may alter the options.
func start(t testing.TB, change func(*Options)) *setup {
	t.Helper()
	return startWith(t, change, func(*Adapter) {})
}

// startWith is start with something to do before the adapter listens.
func startWith(t testing.TB, change func(*Options), before func(*Adapter)) *setup {
	t.Helper()
	s := &setup{t: t, names: emailtest.StartNames(t), engine: &engine{Agents: ourAgents, replies: map[string]int{}}, state: exchangetest.NewDocuments(), mailbox: &exchangetest.Mailbox{}}
	s.state.Copy(ourKey()) // making a key takes long
	blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.engine.Blobs = blobs
	options := Options{
		Domain: "inbox.test", Hostname: "mx.inbox.test", Listen: "127.0.0.1:0", Receiver: s.engine, Agents: s.engine, Threads: s.engine,
		State: s.state, Mailbox: s.mailbox, Blobs: blobs, Resolver: safehttp.NewResolver(s.names.Address), Logger: slog.New(slog.DiscardHandler),
		Dialer: &net.Dialer{}, ShutdownTimeout: patience,
		ConnectionsPerMinute: 10_000, MailsPerMinute: 10_000, MailsPerConnection: 10_000, GreetingDelay: -1, RefusalDelay: time.Nanosecond,
	}
	if change != nil {
		change(&options)
	}
	if s.adapter, err = New(options); err != nil {
		t.Fatal(err)
	}
	before(s.adapter)
	if err := s.adapter.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.adapter.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		select { // also called beside the test, where nothing may end it
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Errorf("waited %s for the end of the adapter", patience)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// wire is a peer that speaks literal SMTP lines.
type wire struct {
	t    testing.TB
	conn net.Conn
	in   *lineReader
}

type lineReader struct {
	conn net.Conn
	rest []byte
}

func (r *lineReader) line() (string, error) {
	for {
		if i := bytes.IndexByte(r.rest, '\n'); i >= 0 {
			line := strings.TrimRight(string(r.rest[:i]), "\r")
			r.rest = r.rest[i+1:]
			return line, nil
		}
		buffer := make([]byte, 4096)
		n, err := r.conn.Read(buffer)
		r.rest = append(r.rest, buffer[:n]...)
		if err != nil && n == 0 {
			return "", err
		}
	}
}

func (s *setup) dial() *wire {
	s.t.Helper()
	w := s.dialAny()
	w.expect("220")
	return w
}

// dialAny connects without expecting the greeting.
func (s *setup) dialAny() *wire {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.adapter.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &wire{t: s.t, conn: conn, in: &lineReader{conn: conn}}
}

// greet dials and says EHLO.
func (s *setup) greet() *wire {
	w := s.dial()
	w.say("EHLO client.sender.test", "250")
	return w
}

// reply reads one answer, all of its lines.
func (w *wire) reply() string {
	w.t.Helper()
	var lines []string
	for {
		line, err := w.in.line()
		if err != nil {
			w.t.Fatalf("read answer: %v after %q", err, lines)
		}
		lines = append(lines, line)
		if len(line) < 4 || line[3] != '-' {
			return strings.Join(lines, "\n")
		}
	}
}

func (w *wire) expect(prefix string) string {
	w.t.Helper()
	got := w.reply()
	if !strings.HasPrefix(got, prefix) {
		w.t.Fatalf("answer %q; want %s", got, prefix)
	}
	return got
}

func (w *wire) write(text string) {
	w.t.Helper()
	if _, err := w.conn.Write([]byte(text)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) say(line, want string) string {
	w.t.Helper()
	w.write(line + "\r\n")
	return w.expect(want)
}

// send brings one mail and expects the answer to the final dot.
func (w *wire) send(from string, to []string, mail, want string) string {
	w.t.Helper()
	w.say("MAIL FROM:<"+from+">", "250")
	for _, one := range to {
		w.say("RCPT TO:<"+one+">", "250")
	}
	w.say("DATA", "354")
	w.write(strings.ReplaceAll(mail, "\r\n.", "\r\n..") + ".\r\n")
	return w.expect(want)
}

func (w *wire) closed() bool {
	w.t.Helper()
	_, err := w.in.line()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("waited %s for the end of the connection", patience)
	}
	return err != nil
}

// replyTo makes a reply of the agent to a received message.
func replyTo(in exchange.Inbound, parts ...normalized.Part) exchange.Reply {
	return exchange.Reply{
		ID: "01936f2a-0000-7000-8000-000000000001", TurnID: "turn", Agent: "echo", Message: in.Message, Route: in.Route,
		Response:  normalized.Response{InReplyTo: in.Message.ID, Parts: parts},
		CreatedAt: time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC),
	}
}

// deliver plans a reply and makes one attempt per destination.
func (s *setup) deliver(reply exchange.Reply) ([]exchange.DeliveryReceipt, error) {
	s.t.Helper()
	plan, err := s.adapter.Plan(s.t.Context(), reply)
	if err != nil {
		return nil, err
	}
	var receipts []exchange.DeliveryReceipt
	var failures []error
	for i, destination := range plan.Destinations {
		receipt, err := s.adapter.Deliver(s.t.Context(), exchange.Delivery{
			ID: fmt.Sprint(i), Attempt: 1, Reply: reply, NativeID: plan.NativeID, Destination: destination,
		})
		receipts, failures = append(receipts, receipt), append(failures, err)
	}
	return receipts, errors.Join(failures...)
}

func (s *setup) captured() []exchange.IncomingMail { return s.mailbox.All(exchange.MailCaptured) }

func unavailable(exchange.Inbound) error {
	return fault.Wrap(fault.Unavailable, "store down", errors.New("disk full at /var/lib"))
}

func claimsOf(t testing.TB, evidence identity.Evidence) string {
	t.Helper()
	return string(evidence.Claims)
}
