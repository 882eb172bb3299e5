package loop_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// journal is a lock and a persister that write into the list of events of a run.
type journal struct {
	rig   *rig
	token string
	got   []string // what the lock was asked for
	kept  map[string]any
	said  loop.Request
}

func (j *journal) Acquire(_ context.Context, session string, ttl time.Duration) (string, error) {
	j.rig.names = append(j.rig.names, "lock acquired")
	j.got = append(j.got, fmt.Sprintf("%q %s", session, ttl))
	return j.token, nil
}

func (j *journal) Release(_ context.Context, session, token string) error {
	j.rig.names = append(j.rig.names, "lock released")
	j.got = append(j.got, fmt.Sprintf("%q %s", session, token))
	return nil
}

func (j *journal) Persist(_ context.Context, messages []envelope.Envelope, request loop.Request, result map[string]any) error {
	j.rig.names = append(j.rig.names, "persisted")
	j.kept, j.said = value.Clone(result), request
	if len(messages) != len(request.Messages) {
		return errTest
	}
	return nil
}

func journaled(r *rig) *journal {
	j := &journal{rig: r, token: "token"}
	r.options.TranscriptLock, r.options.TranscriptPersister, r.options.SessionID = j, j, "s"
	return j
}

// TestOrderOfLockPersisterAndCompleted covers steps 4, 7 and 8 of section 3.2 for every way in which a run can end.
func TestOrderOfLockPersisterAndCompleted(t *testing.T) {
	cancelling := func(r *rig) {
		r.options.Interrupts = loop.InterruptSourceFunc(func(context.Context, loop.Request, map[string]any) (any, error) {
			return map[string]any{"role": "user", "content": "stop", "metadata": map[string]any{"action": "cancel"}}, nil
		})
	}
	approving := func(r *rig) {
		r.execute = func(context.Context, tool.Call) (map[string]any, error) {
			return map[string]any{"success": true, "result": map[string]any{
				"type": "approval_required", "role": "tool", "content": "May I?", "payload": map[string]any{"action_id": "a1"},
			}}, nil
		}
	}

	for name, test := range map[string]struct {
		turns   []any
		arrange func(*rig)
		status  string
		last    string // event of the run, "" for none
	}{
		"natural":           {turns: []any{calls("1", "a/read")}, status: "completed", last: "completed"},
		"max turns":         {turns: []any{calls("1", "a/read")}, arrange: func(r *rig) { r.options.MaxTurns = 1 }, status: "completed", last: "completed"},
		"budget":            {turns: []any{calls("1", "a/read")}, arrange: func(r *rig) { r.options.Budgets = []*loop.Budget{loop.NewBudget("tool_calls", 1, 0)} }, status: "budget_exceeded", last: "completed"},
		"stalled":           {turns: []any{calls("1", "a/read"), calls("1", "a/read")}, arrange: func(r *rig) { r.options.SpinDetector = loop.NewConsecutiveSpin(2) }, status: "stalled", last: "completed"},
		"approval":          {turns: []any{calls("1", "a/read")}, arrange: approving, status: "approval_required", last: "completed"},
		"interrupted":       {turns: []any{calls("1", "a/read")}, arrange: cancelling, status: "interrupted", last: "completed"},
		"runner fails":      {turns: []any{errTest}, status: "failed", last: "failed"},
		"provider fails":    {turns: []any{map[string]any{"failure": map[string]any{"message": "no"}}}, status: "failed", last: "failed"},
		"run control fails": {arrange: func(r *rig) { r.controlled().finishErr = errTest }, status: "failed", last: "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(test.turns...)
			if test.arrange != nil {
				test.arrange(r)
			}
			j := journaled(r)
			result := r.run(t)
			wantStatus(t, result, test.status)

			ends := slices.DeleteFunc(slices.Clone(r.names), func(name string) bool {
				return !slices.Contains([]string{"lock acquired", "persisted", "completed", "failed", "lock released"}, name)
			})
			want := []string{"lock acquired", "persisted", "completed", "lock released"}
			if test.last == "failed" {
				want = []string{"lock acquired", "failed", "persisted", "lock released"}
			}
			if diff := cmp.Diff(want, ends); diff != "" {
				t.Error(diff)
			}
			if r.names[0] != "lock acquired" {
				t.Errorf("%q came before the lock", r.names[0])
			}
			if !value.Equal(j.kept, result) {
				t.Errorf("persisted %s\nreturned  %s", value.EncodeText(j.kept), value.EncodeText(result))
			}
			if again, err := envelope.NormalizeResult(j.kept); err != nil || !value.Equal(again, j.kept) {
				t.Errorf("the persisted result is not normalized: %v", err)
			}
			if diff := cmp.Diff([]string{`"s" 5m0s`, `"s" token`}, j.got); diff != "" {
				t.Error(diff)
			}
			if j.said.SessionID != "s" || j.said.MaxTurns != r.options.MaxTurns {
				t.Errorf("request %+v", j.said)
			}
		})
	}
}

