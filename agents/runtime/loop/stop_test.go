package loop_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
)

// control is run control in memory.
type control struct {
	startErr, finishErr, askErr error
	cancelling                  bool
	started                     int
	finished                    []string
}

func (c *control) Start(context.Context, string, string) error {
	c.started++
	return c.startErr
}

func (c *control) Cancelling(context.Context, string) (bool, error) { return c.cancelling, c.askErr }

func (c *control) Finish(ctx context.Context, _, status string) error {
	c.finished = append(c.finished, status)
	return errors.Join(c.finishErr, ctx.Err())
}

func (r *rig) controlled() *control {
	c := &control{}
	r.options.Control, r.options.RunID, r.options.SessionID = c, " run ", "session"
	return c
}

type persister struct {
	results []map[string]any
	counts  []int
	fail    func() error
}

func (p *persister) Persist(ctx context.Context, messages []envelope.Envelope, _ loop.Request, result map[string]any) error {
	p.results, p.counts = append(p.results, result), append(p.counts, len(messages))
	if p.fail != nil {
		return p.fail()
	}
	return ctx.Err()
}

type lock struct {
	token    string
	err      error
	acquired int
	released []string
	fail     func()
}

func (l *lock) Acquire(_ context.Context, _ string, ttl time.Duration) (string, error) {
	l.acquired++
	if ttl != 300*time.Second {
		return "", errTest
	}
	return l.token, l.err
}

func (l *lock) Release(ctx context.Context, _, token string) error {
	l.released = append(l.released, token)
	if l.fail != nil {
		l.fail()
	}
	return ctx.Err()
}

// phases are the places where a context may end.
var phases = map[string]func(r *rig, cancel context.CancelFunc){
	"before the run": func(_ *rig, cancel context.CancelFunc) { cancel() },
	"in the runner": func(r *rig, cancel context.CancelFunc) {
		r.turns = []any{func() any {
			cancel()
			return calls("1", "a/read")
		}}
	},
	"in the runner, with an error": func(r *rig, cancel context.CancelFunc) {
		r.turns = []any{func() any {
			cancel()
			return context.Canceled
		}}
	},
	"in the mediator": func(r *rig, cancel context.CancelFunc) {
		r.options.Mediator = loop.MediatorFunc(func(context.Context, loop.Proposal) (any, error) {
			cancel()
			return nil, nil
		})
	},
	"in a tool": func(r *rig, cancel context.CancelFunc) {
		r.execute = func(ctx context.Context, _ tool.Call) (map[string]any, error) {
			cancel()
			return nil, ctx.Err()
		}
	},
	"in the policy": func(r *rig, cancel context.CancelFunc) {
		r.options.CompletionPolicy = policyFunc(func(loop.ToolResult) (loop.Decision, error) {
			cancel()
			return loop.Decision{}, nil
		})
	},
	"in the interrupt source": func(r *rig, cancel context.CancelFunc) {
		r.options.Interrupts = loop.InterruptSourceFunc(func(context.Context, loop.Request, map[string]any) (any, error) {
			cancel()
			return nil, nil
		})
	},
	"in should_continue": func(r *rig, cancel context.CancelFunc) {
		r.options.ShouldContinue = func(context.Context, map[string]any, map[string]any) (bool, error) {
			cancel()
			return true, nil
		}
	},
	"in the summarizer": func(r *rig, cancel context.CancelFunc) {
		r.options.CompactionPolicy = map[string]any{"enabled": true, "max_messages": 2, "recent_messages": 1}
		r.options.Summarizer = loop.SummarizerFunc(func(ctx context.Context, _ []envelope.Envelope, _ map[string]any) (any, error) {
			cancel()
			return nil, ctx.Err()
		})
	},
}

