package explore

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
)

// wire stands between a node and PostgreSQL. It speaks the frontend/backend protocol (PostgreSQL manual, chapter 55) as far as it has to:
// before each statement of a schedule it waits, and after the statement it asks the server for the result, so that the statement has ended
// although the node sends several in one pipeline.
type wire struct {
	listener net.Listener
	target   string
	actor    int
	director *director
	links    sync.WaitGroup
}

func newWire(t *testing.T, target string, actor int, director *director) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	w := &wire{listener: listener, target: target, actor: actor, director: director}
	w.links.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			w.links.Go(func() { w.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		w.links.Wait()
	})
	return w
}

// link is one connection of a node.
type link struct {
	wire           *wire
	client, server net.Conn
	names          map[string]string // prepared statements
	held           *request          // the statement that was bound last as a step of a schedule; nil = it is none

	lock    sync.Mutex
	process uint32
	sent    []chan struct{} // of the statements without a result yet; nil for those that no one waits for
	failed  bool            // the server ignores what comes until the next synchronisation
}

func (w *wire) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", w.target)
	if err != nil {
		return
	}
	defer server.Close()

	l := &link{wire: w, client: client, server: server, names: map[string]string{}}
	w.links.Go(func() {
		_ = l.fromServer()
		_, _ = client.Close(), server.Close()
	})
	_ = l.fromClient()
}

// read returns the next message with its header; the first one of a client has no type.
func read(from io.Reader, typed bool) (kind byte, whole []byte, err error) {
	header := make([]byte, 4, 64)
	if typed {
		header = append(header, 0)
	}
	if _, err := io.ReadFull(from, header); err != nil {
		return 0, nil, err
	}

	length := binary.BigEndian.Uint32(header[len(header)-4:])
	if length < 4 || length > 1<<28 {
		return 0, nil, errors.New("not a message of PostgreSQL")
	}
	whole = slices.Concat(header, make([]byte, length-4))
	_, err = io.ReadFull(from, whole[len(header):])
	return whole[0], whole, err
}

// text returns the n-th string of a message.
func text(message []byte, n int) string {
	return strings.SplitN(string(message[5:]), "\x00", n+2)[n]
}

func (l *link) fromClient() error {
	_, startup, err := read(l.client, false)
	if err != nil {
		return err
	}
	if _, err := l.server.Write(startup); err != nil {
		return err
	}

	for {
		kind, message, err := read(l.client, true)
		if err != nil {
			return err
		}

		switch kind {
		case 'P': // Parse: name, query
			l.names[text(message, 0)] = text(message, 1)
		case 'B': // Bind: portal, name; a query gets its snapshot here
			l.bind(l.names[text(message, 1)])
		case 'E': // Execute
			if err := l.execute(message); err != nil {
				return err
			}
			continue
		}
		if _, err := l.server.Write(message); err != nil {
			return err
		}
	}
}

// bind waits until the statement may begin.
func (l *link) bind(query string) {
	l.lock.Lock()
	process, failed := l.process, l.failed
	l.lock.Unlock()
	l.held = nil
	if !failed && scheduled(query) {
		l.held = l.wire.director.begin(l.wire.actor, query, process)
	}
}

// flush asks the server for the results so far.
var flush = []byte{'H', 0, 0, 0, 4}

// execute waits for the end of a statement that is a step.
func (l *link) execute(message []byte) error {
	if l.held == nil {
		l.expect(nil)
		_, err := l.server.Write(message)
		return err
	}

	done := make(chan struct{})
	l.expect(done)
	_, err := l.server.Write(append(message, flush...))
	if err == nil {
		<-done
	}
	l.wire.director.end(l.wire.actor, l.held)
	return err
}

// scheduled reports whether a statement may matter to others: the begin of a transaction takes no snapshot, and notifications are sent by the
// announcer of a node at its own time.
func scheduled(query string) bool {
	return query != "BEGIN" && !strings.Contains(query, "pg_notify")
}

func (l *link) expect(done chan struct{}) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.sent = append(l.sent, done)
}

func (l *link) fromServer() error {
	defer l.lost()
	for {
		kind, message, err := read(l.server, true)
		if err != nil {
			return err
		}
		l.note(kind, message) // before the client hears of it, and sends the next statement
		if _, err := l.client.Write(message); err != nil {
			return err
		}
	}
}

func (l *link) note(kind byte, message []byte) {
	l.lock.Lock()
	defer l.lock.Unlock()

	switch kind {
	case 'K': // BackendKeyData
		l.process = binary.BigEndian.Uint32(message[5:9])
	case 'C', 'I', 's': // CommandComplete, EmptyQueryResponse, PortalSuspended
		l.result()
	case 'E': // ErrorResponse
		l.failed = true
		l.result()
	case 'Z': // ReadyForQuery
		l.sent, l.failed = nil, false
	}
}

// result notes that the oldest statement has ended.
func (l *link) result() {
	if len(l.sent) == 0 {
		return
	}
	if done := l.sent[0]; done != nil {
		close(done)
	}
	l.sent = l.sent[1:]
}

// lost ends all statements, because the server is gone.
func (l *link) lost() {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.failed = true
	for len(l.sent) > 0 {
		l.result()
	}
}