// TestLockedSession: no turn runs, nothing is persisted, and the result says why.
func TestLockedSession(t *testing.T) {
	r := newRig(calls("1", "a/read"))
	j := journaled(r)
	j.token = ""
	result := r.run(t)
	if result["status"] != loop.StatusLockContention || r.ran != 0 || len(r.executed) != 0 || j.kept != nil {
		t.Fatalf("result %v, %d turns, persisted %v", result, r.ran, j.kept)
	}
	if diff := cmp.Diff([]string{"lock acquired", "transcript_lock_contention"}, r.names); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]any{"session_id": "s"}, r.payloads["transcript_lock_contention"][0]); diff != "" {
		t.Error(diff)
	}
}

// TestSessionOfTheLock: where the session id comes from, and how long it stays locked.
func TestSessionOfTheLock(t *testing.T) {
	for name, test := range map[string]struct {
		given    string
		metadata map[string]any
		ttl      time.Duration
		want     string // "" = not locked
	}{
		"the option":             {given: " s ", metadata: map[string]any{"session_id": "other"}, want: `"s" 5m0s`},
		"transcript_session_id":  {metadata: map[string]any{"transcript_session_id": " a ", "session_id": "b", "transcript_id": "c"}, want: `"a" 5m0s`},
		"session_id":             {metadata: map[string]any{"transcript_session_id": " ", "session_id": "b", "transcript_id": "c"}, want: `"b" 5m0s`},
		"transcript_id":          {metadata: map[string]any{"session_id": 5, "transcript_id": "c"}, want: `"c" 5m0s`},
		"blank":                  {given: " ", metadata: map[string]any{"session_id": ""}},
		"none":                   {},
		"a time to live":         {given: "s", ttl: time.Minute, want: `"s" 1m0s`},
		"too short a time":       {given: "s", ttl: time.Millisecond, want: `"s" 1s`},
		"a time that is no time": {given: "s", ttl: -time.Minute, want: `"s" 1s`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig()
			j := journaled(r)
			r.options.SessionID, r.options.Metadata, r.options.TranscriptLockTTL = test.given, test.metadata, test.ttl
			r.run(t)
			got := ""
			if len(j.got) > 0 {
				got = j.got[0]
			}
			if got != test.want || r.ran != 1 {
				t.Errorf("locked %s after %d turns, want %s", got, r.ran, test.want)
			}
		})
	}
}