func TestContextEndsInEveryPhase(t *testing.T) {
	for name, arrange := range phases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := newRig(calls("1", "a/read", "2", "a/read"), calls("3", "a/read"))
			c, p, l := r.controlled(), &persister{}, &lock{token: "t"}
			r.options.TranscriptPersister, r.options.TranscriptLock = p, l
			arrange(r, cancel)
			result, err := r.try(ctx)
			if !errors.Is(err, context.Canceled) || result == nil {
				t.Fatalf("result %v, error %v", result != nil, err)
			}
			wantStatus(t, result, "interrupted")
			if value.Assoc(result["interrupted"])["reason"] != "context_cancelled" {
				t.Fatalf("interrupted %v", result["interrupted"])
			}
			noOrphans(t, result)
			if len(p.results) != 1 || len(l.released) != 1 {
				t.Fatalf("persisted %d, released %d", len(p.results), len(l.released))
			}
			if diff := cmp.Diff([]string{"interrupted"}, c.finished); diff != "" {
				t.Fatal(diff)
			}
			for _, message := range transcript(t, result) {
				if strings.Contains(message.Text(), "Cancel this run") {
					t.Fatal("nobody in the conversation asked to cancel")
				}
			}
		})
	}
}

func TestDeadlineIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r := newRig(func() any {
			<-ctx.Done()
			return ctx.Err()
		})
		result, err := r.try(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || value.Assoc(result["interrupted"])["reason"] != "deadline_exceeded" {
			t.Fatalf("%v, %v", err, result["interrupted"])
		}
	})
}

func TestWallClockStopsBeforeATurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func() any {
			<-time.After(1500 * time.Millisecond) // the clock of the test bubble
			return calls("1", "a/read")
		}
		r := newRig(slow, slow, slow, slow)
		r.options.Budgets = []*loop.Budget{loop.NewBudget(loop.BudgetWallClock, 5, 2)}
		result := r.run(t)
		wantStatus(t, result, "budget_exceeded")
		if r.ran != 2 || result["budget"] != "wall_clock_seconds" {
			t.Fatalf("ran %d, budget %v", r.ran, result["budget"])
		}
		want := map[string]any{"budget": "wall_clock_seconds", "dimension": "wall_clock", "current": 5, "ceiling": 5}
		if diff := cmp.Diff(want, r.payloads["budget_exceeded"][0]); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestWallClockMayStopBeforeTheFirstTurn(t *testing.T) {
	r := newRig()
	r.options.Budgets = []*loop.Budget{loop.NewBudget(loop.BudgetWallClock, 5, 5)}
	result := r.run(t)
	if !value.Equal(result["turn_count"], 0) || r.ran != 0 || r.saw("turn_started") {
		t.Fatalf("turn_count %v, ran %d", result["turn_count"], r.ran)
	}
}

func TestExplicitTurnsTripEvenOnANaturalStop(t *testing.T) {
	for _, tools := range []bool{true, false} {
		r := newRig(map[string]any{"messages": []any{map[string]any{"role": "assistant", "content": "x"}}})
		if tools {
			r = newRig(map[string]any{"content": "x", "tool_calls": []any{}})
		}
		r.options.Budgets = []*loop.Budget{loop.NewBudget(loop.BudgetTurns, 1, 0)}
		result := r.run(t)
		status := map[bool]string{true: "completed", false: "budget_exceeded"}[tools]
		wantStatus(t, result, status)
		if reason := value.Assoc(result["run_outcome"])["stop_reason"]; !tools && reason != "max_turns" {
			t.Fatalf("stop reason %v", reason)
		}
	}
}

func TestInterrupts(t *testing.T) {
	r := newRig(calls("1", "a/read"), calls("2", "a/read"), calls("3", "a/read"))
	answers := []any{
		5,
		map[string]any{"role": "user", "content": "look there", "metadata": map[string]any{"action": " Redirect ", "source": "web"}},
		map[string]any{"role": "user", "content": "stop", "metadata": map[string]any{"interrupt_action": "cancel", "action": "message"}},
	}
	r.options.Interrupts = loop.InterruptSourceFunc(func(_ context.Context, request loop.Request, turn map[string]any) (any, error) {
		if len(request.Messages) < 3 || turn["turn"] == nil {
			t.Errorf("request %+v, turn %v", request, turn)
		}
		answer := answers[0]
		answers = answers[1:]
		return answer, nil
	})
	result := r.run(t)
	wantStatus(t, result, "interrupted")
	if diff := cmp.Diff([]string{"interrupt_received", "interrupt_received"}, recorded(result)); diff != "" {
		t.Fatal(diff)
	}
	if diff := cmp.Diff(map[string]any{"reason": "invalid_message", "turn": 1}, r.payloads["interrupt_ignored"][0]); diff != "" {
		t.Fatal(diff)
	}
	first, second := r.payloads["interrupt_received"][0], r.payloads["interrupt_received"][1]
	if first["action"] != "redirect" || first["source"] != "web" || second["action"] != "cancel" || second["interrupt_action"] != nil {
		t.Fatalf("%v, %v", first, second)
	}
	if r.ran != 3 || yes(result["completed"]) {
		t.Fatalf("ran %d", r.ran)
	}
}

