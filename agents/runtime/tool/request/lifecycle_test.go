package request_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/tool/request/requesttest"
	"inbox/agents/runtime/value"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func create(t *testing.T, lifecycle request.Lifecycle, raw map[string]any) map[string]any {
	t.Helper()
	created, err := lifecycle.Create(t.Context(), raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func pick(requestID string) map[string]any {
	return map[string]any{"request_id": requestID, "tool_name": "client/pick", "tool_call_id": "c1", "run_id": "r1"}
}

// TestOneWinner lets many submits, timeouts and cancels race for one request.
func TestOneWinner(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		callers := rapid.SliceOfN(rapid.SampledFrom([]string{"submit", "timeout", "cancel"}), 2, 24).Draw(r, "callers")
		lifecycle := request.Lifecycle{Store: new(requesttest.Memory)}
		create(t, lifecycle, pick("q1"))
		var resumed int
		var mu sync.Mutex
		resume := func(context.Context, map[string]any, map[string]any, map[string]any) (map[string]any, error) {
			mu.Lock()
			defer mu.Unlock()
			resumed++
			return nil, nil
		}
		answers := make([]*request.Envelope, len(callers))
		failures := make([]error, len(callers))
		var group sync.WaitGroup
		for number, kind := range callers {
			group.Go(func() {
				switch kind {
				case "submit":
					answers[number], failures[number] = lifecycle.Submit(t.Context(), map[string]any{"request_id": "q1", "result": number}, resume, nil)
				case "timeout":
					answers[number], failures[number] = lifecycle.Timeout(t.Context(), "q1", resume, nil)
				default:
					answers[number], failures[number] = lifecycle.Cancel(t.Context(), "q1", resume, nil)
				}
			})
		}
		group.Wait()
		judge(r, callers, answers, failures)
		if resumed != 1 {
			r.Errorf("%d continuations, want 1", resumed)
		}
	})
}

// judge checks that one caller won and that all others got the replay of its outcome.
func judge(r *rapid.T, callers []string, answers []*request.Envelope, failures []error) {
	winner := -1
	for number, answer := range answers {
		if answer != nil && !answer.Duplicate {
			if winner >= 0 {
				r.Fatalf("callers %d and %d both won", winner, number)
			}
			winner = number
		}
	}
	if winner < 0 {
		r.Fatalf("nobody won: %v", failures)
	}
	for number, answer := range answers {
		submitted := callers[winner] == "submit"
		switch {
		case number == winner:
		case answer == nil:
			var refused *request.Error
			if submitted || callers[number] != "submit" || !errors.As(failures[number], &refused) || refused.Reason != "request is not pending" {
				r.Errorf("%s %d failed: %v", callers[number], number, failures[number])
			}
		case submitted && !value.Equal(answer.Result, answers[winner].Result):
			r.Errorf("%s %d got %v, want the result of the winner %v", callers[number], number, answer.Result, answers[winner].Result)
		case answer.ContinuationResult != nil:
			r.Errorf("%s %d continued the run a second time", callers[number], number)
		}
	}
}

func TestTimeoutByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lifecycle := request.Lifecycle{Store: new(requesttest.Memory)}
		create(t, lifecycle, merge(pick("never"), "tool_call_id", "c0"))
		create(t, lifecycle, merge(pick("soon"), "timeout_at", time.Now().Add(time.Minute).Format(time.RFC3339)))
		create(t, lifecycle, merge(pick("later"), "timeout_at", time.Now().Add(time.Hour).UTC().Format(time.DateTime)))
		create(t, lifecycle, merge(pick("unreadable"), "timeout_at", "tomorrow"))
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{59 * time.Second, 0}, {time.Second, 1}, {time.Minute, 0}, {time.Hour, 1}, {time.Hour, 0}} {
			<-time.After(step.wait) // the clock of the bubble
			ended, err := lifecycle.Expire(t.Context(), time.Now(), nil, nil)
			if err != nil || ended != step.want {
				t.Errorf("after %v: %d ended, %v; want %d", step.wait, ended, err, step.want)
			}
		}
		left, err := lifecycle.Pending(t.Context(), request.Query{})
		if err != nil || len(left) != 2 {
			t.Errorf("%d pending, %v; want 2", len(left), err)
		}
	})
}

func merge(object map[string]any, name string, value any) map[string]any {
	object[name] = value
	return object
}

func TestContinuationFails(t *testing.T) {
	lifecycle := request.Lifecycle{Store: new(requesttest.Memory)}
	create(t, lifecycle, pick("q1"))
	broken := errors.New("no thread")
	answer, err := lifecycle.Submit(t.Context(), map[string]any{"request_id": " q1 ", "result": "x"},
		func(context.Context, map[string]any, map[string]any, map[string]any) (map[string]any, error) {
			return nil, broken
		}, nil)
	if !errors.Is(err, broken) || answer == nil || answer.Duplicate {
		t.Fatalf("answer = %+v, err = %v", answer, err)
	}
	replay, err := lifecycle.Submit(t.Context(), map[string]any{"request_id": "q1", "result": "y"}, nil, nil)
	if err != nil || !replay.Duplicate || !value.Equal(replay.Result["result"], map[string]any{"value": "x"}) {
		t.Errorf("replay = %+v, %v; want the first result", replay, err)
	}
}

func TestCancelSaysSo(t *testing.T) {
	lifecycle := request.Lifecycle{Store: new(requesttest.Memory)}
	create(t, lifecycle, pick("q1"))
	for _, duplicate := range []bool{false, true} {
		answer, err := lifecycle.Cancel(t.Context(), "q1", nil, nil)
		if err != nil || !answer.Cancelled || answer.Duplicate != duplicate || answer.Status != request.StatusTimeout {
			t.Errorf("answer = %+v, %v", answer, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	lifecycle := request.Lifecycle{Store: new(requesttest.Memory)}
	submit := func(raw map[string]any) error {
		_, err := lifecycle.Submit(t.Context(), raw, nil, nil)
		return err
	}
	timeout := func(requestID string) error {
		_, err := lifecycle.Timeout(t.Context(), requestID, nil, nil)
		return err
	}
	query := func(raw map[string]any) error {
		_, err := request.ReadQuery(raw)
		return err
	}
	for want, err := range map[string]error{
		"invalid_runtime_tool_result: request_id must be a non-empty string":                    submit(map[string]any{"request_id": 7}),
		"invalid_runtime_tool_result: request not found":                                        submit(map[string]any{"request_id": "q"}),
		"invalid_runtime_tool_timeout: request_id must be a non-empty string":                   timeout(" "),
		"invalid_runtime_tool_timeout: request not found":                                       timeout("q"),
		"invalid_runtime_tool_query: before must be a time such as 2026-01-02T15:04:05Z":        query(map[string]any{"before": "noon"}),
		"invalid_runtime_tool_request: has 1048636 bytes as JSON; the limit is 1048576":         lifecycle.Store.Create(t.Context(), merge(pick("q"), "x", strings.Repeat("x", 1<<20-25))),
		"invalid_runtime_tool_request: is not JSON: write JSON: json: unsupported type: func()": lifecycle.Store.Create(t.Context(), merge(pick("q"), "x", func() {})),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error = %v\nwant    %s", err, want)
		}
	}
}
