package remote

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	turns "inbox/exchange"
	"inbox/normalized"
)

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