func TestRunControl(t *testing.T) {
	t.Run("refuses to start", func(t *testing.T) {
		r := newRig()
		c := r.controlled()
		c.startErr = fault.Wrap(fault.Conflict, "this run exists", errTest)
		result := r.run(t)
		failure := value.Assoc(result["failure"])
		wantStatus(t, result, "failed")
		if failure["type"] != "run_control" || failure["message"] != "this run exists" || r.ran != 0 || !r.saw("failed") || r.saw("completed") {
			t.Fatalf("failure %v, events %v", failure, r.names)
		}
	})
	t.Run("cannot finish", func(t *testing.T) {
		r := newRig(calls("1", "a/read"))
		c, p := r.controlled(), &persister{}
		r.options.TranscriptPersister = p
		c.finishErr = errTest
		result := r.run(t)
		wantStatus(t, result, "failed")
		if len(result["tool_execution_results"].([]any)) != 1 || len(p.results) != 1 || r.saw("completed") {
			t.Fatalf("result %v", result)
		}
	})
	t.Run("cannot say", func(t *testing.T) {
		r := newRig()
		c := r.controlled()
		c.askErr, c.cancelling = errTest, true
		wantStatus(t, r.run(t), "completed")
	})
	t.Run("cancels before the first turn", func(t *testing.T) {
		r := newRig()
		r.controlled().cancelling = true
		result := r.run(t)
		wantStatus(t, result, "interrupted")
		if r.ran != 0 || !value.Equal(result["turn_count"], 1) || r.saw("turn_started") {
			t.Fatalf("ran %d, turn_count %v", r.ran, result["turn_count"])
		}
	})
	t.Run("cancels during the tools", func(t *testing.T) {
		r := newRig(calls("1", "a/read", "2", "a/read"))
		c := r.controlled()
		r.execute = func(context.Context, tool.Call) (map[string]any, error) {
			c.cancelling = true
			return nil, nil
		}
		result := r.run(t)
		wantStatus(t, result, "interrupted")
		noOrphans(t, result)
		if len(r.executed) != 2 || len(transcript(t, result)) != 6 {
			t.Fatalf("executed %v", r.executed)
		}
	})
	t.Run("hears of errors", func(t *testing.T) {
		r := newRig("no object")
		c := r.controlled()
		_, err := r.try(t.Context())
		if err == nil || len(c.finished) != 1 || c.finished[0] != "failed" {
			t.Fatalf("error %v, finished %v", err, c.finished)
		}
	})
}

