package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/operator"
)

// TestAgentThatIsDownIsShownAfterOneMessage: the program behind an agent does not run while one message waits. Every view says so, and the message
// is answered once the program is there.
func TestAgentThatIsDownIsShownAfterOneMessage(t *testing.T) {
	for name, down := range map[string]func(t *testing.T) (address string, start func(http.Handler)){
		"no program": closedPort, "a proxy in front of it": proxyAlone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, begin := down(t)
			var told atomic.Pointer[string]
			operatorHook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if text := string(body); err == nil && strings.Contains(text, "back_end") {
					told.CompareAndSwap(nil, &text)
				}
				w.WriteHeader(http.StatusNoContent)
			}))
			t.Cleanup(operatorHook.Close)
			s := start(t, instance.Settings{
				Agents: fmt.Sprintf("[[agents]]\nname = \"shop\"\nkind = \"webhook\"\n[agents.webhook]\nurl = %q\nsecret = %q\n[agents.retry]\nprobe = \"1s\"\nschedule = [\"1h\"]\n", address, webhookSecret),
				More:   fmt.Sprintf("[operator]\nnotify = [%q]\nnotify_secret = %q\noutage_after = \"1s\"\n", operatorHook.URL, noticeSecret),
			})
			peer := load.A2APeer{URL: s.URL() + "/a2a/shop", Token: s.peerToken("ann"), Client: http.DefaultClient}
			task, err := peer.Send(t.Context(), load.SendBody("m1", "hello", true))
			if err != nil {
				t.Fatal(err)
			}

			var agents []operator.AgentSummary
			eventually(t, "the list of agents says that it is down", func() bool {
				if err := decodeList(s.inbox("agents", "list", "--state", "down", "--json"), &agents); err != nil {
					t.Fatal(err)
				}
				return len(agents) == 1
			})
			if outage := agents[0].Down; outage == nil || outage.Since.IsZero() || outage.Next.IsZero() || outage.Reason == "" {
				t.Errorf("the agent is down: %+v", outage)
			}
			if list := s.inbox("agents", "list"); !strings.Contains(list, "down since") {
				t.Errorf("agents list:\n%s", list)
			}
			eventually(t, "the message says why it waits", func() bool {
				waits := s.shownTurn(task.ID).Waits
				return waits != nil && waits.Reason != "" && !waits.Since.IsZero() && !waits.Next.IsZero()
			})
			if text := s.inbox("show", task.ID); !strings.Contains(text, "Agent     down since") || !strings.Contains(text, "Reason    ") || !strings.Contains(text, "Next      attempt") {
				t.Errorf("show:\n%s", text)
			}
			page := s.operatorPages()
			for _, path := range []string{"/console/agents", "/console/agents/shop", "/console/messages/" + s.shownTurn(task.ID).Turn.ID} {
				if text := page(path); !strings.Contains(text, "own") || !strings.Contains(text, strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://")) {
					t.Errorf("%s does not say that the agent is down:\n%s", path, text)
				}
			}
			eventually(t, "readyz says that it is down", func() bool { // its answer is kept for a second
				status, text := s.readyz(t)
				return status == http.StatusOK && strings.Contains(text, "the back ends of 1 of 1 agents are down, the first since")
			})
			eventually(t, "the operator gets a notice", func() bool { return told.Load() != nil })

			begin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost {
					w.WriteHeader(http.StatusMethodNotAllowed)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(say("Done."))
			}))
			eventually(t, "the message is answered", func() bool {
				found, err := peer.Get(t.Context(), task.ID)
				if err != nil {
					t.Fatal(err)
				}
				return found.Status.State == "TASK_STATE_COMPLETED"
			})
			eventually(t, "the agent works", func() bool { return strings.Contains(s.inbox("agents", "list"), "works") })
		})
	}
}

// closedPort is the address of a program that does not run until start is called.
func closedPort(t *testing.T) (address string, start func(http.Handler)) {
	t.Helper()
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	place := reserved.Addr().String()
	if err := reserved.Close(); err != nil {
		t.Fatal(err)
	}
	return "http://" + place + "/hook", func(handler http.Handler) {
		t.Helper()
		listener, err := net.Listen("tcp", place)
		if err != nil {
			t.Fatal(err)
		}
		program := httptest.NewUnstartedServer(handler)
		if err := program.Listener.Close(); err != nil {
			t.Fatal(err)
		}
		program.Listener = listener
		program.Start()
		t.Cleanup(program.Close)
	}
}

// proxyAlone is the address of a proxy that answers 502 until start is called.
func proxyAlone(t *testing.T) (address string, start func(http.Handler)) {
	t.Helper()
	var behind atomic.Pointer[http.Handler]
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if handler := behind.Load(); handler != nil {
			(*handler).ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL + "/hook", func(handler http.Handler) { behind.Store(&handler) }
}
