package outbound

import (
	"bufio"
	"context"
	"crypto/tls"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/adapters/email/emailtest"
	"inbox/internal/await"
)

// TestRepliesOfTheCodeAlone: RFC 5321, section 4.2, permits a reply that is the code and nothing more, and one server was given up after five days for it.
func TestRepliesOfTheCodeAlone(t *testing.T) {
	certificate, pool := emailtest.SelfSigned(t)
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	for name, c := range map[string]struct {
		secure, implicit bool
		end              string
		lines            string // in the answer to EHLO, above the last one
		piece            int    // bytes that leave at once
	}{
		"without TLS":               {end: "\r\n", piece: 1 << 10},
		"after STARTTLS":            {end: "\r\n", piece: 1 << 10, secure: true},
		"TLS from the start":        {end: "\r\n", piece: 1 << 10, implicit: true},
		"byte by byte":              {end: "\r\n", piece: 1},
		"byte by byte, under TLS":   {end: "\r\n", piece: 1, secure: true},
		"a code and half a line":    {end: "\r\n", piece: 4},
		"LF alone":                  {end: "\n", piece: 3},
		"the last of several lines": {end: "\r\n", piece: 7, lines: "250-bare.test\r\n250-SIZE 1000000\r\n250-250\r\n250-8BITMIME\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &bareServer{end: c.end, lines: c.lines, piece: c.piece, config: config, secure: c.secure}
			address := server.start(t, c.implicit)
			var send func(context.Context, Mail) (Outcome, error)
			if c.implicit {
				send = toSmarthost(t, SmarthostOptions{URL: "smtps://" + address, TLS: &tls.Config{RootCAs: pool}}).Send
			} else {
				w := newWorld(t, nil)
				w.host("mail.sender.test", "192.0.2.1", nil)
				w.net.real["192.0.2.1:25"] = address
				w.names.MX("sender.test", "10 mail.sender.test")
				send = w.Send
			}
			for range 2 { // the second mail over the same session
				if _, err := send(t.Context(), letterTo("ann@sender.test")); err != nil {
					t.Fatal(err)
				}
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			if server.mails != 2 || server.secured != c.secure {
				t.Errorf("%d mails, under TLS %t", server.mails, server.secured)
			}
		})
	}
}

// bareServer answers with the code alone.
type bareServer struct {
	end, lines string
	piece      int
	config     *tls.Config
	secure     bool

	mu      sync.Mutex
	mails   int
	secured bool
}

func (s *bareServer) start(t *testing.T, implicit bool) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if implicit {
		listener = tls.NewListener(listener, s.config)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serve(conn) })
		}
	})
	// The transports end their kept sessions first, because cleanups run from the last to the first.
	t.Cleanup(func() { _ = listener.Close(); await.Done(t, serving.Wait, "the end of its sessions") })
	return listener.Addr().String()
}

func (s *bareServer) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s.say(conn, "220"+s.end)
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		word, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(line)), " ")
		switch {
		case err != nil:
			return
		case word == "EHLO" && s.secure && !s.secured:
			s.say(conn, s.lines+"250-STARTTLS"+s.end+"250"+s.end)
		case word == "EHLO":
			s.say(conn, s.lines+"250"+s.end)
		case word == "STARTTLS":
			s.say(conn, "220"+s.end)
			conn = tls.Server(conn, s.config)
			lines.Reset(conn)
			s.mu.Lock()
			s.secured = true
			s.mu.Unlock()
		case word == "DATA":
			s.say(conn, "354"+s.end)
			for err == nil && line != ".\r\n" {
				line, err = lines.ReadString('\n')
			}
			s.mu.Lock()
			s.mails++
			s.mu.Unlock()
			s.say(conn, "250"+s.end)
		case word == "QUIT":
			s.say(conn, "221"+s.end)
			return
		default:
			s.say(conn, "250"+s.end)
		}
	}
}

// say writes an answer in pieces, each of which leaves as a packet of its own.
func (s *bareServer) say(conn net.Conn, answer string) {
	for len(answer) > 0 {
		n := min(s.piece, len(answer))
		if _, err := conn.Write([]byte(answer[:n])); err != nil {
			return
		}
		answer = answer[n:]
	}
}

// FuzzReplies reads what a server says in pieces of any size. Nothing but a blank after a code that stands alone may be added to it.
func FuzzReplies(f *testing.F) {
	f.Add("220\r\n250-x\r\n250\r\n", byte(1), byte(1))
	f.Add("250\n250\n250\n250\n250\n2500\n25\n", byte(7), byte(200))
	f.Add("250\r\r\n 250\r\n250-\r\n", byte(4), byte(6))
	f.Fuzz(func(t *testing.T, said string, piece, room byte) {
		if len(said) > maxAnswerBytes {
			return
		}
		conn := &replyConn{Conn: saying{strings.NewReader(said), int(piece) + 1}}
		var got strings.Builder
		buffer := make([]byte, int(room)+1)
		for {
			n, err := conn.Read(buffer)
			got.Write(buffer[:n])
			if err != nil && len(conn.rest) == 0 {
				break
			}
		}
		if want := regexp.MustCompile(`(?m)^([0-9]{3})(\r|\n)`).ReplaceAllString(said, "$1 $2"); got.String() != want {
			t.Errorf("%q gives %q; want %q", said, got.String(), want)
		}
	})
}

// saying is a connection whose peer says something in pieces.
type saying struct {
	*strings.Reader
	piece int
}

func (s saying) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), s.piece)]) }

func (s saying) Write(p []byte) (int, error)      { return len(p), nil }
func (s saying) Close() error                     { return nil }
func (s saying) LocalAddr() net.Addr              { return nil }
func (s saying) RemoteAddr() net.Addr             { return nil }
func (s saying) SetDeadline(time.Time) error      { return nil }
func (s saying) SetReadDeadline(time.Time) error  { return nil }
func (s saying) SetWriteDeadline(time.Time) error { return nil }