func TestLock(t *testing.T) {
	t.Run("contended", func(t *testing.T) {
		r := newRig()
		c, l, p := r.controlled(), &lock{}, &persister{}
		r.options.TranscriptLock, r.options.TranscriptPersister = l, p
		result := r.run(t)
		wantStatus(t, result, "completed") // as recorded
		if reason := value.Assoc(result["run_outcome"])["stop_reason"]; reason != "natural" {
			t.Errorf("stopped for %v; want natural, as recorded", reason)
		}
		_, completed := result["completed"]
		_, turns := result["turn_count"]
		if result["status"] != "transcript_lock_contention" || completed || turns || len(p.results) != 0 || len(l.released) != 0 {
			t.Fatalf("result %v", result)
		}
		if diff := cmp.Diff([]string{"transcript_lock_contention"}, r.names); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff([]string{"failed"}, c.finished); diff != "" {
			t.Fatal(diff)
		}
	})
	t.Run("fails", func(t *testing.T) {
		r := newRig()
		r.options.TranscriptLock, r.options.SessionID = &lock{err: errTest}, "s"
		if _, err := r.try(t.Context()); !errors.Is(err, errTest) {
			t.Fatalf("error %v", err)
		}
	})
	t.Run("needs a session", func(t *testing.T) {
		r, l := newRig(), &lock{token: "t"}
		r.options.TranscriptLock = l
		wantStatus(t, r.run(t), "completed")
		if l.acquired != 0 {
			t.Fatal("locked")
		}
	})
	t.Run("finds the session in the metadata", func(t *testing.T) {
		r, l := newRig(), &lock{token: "t"}
		r.options.TranscriptLock, r.options.Metadata = l, map[string]any{"transcript_session_id": "  ", "transcript_id": " s "}
		wantStatus(t, r.run(t), "completed")
		if diff := cmp.Diff([]string{"t"}, l.released); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestRunnerFailures(t *testing.T) {
	bomb := func() any { panic("bomb") }
	for name, test := range map[string]struct {
		turn    any
		kind    string
		message string
	}{
		"error":   {errTest, "runner_error", "test failure"},
		"fault":   {fault.Wrap(fault.Unavailable, "the model is away", errTest), "unavailable", "the model is away"},
		"panic":   {bomb, "panic", "turn runner panicked: bomb"},
		"failure": {map[string]any{"failure": map[string]any{"retry_after": 3}}, "provider_turn_failure", "Provider turn failed."},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := newRig(calls("1", "a/read"), test.turn), &persister{}
			c := r.controlled()
			r.options.TranscriptPersister = p
			result := r.run(t)
			wantStatus(t, result, "failed")
			failure := value.Assoc(result["failure"])
			if failure["type"] != test.kind || failure["message"] != test.message || !value.Equal(failure["turn_count"], 2) {
				t.Fatalf("failure %v", failure)
			}
			if r.names[len(r.names)-1] != "failed" || len(p.results) != 1 || c.finished[0] != "failed" {
				t.Fatalf("events %v, persisted %d, finished %v", r.names, len(p.results), c.finished)
			}
			noOrphans(t, result)
		})
	}
}

func TestNoObjectKeepsTheTranscript(t *testing.T) {
	for _, given := range []any{nil, "x", 5, true} {
		r, p := newRig(calls("1", "a/read"), func() any { return given }), &persister{}
		r.options.TranscriptPersister = p
		_, err := r.try(t.Context())
		if err == nil || err.Error() != "invalid_agent_conversation_loop: turn runner must return an array" {
			t.Fatalf("%v: error %v", given, err)
		}
		if len(p.results) != 1 || p.counts[0] != 3 || !r.saw("failed") {
			t.Fatalf("persisted %v", p.counts)
		}
	}
}

// TestWhatIsSwallowed covers section 3.2: these callbacks change nothing, however they fail.
func TestWhatIsSwallowed(t *testing.T) {
	bomb := func() { panic("bomb") }
	for name, arrange := range map[string]func(r *rig){
		"observer":         func(r *rig) { r.options.Observer = loop.ObserverFunc(func(string, map[string]any) { bomb() }) },
		"persister":        func(r *rig) { r.options.TranscriptPersister = &persister{fail: func() error { return errTest }} },
		"persister panics": func(r *rig) { r.options.TranscriptPersister = &persister{fail: func() error { panic("bomb") }} },
		"release": func(r *rig) {
			r.options.TranscriptLock, r.options.SessionID = &lock{token: "t", fail: bomb}, "s"
		},
		"mediator": func(r *rig) {
			r.options.Mediator = loop.MediatorFunc(func(context.Context, loop.Proposal) (any, error) {
				return map[string]any{"action": "reject"}, errTest
			})
		},
		"mediator panics": func(r *rig) {
			r.options.Mediator = loop.MediatorFunc(func(context.Context, loop.Proposal) (any, error) { panic("bomb") })
		},
		"diagnostics": func(r *rig) {
			r.options.Diagnostics = func(context.Context, map[string]any) (map[string]any, error) { panic("bomb") }
		},
		"summarizer": func(r *rig) {
			r.options.CompactionPolicy = map[string]any{"enabled": true, "max_messages": 1}
			r.options.Summarizer = loop.SummarizerFunc(func(context.Context, []envelope.Envelope, map[string]any) (any, error) {
				panic("bomb")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(calls("1", "a/read"))
			arrange(r)
			result := r.run(t)
			wantStatus(t, result, "completed")
			if len(r.executed) != 1 || result["final_content"] != "Done" {
				t.Fatalf("executed %v, final %v", r.executed, result["final_content"])
			}
		})
	}
}

type badSpin struct{ loop.ConsecutiveSpin }

func (*badSpin) Record(loop.SpinSignature, map[string]any) (bool, error) { return false, errTest }

type badFailures struct{ loop.ConsecutiveFailures }

func (*badFailures) Record(loop.FailureSignature, map[string]any) (string, error) { panic(errTest) }

type badTruncator struct{}

func (badTruncator) Truncate(map[string]any, string, map[string]any) (loop.Truncation, error) {
	return loop.Truncation{}, errTest
}

type badStore struct{}

func (badStore) Create(context.Context, map[string]any, map[string]any) (map[string]any, error) {
	return nil, errTest
}

// TestWhatIsNotSwallowed covers section 3.2: these failures end the run with an error, and the lock is released.
func TestWhatIsNotSwallowed(t *testing.T) {
	for name, arrange := range map[string]func(r *rig){
		"completion policy": func(r *rig) {
			r.options.CompletionPolicy = policyFunc(func(loop.ToolResult) (loop.Decision, error) { return loop.Decision{}, errTest })
		},
		"completion policy panics": func(r *rig) {
			r.options.CompletionPolicy = policyFunc(func(loop.ToolResult) (loop.Decision, error) { panic("bomb") })
		},
		"interrupt source": func(r *rig) {
			r.options.Interrupts = loop.InterruptSourceFunc(func(context.Context, loop.Request, map[string]any) (any, error) {
				return nil, errTest
			})
		},
		"interrupt message": func(r *rig) {
			r.options.Interrupts = loop.InterruptSourceFunc(func(context.Context, loop.Request, map[string]any) (any, error) {
				return map[string]any{"role": ""}, nil
			})
		},
		"should_continue": func(r *rig) {
			r.options.ShouldContinue = func(context.Context, map[string]any, map[string]any) (bool, error) { panic("bomb") }
		},
		"detector":  func(r *rig) { r.options.SpinDetector = &badSpin{} },
		"tracker":   func(r *rig) { r.options.FailureTracker = &badFailures{} },
		"truncator": func(r *rig) { r.options.Truncator = badTruncator{} },
		"request store": func(r *rig) {
			r.options.RequestStore = badStore{}
			r.options.Mediator = loop.MediatorFunc(func(context.Context, loop.Proposal) (any, error) {
				return map[string]any{"action": "pending"}, nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(calls("1", "a/read"))
			if name == "tracker" {
				r.execute = func(context.Context, tool.Call) (map[string]any, error) { return nil, errTest }
			}
			c, l := r.controlled(), &lock{token: "t"}
			r.options.TranscriptLock = l
			arrange(r)
			result, err := r.try(t.Context())
			if err == nil || result != nil {
				t.Fatalf("result %v, error %v", result, err)
			}
			if len(l.released) != 1 || len(c.finished) != 1 || c.finished[0] != "failed" {
				t.Fatalf("released %v, finished %v", l.released, c.finished)
			}
		})
	}
}

func TestPanicOfAToolIsAResult(t *testing.T) {
	r := newRig(calls("1", "a/read"))
	r.execute = func(context.Context, tool.Call) (map[string]any, error) { panic("bomb") }
	result := r.run(t)
	wantStatus(t, result, "completed")
	noOrphans(t, result)
}

func TestErrorsBeforeTheRun(t *testing.T) {
	r := newRig()
	if _, err := loop.Run(t.Context(), []any{map[string]any{"role": ""}}, r, r.options); err == nil || len(r.names) > 0 {
		t.Fatalf("error %v, events %v", err, r.names)
	}
	c := r.controlled()
	if _, err := loop.Run(t.Context(), nil, nil, r.options); err == nil ||
		err.Error() != "invalid_agent_conversation_loop: a turn runner or provider_turn_adapter is required" {
		t.Fatalf("error %v", err)
	}
	if diff := cmp.Diff([]string{"failed"}, c.finished); diff != "" {
		t.Fatal(diff)
	}
}

func TestPrincipalReachesTheContext(t *testing.T) {
	r := newRig(calls("1", "a/read"))
	r.options.Principal = map[string]any{"acting_user_id": 7}
	var seen map[string]any
	r.execute = func(_ context.Context, call tool.Call) (map[string]any, error) {
		seen = call.Context
		return nil, nil
	}
	r.run(t)
	if seen["principal"] == nil || seen["tool_call_id"] != "1" {
		t.Fatalf("context %v", seen)
	}
	if r.options.Context != nil {
		t.Fatal("the caller's context was changed")
	}
}
