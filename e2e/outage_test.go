package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
)

// gate stands between the server and its database and can be shut.
type gate struct {
	listener net.Listener
	behind   string

	mu   sync.Mutex
	shut bool
	open map[net.Conn]bool
}

// newGate returns the database's URL through a gate.
func newGate(t *testing.T, database string) (*gate, string) {
	t.Helper()
	target, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: listener, behind: target.Host, open: map[net.Conn]bool{}}
	target.Host = listener.Addr().String()
	go g.serve()
	t.Cleanup(func() { g.set(true); _ = listener.Close() })
	return g, target.String()
}

func (g *gate) serve() {
	for {
		inner, err := g.listener.Accept()
		if err != nil {
			return
		}
		go g.pass(inner)
	}
}

func (g *gate) pass(inner net.Conn) {
	outer, err := net.Dial("tcp", g.behind)
	if err != nil || !g.keep(inner, outer) {
		_ = inner.Close()
		return
	}
	go func() { _, _ = io.Copy(outer, inner); _ = outer.Close() }()
	_, _ = io.Copy(inner, outer)
	_ = inner.Close()
}

func (g *gate) keep(connections ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range connections {
		if g.shut {
			_ = one.Close()
			continue
		}
		g.open[one] = true
	}
	return !g.shut
}

// set shuts the gate, which cuts what is open, or opens it again.
func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = shut
	for one := range g.open {
		_ = one.Close()
		delete(g.open, one)
	}
}

// TestDatabaseThatIsDownIsToldToPeersAndLosesNothing: every protocol says "come again", and who does is answered.
func TestDatabaseThatIsDownIsToldToPeersAndLosesNothing(t *testing.T) {
	gate, database := newGate(t, postgres(t))
	p := startPost(t, database)
	token, err := p.Token(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	arrivals := make(chan load.Arrival, 4)
	community := newCommunity(t, 1, func(a load.Arrival) { arrivals <- a })
	person, inbox := community.Persons[0], p.Actor("echo")+"/inbox"
	warm := person.Mention(p.Actor("echo"), "warm", "hello") // the sender's key is known before the database goes
	if status := do(t, delivery(t, person, inbox, warm, load.Signature{})); status != http.StatusAccepted {
		t.Fatalf("before the outage: %d", status)
	}
	await.Receive(t, arrivals, "the reply before the outage")
	mention := person.Mention(p.Actor("echo"), "outage", "hello")
	mail, err := p.sender.Sign(load.Mail{From: "ann@sender.test", To: "echo@inbox.test", MessageID: "outage@sender.test", Subject: "Hi", Body: "hello\n"}.Bytes())
	if err != nil {
		t.Fatal(err)
	}

	gate.set(true)
	t.Run("activitypub", func(t *testing.T) {
		response, err := http.DefaultClient.Do(delivery(t, person, inbox, mention, load.Signature{}))
		checkUnavailable(t, response, err)
	})
	t.Run("a2a", func(t *testing.T) { checkA2AOutage(t, p.server, token) })
	t.Run("email", func(t *testing.T) {
		if err := sendMail(p, mail); !strings.Contains(fmt.Sprint(err), "451") || !strings.Contains(fmt.Sprint(err), "4.3.0") {
			t.Errorf("mail got %v; want 451 4.3.0", err)
		}
	})
	t.Run("readiness", func(t *testing.T) {
		deadline := time.Now().Add(patience) // the answer is kept for a second
		for readiness(t, p.server) != http.StatusServiceUnavailable {
			if time.Now().After(deadline) {
				t.Fatal("readyz did not turn to 503")
			}
		}
	})

	gate.set(false)
	if status := do(t, delivery(t, person, inbox, mention, load.Signature{})); status != http.StatusAccepted {
		t.Fatalf("after the outage: %d", status)
	}
	if err := sendMail(p, mail); err != nil {
		t.Fatalf("after the outage: %v", err)
	}
	awaitReply(t, arrivals, mention.NoteID)
	p.outbox.await(t, "outage@sender.test")
}

// awaitReply passes over replies to other notes: one whose delivery could not be noted when the database went comes
// again, under the same id.
func awaitReply(t *testing.T, arrivals <-chan load.Arrival, note string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case arrival := <-arrivals:
			if arrival.InReplyTo == note {
				return
			}
		case <-deadline:
			t.Fatal("no reply after the outage")
		}
	}
}