// TestActionsOfInterrupts: every spelling of an action, in either member, leaves its message in the transcript and its metadata in the
// events; cancel alone stops.
func TestActionsOfInterrupts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SampledFrom([]any{nil, "cancel", " CANCEL\n", "redirect", "Redirect ", "message", "", "stop", 7, []any{"cancel"}, map[string]any{}})
		metadata := map[string]any{"source": rapid.SampledFrom([]any{"ui", nil, map[string]any{"id": 1}}).Draw(t, "source"), "note": "kept"}
		if given := words.Draw(t, "interrupt_action"); given != nil {
			metadata["interrupt_action"] = given
		}
		if given := words.Draw(t, "action"); given != nil {
			metadata["action"] = given
		}
		deciding := metadata["interrupt_action"]
		if deciding == nil {
			deciding = metadata["action"]
		}
		want := map[any]string{"cancel": "cancel", " CANCEL\n": "cancel", "redirect": "redirect", "Redirect ": "redirect"}
		action := "message"
		if text, is := deciding.(string); is && want[text] != "" {
			action = want[text]
		}

		r := newRig(calls("1", "a/read"))
		message := map[string]any{"role": "user", "content": "look", "metadata": metadata}
		polled := 0
		r.options.Interrupts = loop.InterruptSourceFunc(func(_ context.Context, request loop.Request, turn map[string]any) (any, error) {
			if polled++; polled > 1 {
				return nil, nil
			}
			if len(request.Messages) != 3 || turn["turn"] != 1 {
				t.Fatalf("polled with %d messages in turn %v", len(request.Messages), turn["turn"])
			}
			if rapid.Bool().Draw(t, "as envelope") {
				return envelope.Normalize(message)
			}
			return message, nil
		})

		result, err := r.try(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := r.payloads["interrupt_received"][0]
		if told["action"] != action || told["turn"] != 1 || told["note"] != "kept" || told["interrupt_action"] != nil {
			t.Fatalf("told %v, want %s", told, action)
		}
		if !value.Equal(told["source"], metadata["source"]) {
			t.Fatalf("source %v, want %v", told["source"], metadata["source"])
		}
		messages, _ := value.List(result["messages"])
		said := value.Assoc(messages[3])
		if said["content"] != "look" || !value.Equal(said["metadata"], metadata) || !value.Equal(told["message"], said) {
			t.Fatalf("the transcript has %v", said)
		}

		outcome := value.Assoc(result["run_outcome"])["status"]
		if action == "cancel" {
			if outcome != "interrupted" || result["status"] != "interrupted" || !value.Equal(result["interrupted"], told) || r.ran != 1 || yes(result["completed"]) {
				t.Fatalf("a cancelled run: %v after %d turns", result["status"], r.ran)
			}
			return
		}
		if outcome != "completed" || result["interrupted"] != nil || r.ran != 2 {
			t.Fatalf("a run that goes on: %v after %d turns", outcome, r.ran)
		}
	})
}

// TestSourceKnowsWhoEndedTheContext: a run that its process stops is interrupted by whom the source names.
func TestSourceKnowsWhoEndedTheContext(t *testing.T) {
	for name, test := range map[string]struct {
		given    any
		messages int
		source   any
		reason   any
	}{
		"cancel":      {map[string]any{"role": "user", "content": "stop", "metadata": map[string]any{"action": "cancel", "source": "ui"}}, 2, "ui", nil},
		"redirect":    {map[string]any{"role": "user", "content": "else", "metadata": map[string]any{"action": "redirect", "source": "ui"}}, 2, nil, "context_cancelled"},
		"nothing":     {nil, 1, nil, "context_cancelled"},
		"no message":  {5, 1, nil, "context_cancelled"},
		"bad message": {map[string]any{"role": ""}, 1, nil, "context_cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			r := newRig(func() any { cancel(errTest); return context.Canceled })
			r.options.Interrupts = loop.InterruptSourceFunc(func(ctx context.Context, _ loop.Request, _ map[string]any) (any, error) {
				return test.given, ctx.Err()
			})
			j := journaled(r)
			result, err := r.try(ctx)
			wantStatus(t, result, "interrupted")
			by := value.Assoc(result["interrupted"])
			if err != errTest || by["source"] != test.source || by["reason"] != test.reason || by["action"] != "cancel" { //nolint:errorlint // it is the cause itself
				t.Errorf("interrupted %v, error %v", by, err)
			}
			if got := len(transcript(t, result)); got != test.messages || !value.Equal(j.kept, result) {
				t.Errorf("%d messages, want %d", got, test.messages)
			}
		})
	}
}
