package remote

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	turns "inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

func TestTokenIsShownWhereItBelongs(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	agent := newAgent(t, server.URL, func(o *Options) { o.Token = "sesame" })
	mustHandle(t, agent, turnOf("1", "x"))
	if want := []string{"", "Bearer sesame"}; !slices.Equal(server.tokens, want) {
		t.Errorf("tokens %q, want none for the public card and %q", server.tokens, want)
	}
}

func TestPrivateCard(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	server.refuse = func(r *http.Request) bool { return r.Header.Get("Authorization") != "Bearer sesame" }
	mustHandle(t, newAgent(t, server.URL, func(o *Options) { o.Token = "sesame" }), turnOf("1", "x"))
	_, err := handle(t.Context(), t, newAgent(t, server.URL, func(o *Options) { o.Token = "wrong-token" }), turnOf("1", "x"))
	if got := fault.Of(err); !got.Permanent || strings.Contains(err.Error(), "wrong-token") {
		t.Errorf("got %v", err)
	}
}

// tokens returns out tokens of OAuth.
type tokens struct {
	*httptest.Server
	given int
	forms []string
}

func startTokens(t *testing.T, answer func(given int) (status int, body string)) *tokens {
	t.Helper()
	o := &tokens{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		_ = r.ParseForm()
		o.forms = append(o.forms, id+" "+secret+" "+r.PostForm.Get("grant_type")+" "+r.PostForm.Get("scope"))
		o.given++
		status, body := answer(o.given)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *tokens) grant(options *Options) {
	options.Credentials = &ClientCredentials{TokenURL: o.URL + "/token", ClientID: "me", ClientSecret: "hush", Scopes: []string{"a2a:send", "a2a:read"}}
}

func numbered(given int) (int, string) {
	return http.StatusOK, fmt.Sprintf(`{"access_token":"token-%d","token_type":"bearer","expires_in":3600}`, given)
}

func TestClientCredentials(t *testing.T) {
	login := startTokens(t, numbered)
	server := startUpstream(t, wayREST, true, growing)
	agent := newAgent(t, server.URL, login.grant)
	mustHandle(t, agent, turnOf("1", "x"))
	mustHandle(t, agent, turnOf("2", "x"))
	if want := []string{"", "Bearer token-1", "Bearer token-1"}; !slices.Equal(server.tokens, want) {
		t.Errorf("tokens %q, want %q", server.tokens, want)
	}
	if want := []string{"me hush client_credentials a2a:send a2a:read"}; !slices.Equal(login.forms, want) {
		t.Errorf("asked %q, want %q", login.forms, want)
	}
	server.refuse = func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer token-1" } // revoked
	mustHandle(t, agent, turnOf("3", "x"))
	if login.given != 2 {
		t.Errorf("%d tokens were asked for, want 2", login.given)
	}
}

func TestTokensThatEndAreNotKept(t *testing.T) {
	login := startTokens(t, func(given int) (int, string) {
		return http.StatusOK, fmt.Sprintf(`{"access_token":"token-%d","token_type":"Bearer","expires_in":5}`, given)
	})
	server := startUpstream(t, wayRPC, true, growing)
	agent := newAgent(t, server.URL, login.grant)
	mustHandle(t, agent, turnOf("1", "x"))
	mustHandle(t, agent, turnOf("2", "x"))
	if login.given != 2 {
		t.Errorf("%d tokens were asked for, want 2", login.given)
	}
}

func TestLoginsThatFail(t *testing.T) {
	tests := map[string]struct {
		status    int
		body      string
		permanent bool
	}{
		"wrong secret":  {http.StatusUnauthorized, `{"error":"invalid_client","error_description":"hush"}`, true},
		"down":          {http.StatusBadGateway, ``, false},
		"other type":    {http.StatusOK, `{"access_token":"x","token_type":"DPoP"}`, true},
		"two lines":     {http.StatusOK, `{"access_token":"x\r\ny","token_type":"Bearer"}`, true},
		"huge":          {http.StatusOK, strings.Repeat(" ", maxTokenBytes+1), false},
		"refused in OK": {http.StatusOK, `{"error":"invalid_client"}`, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			login := startTokens(t, func(int) (int, string) { return test.status, test.body })
			server := startUpstream(t, wayRPC, true, growing)
			_, err := handle(t.Context(), t, newAgent(t, server.URL, login.grant), turnOf("1", "x"))
			if err == nil || fault.Of(err).Permanent != test.permanent || strings.Contains(err.Error(), "hush") {
				t.Errorf("got %v", err)
			}
			if len(server.received()) != 0 {
				t.Error("the agent was asked without a token")
			}
		})
	}
}

func TestEvidenceIsSignedForTheOtherAgent(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			server := startUpstream(t, way, true, growing)
			server.card["address"] = "@upstream@" + mustURL(t, server.URL).Host
			var audience, sender string
			agent := newAgent(t, server.URL, func(o *Options) {
				o.Sign = func(_ context.Context, v Vouching) ([]identity.Evidence, error) {
					audience, sender = v.Audience, v.Turn.Message.Sender.Address.String()
					return []identity.Evidence{{Subject: "acct:alice@peer.example", Issuer: "inbox.example", Method: "m"}}, nil
				}
			})
			mustHandle(t, agent, turnOf("1", "x"))
			got := server.received()[0]
			mentionable, _ := got.Metadata[mentionableKey].(map[string]any)
			evidence, _ := mentionable[evidenceKey].([]any)
			if len(evidence) != 1 || !slices.Contains(got.Extensions, identity.EvidenceExtension) {
				t.Errorf("metadata %v, extensions %v", got.Metadata, got.Extensions)
			}
			if sender != "@alice@peer.example" || !strings.HasPrefix(audience, "@upstream@127.0.0.1") && !strings.HasPrefix(audience, server.URL) {
				t.Errorf("for %q, of %q", audience, sender)
			}
		})
	}
}

