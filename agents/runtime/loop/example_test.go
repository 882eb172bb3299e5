package loop_test

import (
	"context"
	"fmt"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// oneTool is a model that asks for one tool and then answers. A real program calls a model here.
type oneTool struct{}

func (oneTool) ProviderTurn(_ context.Context, request loop.ProviderRequest) (any, error) {
	if last := request.Messages[len(request.Messages)-1]; last.Type == envelope.TypeToolResult {
		return map[string]any{"content": "It is " + last.Text()}, nil
	}
	return map[string]any{"tool_calls": []any{map[string]any{"id": "1", "name": "clock/now"}}}, nil
}

func ExampleRun() {
	tools, _ := tool.Declare(tool.Entries([]any{map[string]any{
		"name": "clock/now", "description": "Tells the time.",
	}}))
	clock := tool.ExecutorFunc(func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"success": true, "result": "noon"}, nil
	})
	result, err := loop.Run(context.Background(), []any{map[string]any{"role": "user", "content": "What time is it?"}}, nil,
		loop.Options{
			MaxTurns: 5, Provider: oneTool{}, Tools: tools, Executors: tool.Executors{Default: clock},
			Budgets: []*loop.Budget{loop.NewBudget(loop.BudgetToolCalls, 10, 0)}, SpinDetector: loop.NewConsecutiveSpin(0),
			Observer: loop.ObserverFunc(func(name string, _ map[string]any) { fmt.Println(name) }),
		})
	if err != nil {
		panic(err)
	}
	fmt.Println(result["final_content"], value.Assoc(result["run_outcome"])["status"])
	// Output:
	// turn_started
	// tool_call
	// tool_result
	// turn_started
	// completed
	// It is "noon" completed
}

// session is a store of transcripts that a program has: it locks them, keeps them, and knows what people add to them while a run works.
type session struct {
	locked  bool
	waiting []envelope.Envelope
}

func (s *session) Acquire(_ context.Context, sessionID string, ttl time.Duration) (string, error) {
	if s.locked {
		return "", nil // another run has the session
	}
	s.locked = true
	return "token of " + sessionID, nil
}

func (s *session) Release(context.Context, string, string) error {
	s.locked = false
	return nil
}

func (s *session) Poll(context.Context, loop.Request, map[string]any) (any, error) {
	if len(s.waiting) == 0 {
		return nil, nil
	}
	next := s.waiting[0]
	s.waiting = s.waiting[1:]
	return next, nil
}

func (s *session) Persist(_ context.Context, messages []envelope.Envelope, request loop.Request, result map[string]any) error {
	fmt.Println("persist", request.SessionID, len(messages), "messages,", result["status"])
	return nil
}

// A person redirects the run after its first turn, and cancels it after the second.
func ExampleRun_interrupts() {
	s := &session{waiting: []envelope.Envelope{
		envelope.UserText("In French, please.", map[string]any{"action": loop.ActionRedirect, "source": "ui"}),
		envelope.UserText("Stop.", map[string]any{"action": loop.ActionCancel, "source": "ui"}),
	}}
	options := loop.Options{
		MaxTurns: 5, Provider: oneTool{}, SessionID: "s1", TranscriptLock: s, TranscriptPersister: s, Interrupts: s,
		ShouldContinue: func(context.Context, map[string]any, map[string]any) (bool, error) { return true, nil },
		Observer: loop.ObserverFunc(func(name string, payload map[string]any) {
			if name == "interrupt_received" {
				name += ": " + value.Text(payload["action"])
			}
			fmt.Println(name)
		}),
	}
	question := []any{map[string]any{"role": "user", "content": "What time is it?"}}
	if _, err := loop.Run(context.Background(), question, nil, options); err != nil {
		panic(err)
	}

	s.locked = true
	result, err := loop.Run(context.Background(), question, nil, options)
	fmt.Println(result["status"], err)
	// Output:
	// turn_started
	// interrupt_received: redirect
	// turn_started
	// interrupt_received: cancel
	// persist s1 3 messages, interrupted
	// completed
	// transcript_lock_contention
	// transcript_lock_contention <nil>
}
