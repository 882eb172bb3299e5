package inbox_test

import (
	"net"
	"strings"
	"testing"

	"inbox/inboxtest"
	"inbox/internal/await"
)

// elsewhere is a socket that says it is at another address.
type elsewhere struct {
	net.Listener
	address net.Addr
}

func (e elsewhere) Addr() net.Addr { return e.address }

// oneSocket passes one socket by its name.
type oneSocket struct {
	name   string
	socket net.Listener
}

func (o oneSocket) Take(name string) net.Listener {
	if name == o.name {
		return o.socket
	}
	return nil
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// TestSelfProbe: a server asks its own listeners, and says which of them does not answer as it should; it stays ready.
func TestSelfProbe(t *testing.T) {
	for name, c := range map[string]struct{ greeting, want string }{
		"well":         {"", `"self-probe":"ok"`},
		"busy":         {"421 4.3.2 come again", `"self-probe":"ok"`},
		"another smtp": {"554 go away", "did not answer itself by smtp"},
	} {
		t.Run(name, func(t *testing.T) {
			s := inboxtest.New(t, "", "INBOX_SMTP_LISTEN=127.0.0.1:0")
			if c.greeting != "" {
				stranger := listen(t)
				greeted := make(chan struct{})
				go func() {
					defer close(greeted)
					conn, err := stranger.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Write([]byte(c.greeting + "\r\n"))
					_ = conn.Close()
				}()
				s.Inherit(oneSocket{"smtp", elsewhere{listen(t), stranger.Addr()}})
				s.Serve()
				await.Receive(t, greeted, "the server to ask its own mail listener")
			} else {
				s.Serve()
			}

			await.Until(t, "/readyz tells of the probe", func() bool {
				status, _, body := s.Read("GET", "/readyz", "", "")
				if status != 200 {
					t.Fatalf("%d %s", status, body)
				}
				return strings.Contains(body, c.want)
			})
			await.Until(t, "the metric tells of the probe", func() bool {
				_, _, text := s.Read("GET", "/metrics", s.Token("x"), "")
				want := "inbox_self_probe_ok{way=\"smtp\"} 1"
				if strings.Contains(c.want, "did not") {
					want = "inbox_self_probe_ok{way=\"smtp\"} 0"
				}
				return strings.Contains(text, want) && strings.Contains(text, "inbox_self_probe_ok{way=\"http\"} 1")
			})
		})
	}
}
