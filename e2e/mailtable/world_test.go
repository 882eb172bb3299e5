package mailtable

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox"
	"inbox/e2e/load"
	"inbox/internal/await"
)

const (
	maxMail  = 1 << 20     // bytes; the limit of the server under test
	patience = time.Minute // how long what must come is waited for
)

// world is a server with everything around it that mail needs.
type world struct {
	names    *load.Names
	operator *inbox.Operator
	address  string
	key      *rsa.PrivateKey // of all senders
	weak     *rsa.PrivateKey
	small    *rsa.PrivateKey // of 1024 bits, which still count (RFC 8301, section 3.2)

	mu       sync.Mutex
	arrivals map[string]chan load.Received // by the organization of the recipient
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{arrivals: map[string]chan load.Received{}}
	var err error
	if w.names, err = load.NewNames(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.names.Close)
	sink, err := load.NewSink("127.0.0.1:0", w.arrived)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.Close)
	if w.key, err = load.NewKey(); err != nil {
		t.Fatal(err)
	}
	w.weak = weakKey(t)
	if w.small, err = rsa.GenerateKey(rand.Reader, 1024); err != nil {
		t.Fatal(err)
	}
	w.serve(t, sink)
	return w
}

func (w *world) serve(t *testing.T, sink *load.Sink) {
	t.Helper()
	directory := t.TempDir()
	file := filepath.Join(directory, "inbox.toml")
	text := fmt.Sprintf(`domain = "inbox.test"
public_url = "http://inbox.test:8080"
data_dir = %q
[federation]
allow_private = true
[http]
listen = "127.0.0.1:0"
[smtp]
listen = "127.0.0.1:0"
hostname = "mx.inbox.test"
max_message_bytes = %d
[mail]
mode = "smarthost"
smarthost = %q
arc_sealers = ["list.test", "second.test"]
[dns]
resolver = %q
[log]
level = "error"
[[agents]]
name = "echo"
kind = "echo"
[[agents]]
name = "helper"
kind = "echo"
`, filepath.Join(directory, "data"), maxMail, sink.URL(), w.names.Address())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := inbox.LoadConfig(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	config.ShutdownGrace = patience
	server, err := inbox.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := await.Receive(t, ended, "the end of the server"); err != nil {
			t.Error(err)
		}
	})
	w.address = server.MailAddr()
	if w.operator, err = inbox.OpenOperator(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.operator.Close() })
}

func (w *world) arrived(mail load.Received) {
	for _, to := range mail.To {
		labels := strings.Split(strings.ToLower(to[strings.LastIndexByte(to, '@')+1:]), ".")
		w.arrival(strings.Join(labels[max(0, len(labels)-2):], ".")) <- mail
	}
}

// arrival is where replies to a domain arrive.
func (w *world) arrival(domain string) chan load.Received {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.arrivals[domain] == nil {
		w.arrivals[domain] = make(chan load.Received, 64)
	}
	return w.arrivals[domain]
}

// session is a peer that speaks literal SMTP.
type session struct {
	t    *testing.T
	conn net.Conn
	text *textproto.Reader
}

func (w *world) dial(t *testing.T) *session {
	t.Helper()
	conn, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	s := &session{t: t, conn: conn, text: newReader(conn)}
	s.answer()
	return s
}

func (s *session) say(text string) string {
	s.t.Helper()
	s.write(text + "\r\n")
	return s.answer()
}

func (s *session) write(text string) {
	s.t.Helper()
	if _, err := s.conn.Write([]byte(text)); err != nil {
		s.t.Logf("write: %v", err) // the server may have hung up, and what it said is still to be read
	}
}

// answer reads one answer and returns its last line.
func (s *session) answer() string {
	s.t.Helper()
	for {
		line, err := s.text.ReadLine()
		if err != nil {
			s.t.Fatalf("read answer: %v", err)
		}
		if len(line) < 4 || line[3] != '-' {
			return line
		}
	}
}

// bring says everything about one mail and returns the first answer that is no success, or the last one.
func (s *session) bring(helo, from string, to []string, mail string) string {
	s.t.Helper()
	if answer := s.say("EHLO " + helo); !strings.HasPrefix(answer, "250") {
		return answer
	}
	if answer := s.say("MAIL FROM:<" + from + ">"); !strings.HasPrefix(answer, "250") {
		return answer
	}
	for _, one := range to {
		if answer := s.say("RCPT TO:<" + one + ">"); !strings.HasPrefix(answer, "250") {
			return answer
		}
	}
	if answer := s.say("DATA"); !strings.HasPrefix(answer, "354") {
		return answer
	}
	s.write(stuffed(mail) + ".\r\n")
	return s.answer()
}

// stuffed doubles dots where SMTP would take one away (RFC 5321, section 4.5.2).
func stuffed(mail string) string {
	if strings.HasPrefix(mail, ".") {
		mail = "." + mail
	}
	return strings.ReplaceAll(mail, "\r\n.", "\r\n..")
}