func readiness(t *testing.T, s *server) int {
	t.Helper()
	response, err := http.Get(s.URL() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func checkUnavailable(t *testing.T, response *http.Response, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("answered %d, Retry-After %q: %s", response.StatusCode, response.Header.Get("Retry-After"), body)
	}
	if strings.Contains(string(body), "dial") || strings.Contains(string(body), "postgres") {
		t.Errorf("internals reached the peer: %s", body)
	}
}

// checkA2AOutage takes both answers of the contract: 503, or the JSON-RPC internal error.
func checkA2AOutage(t *testing.T, s *server, token string) {
	t.Helper()
	peer := load.A2APeer{URL: s.URL() + "/a2a/echo", Token: token, Client: http.DefaultClient}
	_, err := peer.Send(t.Context(), load.SendBody("outage", "hello", false))
	var status *load.StatusError
	var rpc *load.RPCError
	switch {
	case errors.As(err, &status) && status.Status == http.StatusServiceUnavailable:
	case errors.As(err, &rpc) && rpc.Code == -32603:
	default:
		t.Errorf("A2A got %v; want 503 or -32603", err)
	}
}

func sendMail(p *post, mail []byte) error {
	sender, err := load.DialMail(p.Settings.SMTP)
	if err != nil {
		return err
	}
	defer sender.Close()
	err = sender.Send("ann@sender.test", "echo@inbox.test", mail)
	if reply, ok := errors.AsType[*textproto.Error](err); ok {
		return fmt.Errorf("%d %s", reply.Code, reply.Msg)
	}
	return err
}

// TestReadOnlyDatabaseHealsWithoutARestart: while the database takes no changes the server says so, and the same process takes
// messages as soon as it does again, although its connections are those of before.
func TestReadOnlyDatabaseHealsWithoutARestart(t *testing.T) {
	database := emptyPostgres(t)
	s := newServer(t, instance.Settings{Database: database})
	s.start()
	token, err := s.Token(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	peer := load.A2APeer{URL: s.URL() + "/a2a/echo", Token: token, Client: http.DefaultClient}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	const cut = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`

	administer(t, database, "ALTER DATABASE "+name+" SET default_transaction_read_only = on", cut)
	eventually(t, "/readyz says that the database is not there", func() bool {
		status, text := s.readyz(t)
		return status == http.StatusServiceUnavailable && strings.Contains(text, `"database":"the message store is not available`)
	})
	if _, err := peer.Send(t.Context(), load.SendBody("m1", "hello", false)); err == nil {
		t.Error("a message was taken by a read-only database")
	}
	administer(t, database, "SET default_transaction_read_only = off", "ALTER DATABASE "+name+" RESET default_transaction_read_only")
	eventually(t, "/readyz says yes again", func() bool {
		status, _ := s.readyz(t)
		return status == http.StatusOK
	})
	if _, err := peer.Send(t.Context(), load.SendBody("m1", "hello", false)); err != nil {
		t.Errorf("after the database takes changes again: %v", err)
	}
}

// administer executes statements on a connection of their own.
func administer(t *testing.T, database string, statements ...string) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		if _, err = connection.Exec(t.Context(), statement); err != nil {
			break
		}
	}
	if err := errors.Join(err, connection.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

func (s *server) readyz(t *testing.T) (status int, text string) {
	t.Helper()
	response, err := http.Get(s.URL() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}
