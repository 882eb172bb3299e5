package peer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"go.uber.org/goleak"

	"inbox/identity"
)

// standIn is a server for the demo that is made of the other sides: a fediverse peer, a mail peer and the A2A SDK.
func standIn(t *testing.T, demo *Demo) Server {
	t.Helper()
	social := startFediverse(t, FediverseOptions{User: "bob", Reply: upper})
	host := identity.HostOf(social.host)
	post := startMail(t, MailOptions{Domain: host, User: "bob", Resolver: demo.Resolver(), Reply: upper, ReplyVia: demo.Smarthost()})
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.Handle("/", social.server.Handler)
	mux.Handle("/a2a/bob", demandToken(a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(sdkAgent{}))))
	mux.HandleFunc("/a2a/bob/.well-known/agent-card.json", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name":"bob","supportedInterfaces":[{"url":"`+server.URL+`/a2a/bob","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`)
	})
	return Server{
		PublicURL: server.URL, Domain: social.host, Agent: "bob", SMTPAddr: post.SMTPAddr(), Token: testToken, DKIM: post.DKIMRecord(),
		Evidence: func(_ context.Context, id string) ([]identity.Evidence, error) {
			return []identity.Evidence{{
				Subject: "whoever wrote " + id[:4], Issuer: "bob.example", Method: identity.MethodEmailDMARC,
				Proof: identity.Proof{Type: identity.ProofTransport, KeyID: "key-1"},
			}}, nil
		},
	}
}

func startDemo(t *testing.T) *Demo {
	t.Helper()
	demo, err := NewDemo()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := demo.Close(); err != nil {
			t.Error(err)
		}
	})
	return demo
}

func TestDemo(t *testing.T) {
	t.Parallel()
	demo := startDemo(t)
	var out strings.Builder
	if err := demo.Run(limited(t, 20*time.Second), standIn(t, demo), &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	told := out.String()
	for _, want := range []string{
		"You said: HELLO FROM THE FEDIVERSE!", "You said: HELLO BY MAIL!", "You said: HELLO FROM ANOTHER AGENT!",
		"by email-dmarc with the key key-1", "DKIM signature of 127.0.0.1 verifies", "All three answers verify",
		"Try it yourself",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("the demo does not tell %q", want)
		}
	}
	if strings.Contains(told, "\x1b") || strings.Contains(told, "✗") {
		t.Error("colours or a failure in plain output")
	}
	if t.Failed() {
		t.Log(told)
	}
}

func TestDemoFailsUnlessEverythingVerifies(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*Server)
		want   string
	}{
		"wrong token":    {func(s *Server) { s.Token = "another" }, "A2A: another agent sends a task"},
		"no key":         {func(s *Server) { s.DKIM.Name = "other._domainkey.example" }, "DKIM signature of 127.0.0.1 fails"},
		"other agent":    {func(s *Server) { s.Agent = "carol" }, "find @carol@"},
		"no evidence":    {func(s *Server) { s.Evidence = noEvidence }, "recorded no evidence"},
		"evidence fails": {func(s *Server) { s.Evidence = failingEvidence }, "the store is down"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			demo := startDemo(t)
			server := standIn(t, demo)
			test.change(&server)
			var out strings.Builder
			err := demo.Run(unlessWaiting(t, name == "no key"), server, &out)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
			if !strings.Contains(out.String(), "✗") || strings.Contains(out.String(), "All three") {
				t.Errorf("the failure is not told:\n%s", out.String())
			}
		})
	}
}

func noEvidence(context.Context, string) ([]identity.Evidence, error) { return nil, nil }

func failingEvidence(context.Context, string) ([]identity.Evidence, error) {
	return nil, errors.New("the store is down")
}

func TestDemoNeedsAToken(t *testing.T) {
	t.Parallel()
	if err := startDemo(t).Run(t.Context(), Server{}, io.Discard); err == nil {
		t.Error("the demo ran without a token")
	}
}

func TestShown(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\nb\tc":                 "a b c",
		"\x1b[31mred\x1b[0m":      "[31mred [0m",
		"right\u202eleft":         "right left",
		strings.Repeat("ß", 500):  strings.Repeat("ß", maxShownText) + "…",
		"Grüße \u00a0 aus Zürich": "Grüße aus Zürich",
	} {
		if got := shown(text); got != want {
			t.Errorf("shown(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestPaperHasColoursOnTerminalsOnly(t *testing.T) {
	null, err := os.Open(os.DevNull) // a character device, as terminals are
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close() //nolint:errcheck // only opened
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	if !newPaper(null).colours || newPaper(io.Discard).colours {
		t.Error("want colours on a terminal only")
	}
	t.Setenv("NO_COLOR", "1")
	if newPaper(null).colours {
		t.Error("NO_COLOR is not respected")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if newPaper(null).colours {
		t.Error("TERM=dumb is not respected")
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