func TestNothingIsSaidOfTheSenderUnsigned(t *testing.T) {
	server := startUpstream(t, wayRPC, true, growing)
	mustHandle(t, newAgent(t, server.URL, nil), turnOf("1", "x"))
	if said := fmt.Sprint(server.received()[0].Metadata); strings.Contains(said, "alice") || strings.Contains(said, evidenceKey) {
		t.Errorf("metadata %s", said)
	}
}

// parking is agents.ToolRequests that keeps what a run waits for.
type parking struct{ wanted map[string]any }

func (p *parking) Await(wanted map[string]any) error { p.wanted = wanted; return nil }

func (p *parking) Request(context.Context, string) (map[string]any, error) { return nil, nil }

func loginJSON(state string) string {
	return `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_` + state + `","message":{"messageId":"s1","role":"ROLE_AGENT","parts":[{"text":"Sign in at the calendar."}]}}}`
}

// TestTaskThatWaitsForALoginIsFollowed: the asker is told once, the turn waits without a worker with growing pauses, survives an
// agent made anew (a restart) and an absence of the other server, and answers by itself when the task is over.
func TestTaskThatWaitsForALoginIsFollowed(t *testing.T) {
	var state atomic.Value
	var sent, down atomic.Int64
	state.Store("AUTH_REQUIRED")
	server := startScripted(t, false, func(c *call) {
		switch {
		case down.Load() > 0:
			c.fails(http.StatusServiceUnavailable, -32603, "away")
		case c.Method == "GetTask":
			c.result(loginJSON(state.Load().(string)))
		default:
			sent.Add(1)
			c.result(wrapped(loginJSON(state.Load().(string))))
		}
	})
	memory := newMemory()
	start := func() *Agent { return newAgent(t, server.URL, func(o *Options) { o.State = memory }) }
	turn := turnOf("1", "x")
	var pauses []time.Duration
	run := func(agent *Agent) (outcomeOf, time.Duration) {
		waits := &parking{}
		turn.Requests = waits
		turn.Attempt++
		out := mustHandle(t, agent, turn)
		if waits.wanted == nil {
			return out, 0
		}
		if waits.wanted["tool_name"] != turns.ToolAuthorization || waits.wanted["run_id"] != turn.ID {
			t.Errorf("waits for %v", waits.wanted)
		}
		at, err := time.Parse(time.RFC3339Nano, waits.wanted["timeout_at"].(string))
		if err != nil {
			t.Fatal(err)
		}
		return out, time.Until(at)
	}
	agent := start()
	for i := range 4 {
		if i == 2 {
			agent = start()
		}
		out, pause := run(agent)
		if pause <= 0 {
			t.Fatalf("run %d does not wait", i)
		}
		pauses = append(pauses, pause)
		told := len(out.response.Parts) > 0
		if told != (i == 0) || told && (out.response.Status != normalized.StatusInputRequired || textOf(out.response) != "Sign in at the calendar.") {
			t.Errorf("run %d tells %+v", i, out.response)
		}
	}
	for i := 1; i < len(pauses); i++ {
		if pauses[i] < pauses[i-1]*3/2 {
			t.Errorf("pauses %v do not grow", pauses)
		}
	}
	down.Store(1)
	if out, pause := run(agent); pause <= 0 || len(out.response.Parts) > 0 {
		t.Errorf("while the other server is away: %+v, %v", out.response, pause)
	}
	down.Store(0)
	state.Store("COMPLETED")
	out, pause := run(agent)
	if pause != 0 || out.response.Status != normalized.StatusCompleted || textOf(out.response) != "Sign in at the calendar." {
		t.Errorf("in the end: %+v, waits %v", out.response, pause)
	}
	if sent.Load() != 1 {
		t.Errorf("the message was sent %d times", sent.Load())
	}
}

// TestFollowingEnds: after many looks or a day the asker is asked to write again, as where turns cannot wait.
func TestFollowingEnds(t *testing.T) {
	server := startScripted(t, false, func(c *call) {
		document := loginJSON("AUTH_REQUIRED")
		if c.Method != "GetTask" {
			document = wrapped(document)
		}
		c.result(document)
	})
	for name, change := range map[string]func(*progress){
		"looks": func(p *progress) { p.Looks = maxLooks }, "time": func(p *progress) { p.Since = p.Since.Add(-followLimit) },
	} {
		agent := newAgent(t, server.URL, nil)
		turn := turnOf(name, "x")
		turn.Requests = &parking{}
		mustHandle(t, agent, turn)
		key := agent.turnKey(turn, messageID(turn))
		var known progress
		if err := agent.load(t.Context(), key, &known); err != nil {
			t.Fatal(err)
		}
		change(&known)
		if err := agent.keep(t.Context(), key, known, turnLife); err != nil {
			t.Fatal(err)
		}
		waits := &parking{}
		turn.Requests = waits
		if out := mustHandle(t, agent, turn); waits.wanted != nil || textOf(out.response) != "Sign in at the calendar." || out.response.Status != normalized.StatusInputRequired {
			t.Errorf("%s: %+v, waits for %v", name, out.response, waits.wanted)
		}
	}
	total := time.Duration(0)
	for looks := range maxLooks {
		total += lookPause(looks)
	}
	if total < followLimit {
		t.Errorf("%d looks end after %v, before the limit of %v", maxLooks, total, followLimit)
	}
}
