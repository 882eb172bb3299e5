package store_test

import (
	"bytes"
	"io"
	"net"
	"net/url"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
)

// What a proxy does with the next COMMIT.
const (
	passCommit  = iota
	loseCommit  // the connection ends before PostgreSQL has it
	loseConfirm // the connection ends before the client has the answer
)

// commitProxy is a proxy before PostgreSQL that loses a connection at a COMMIT.
type commitProxy struct {
	address string // of the database, through the proxy
	next    atomic.Int32
	lost    atomic.Int32
}

// beforePostgres starts a proxy before a database.
func beforePostgres(t *testing.T, database string) *commitProxy {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	u.Host = listener.Addr().String()
	p := &commitProxy{address: u.String()}

	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { p.serve(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		await.Done(t, connections.Wait, "the end of the proxy's connections")
	})
	return p
}

// serve passes the bytes of one connection on until one side ends it.
func (p *commitProxy) serve(client net.Conn, server string) {
	defer func() { _ = client.Close() }()
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer func() { _ = upstream.Close() }()

	var requests sync.WaitGroup
	requests.Go(func() {
		commit := preparedCommit{}
		pass(client, upstream, func(sent []byte) bool { return commit.executedBy(sent) && p.loses(loseCommit) })
		_, _ = client.Close(), upstream.Close()
	})
	pass(upstream, client, func(received []byte) bool {
		return bytes.Contains(received, []byte("COMMIT\x00")) && p.loses(loseConfirm)
	})
	_, _ = client.Close(), upstream.Close()
	requests.Wait()
}

func (p *commitProxy) loses(what int32) bool {
	if !p.next.CompareAndSwap(what, passCommit) {
		return false
	}
	p.lost.Add(1)
	return true
}

// pass copies bytes until an error, or until stop reports true for what was read.
func pass(from io.Reader, to io.Writer, stop func([]byte) bool) {
	buffer := make([]byte, 1<<20)
	for {
		n, err := from.Read(buffer)
		if err != nil || stop(buffer[:n]) {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// preparedCommit is the name under which a connection has prepared its COMMIT.
type preparedCommit struct{ name []byte }

var parseOfCommit = regexp.MustCompile(`(?s)P....([a-z_0-9]+\x00)COMMIT\x00`)

// executedBy reports whether the messages execute COMMIT.
func (c *preparedCommit) executedBy(sent []byte) bool {
	if c.name != nil && bytes.Contains(sent, append([]byte{0}, c.name...)) {
		return true
	}
	if found := parseOfCommit.FindSubmatch(sent); found != nil {
		c.name = bytes.Clone(found[1])
	}
	return false
}

// TestLostCommitIsUnknown: a connection that ends during COMMIT leaves the caller without an answer. It is not told that nothing was
// done, and the same message, sent again, is stored once.
func TestLostCommitIsUnknown(t *testing.T) {
	for name, row := range map[string]struct {
		loses  int32
		stored int
	}{"PostgreSQL does not get COMMIT": {loseCommit, 0}, "PostgreSQL's answer is lost": {loseConfirm, 1}} {
		t.Run(name, func(t *testing.T) {
			database := storetest.Postgres(t)
			proxy := beforePostgres(t, database)
			s, direct := openWith(t, store.Options{URL: proxy.address}), open(t, database)
			turn := sample(1)
			proxy.next.Store(row.loses)
			err := accept(t.Context(), s, turn)
			if fault.OutcomeOf(err) != fault.Unknown || !fault.Is(err, fault.Unavailable) || proxy.lost.Load() != 1 {
				t.Errorf("told %v: outcome %q, after %d lost COMMITs", err, fault.OutcomeOf(err), proxy.lost.Load())
			}
			if got := storedTurns(t, direct); got != row.stored {
				t.Errorf("%d turns are stored, want %d", got, row.stored)
			}

			again := turn
			again.ID = newID()
			if err := accept(t.Context(), s, again); err != nil {
				t.Error(err)
			}
			if got := storedTurns(t, direct); got != 1 {
				t.Errorf("%d turns are stored after the message was sent again", got)
			}
			if jobs, err := direct.Jobs(t.Context(), store.JobFilter{}); err != nil || len(jobs) != 1 {
				t.Errorf("jobs %v, %v", jobs, err)
			}
		})
	}
}

func storedTurns(t *testing.T, s *store.Store) int {
	t.Helper()
	turns, err := s.Turns(t.Context(), exchange.TurnFilter{})
	if err != nil {
		t.Fatal(err)
	}
	return len(turns)
}

// TestMarkWhoseCommitIsLostIsTheCallers: a caller whose commit had no answer learns whether the mark is its own; afterwards the key is used.
func TestMarkWhoseCommitIsLostIsTheCallers(t *testing.T) {
	for name, loses := range map[string]int32{"PostgreSQL does not get COMMIT": loseCommit, "PostgreSQL's answer is lost": loseConfirm} {
		t.Run(name, func(t *testing.T) {
			proxy := beforePostgres(t, storetest.Postgres(t))
			s := openWith(t, store.Options{URL: proxy.address})
			ends := time.Now().Add(time.Hour)
			proxy.next.Store(loses)
			if first, err := s.State().Once(t.Context(), "test.once", "key", ends); err != nil || !first || proxy.lost.Load() != 1 {
				t.Errorf("first %t, %v, after %d lost COMMITs", first, err, proxy.lost.Load())
			}
			if first, err := s.State().Once(t.Context(), "test.once", "key", ends); err != nil || first {
				t.Errorf("a second caller is first: %t, %v", first, err)
			}
		})
	}
}
