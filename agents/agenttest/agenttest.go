// Package agenttest is the conformance suite of agents.Agent: what the engine relies on, whatever answers. Every kind
// of agent runs it in its own tests. It judges behaviour at the seam, not whether an answer is any good.
package agenttest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inbox/agents"
	"inbox/internal/children"
	"inbox/normalized"
)

// patience is how long an agent may take to come to its end in a test.
const patience = 10 * time.Second

// Suite says how to make the agents under test. What they need is set up and, with t.Cleanup, torn down by New.
type Suite struct {
	// New makes an agent that answers every message at once.
	New func(t *testing.T) agents.Agent
	// NewStuck makes an agent that never comes to an answer by itself; nil for a kind that waits for no one.
	NewStuck func(t *testing.T) agents.Agent
}

// Run runs every test of the suite.
func (s Suite) Run(t *testing.T) {
	t.Run("answers", s.answers)
	t.Run("leaves the turn alone", s.leavesTurnAlone)
	t.Run("is re-entrant", s.isReentrant)
	t.Run("is concurrent", s.isConcurrent)
	t.Run("stops when nobody wants more", s.stopsWhenNobodyWantsMore)
	t.Run("stops when it is over before it begins", s.stopsBeforeItBegins)
	if s.NewStuck != nil {
		t.Run("stops when the context ends", s.stopsWhenContextEnds)
	}
}

// start makes the agent and checks, after its cleanup, that no goroutine is left.
func start(t *testing.T, create func(*testing.T) agents.Agent) agents.Agent {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { noneLeft(t, before) })
	return create(t)
}

// noneLeft waits longer than goleak does, which is half a second: what ends by itself may need that on a busy machine.
func noneLeft(t *testing.T, before goleak.Option) {
	t.Helper()
	err := goleak.Find(before, goleak.IgnoreAnyFunction(children.Starter))
	for deadline := time.Now().Add(patience); err != nil && time.Now().Before(deadline); {
		err = goleak.Find(before, goleak.IgnoreAnyFunction(children.Starter))
	}
	if err != nil {
		t.Error(err)
	}
}

// answers is the contract: the fold of the deltas is a valid response to the question.
func (s Suite) answers(t *testing.T) {
	for name, message := range Messages() {
		t.Run(name, func(t *testing.T) {
			agent := start(t, s.New)
			check(t, message, answer(t, agent, Turn("answers", message)))
		})
	}
}

func (s Suite) leavesTurnAlone(t *testing.T) {
	agent := start(t, s.New)
	for name, message := range Messages() {
		turn := Turn("alone", message)
		before := encode(t, turn.Message)
		answer(t, agent, turn)
		if after := encode(t, turn.Message); string(after) != string(before) {
			t.Errorf("%s: the agent changed the message:\n%s\n%s", name, before, after)
		}
	}
}

// isReentrant runs the same turn again, as after a crash, and after a run that was given up in the middle.
func (s Suite) isReentrant(t *testing.T) {
	agent := start(t, s.New)
	turn := Turn("again", Messages()["text"])
	for _, err := range agent.Handle(t.Context(), turn) {
		if err != nil {
			t.Fatalf("the agent failed: %v", err)
		}
		break
	}

	for turn.Attempt = 2; turn.Attempt <= 3; turn.Attempt++ {
		check(t, turn.Message, answer(t, agent, turn))
	}
}

func (s Suite) isConcurrent(t *testing.T) {
	agent := start(t, s.New)
	t.Run("turns", func(t *testing.T) {
		for name, message := range Messages() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				check(t, message, answer(t, agent, Turn("concurrent "+name, message)))
			})
		}
	})
}

func (s Suite) stopsWhenNobodyWantsMore(t *testing.T) {
	agent := start(t, s.New)
	deltas := 0
	for _, err := range agent.Handle(t.Context(), Turn("enough", Messages()["text"])) {
		if err != nil {
			t.Fatalf("the agent failed: %v", err)
		}
		deltas++
		break // an agent that yields again panics here
	}

	if deltas != 1 {
		t.Errorf("%d deltas before the break, want 1", deltas)
	}
}

// stopsBeforeItBegins allows both an error and a complete answer, but not half of one that looks complete.
func (s Suite) stopsBeforeItBegins(t *testing.T) {
	agent := start(t, s.New)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	message := Messages()["text"]
	response, err := fold(ctx, t, agent, Turn("over", message))
	if err == nil {
		check(t, message, response)
	}
}

func (s Suite) stopsWhenContextEnds(t *testing.T) {
	agent := start(t, s.NewStuck)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := fold(ctx, t, agent, Turn("stuck", Messages()["text"])); err == nil {
		t.Error("the agent ended without error although it had no answer")
	}
}

func answer(t *testing.T, agent agents.Agent, turn agents.Turn) normalized.Response {
	t.Helper()
	response, err := fold(t.Context(), t, agent, turn)
	if err != nil {
		t.Fatalf("the agent failed: %v", err)
	}
	return response
}

// fold runs the turn to its end as the engine does.
func fold(ctx context.Context, t *testing.T, agent agents.Agent, turn agents.Turn) (normalized.Response, error) {
	t.Helper()
	late := time.AfterFunc(patience, func() { panic("agenttest: the agent does not come to an end: " + turn.ID) })
	defer late.Stop()
	fold := normalized.NewFold(normalized.DefaultLimits())
	for delta, err := range agent.Handle(ctx, turn) {
		if err != nil {
			return normalized.Response{}, err
		}
		if err := fold.Add(delta); err != nil {
			t.Fatalf("delta %s: %v", encode(t, delta), err)
		}
	}

	response, err := fold.Response()
	if err != nil {
		t.Fatalf("fold: %v", err)
	}

	return response.Answering(turn.Message), nil
}

func check(t *testing.T, question normalized.Message, response normalized.Response) {
	t.Helper()
	if response.InReplyTo != question.ID {
		t.Errorf("in_reply_to = %q, want %q", response.InReplyTo, question.ID)
	}
	if err := normalized.ValidateResponse(response, question, normalized.DefaultLimits()); err != nil {
		t.Errorf("the response is not valid: %v\n%s", err, encode(t, response))
	}
}

func encode(t *testing.T, value any) []byte {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}
