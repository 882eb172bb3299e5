package tool_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/tooltest"
	"inbox/internal/fault"
)

func TestPendingMemory(t *testing.T) {
	tooltest.PendingStore(t, func(*testing.T) tool.PendingStore { return tool.NewPendingMemory(0) })
}

func TestPendingMemoryIsBounded(t *testing.T) {
	store := tool.NewPendingMemory(2)
	for _, id := range []string{"one", "two"} {
		if err := store.Store(t.Context(), tooltest.Action(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Store(t.Context(), tooltest.Action("three")); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("a full store answers %v", err)
	}
	if _, err := store.Delete(t.Context(), "one", "anna", tooltest.Moment); err != nil {
		t.Fatal(err)
	}
	if err := store.Store(t.Context(), tooltest.Action("three")); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), "one", true); !fault.Is(err, fault.NotFound) {
		t.Errorf("the oldest final action is still there: %v", err)
	}
}

func TestParsePendingNamesTheWrongMember(t *testing.T) {
	valid := tooltest.Action("one").Object()
	for _, c := range []struct {
		member string
		value  any
		text   string
	}{
		{"action_id", " ", "invalid_ai_pending_action: action_id must be a non-empty string"},
		{"kind", 7, "invalid_ai_pending_action: kind must be a non-empty string"},
		{"workspace", map[string]any{"workspace_type": "No Slug", "workspace_id": "1"}, "invalid_ai_pending_action: workspace must include valid workspace_type and workspace_id"},
		{"agent", "", "invalid_ai_pending_action: agent must be a non-empty string"},
		{"status", "open", "invalid_ai_pending_action: status must be pending, accepted, rejected, expired, or deleted"},
		{"status", "accepted", "invalid_ai_pending_action: resolved_at is required for terminal status"},
		{"metadata", "text", "invalid_ai_pending_action: metadata must be an array"},
	} {
		object := envelope.Clone(valid)
		object[c.member] = c.value
		if _, err := tool.ParsePending(object); err == nil || err.Error() != c.text {
			t.Errorf("%s = %v: %v, want %s", c.member, c.value, err, c.text)
		}
	}
	delete(valid, "preview")
	var wrong *tool.PendingError
	if _, err := tool.ParsePending(valid); !errors.As(err, &wrong) || wrong.ErrorCode() != tool.CodePending || wrong.ErrorPath() != "preview" {
		t.Errorf("a missing preview gives %v", err)
	}
}

func TestParsePendingTrimsAndKeepsAll(t *testing.T) {
	object := tooltest.Action("one").Object()
	object["action_id"], object["workspace"] = " one ", map[string]any{"workspace_type": " Site ", "workspace_id": "7 ", "extra": 1}
	object["status"], object["resolved_at"] = " expired ", "2026-11-21 13:00:00"
	action, err := tool.ParsePending(object)
	if err != nil {
		t.Fatal(err)
	}
	object["action_id"], object["status"] = "one", "expired"
	object["workspace"] = map[string]any{"workspace_type": "site", "workspace_id": "7"}
	if difference := cmp.Diff(object, action.Object()); difference != "" {
		t.Error(difference)
	}
}

func TestApprovalEnvelope(t *testing.T) {
	action := tooltest.Action("one")
	message := action.ApprovalEnvelope(" Look twice ", []map[string]any{{"tool": "post/publish"}}, map[string]any{"a": "b"})
	want := map[string]any{"type": "approval_required", "role": "tool", "content": "Publish post 1", "metadata": map[string]any{"a": "b"}}
	for member, value := range want {
		if !envelope.Equal(message[member], value) {
			t.Errorf("%s = %v, want %v", member, message[member], value)
		}
	}
	payload := action.Object()
	payload["instruction"] = "Look twice"
	payload["grants"] = []any{map[string]any{"tool": "post/publish"}}
	if !envelope.Equal(message["payload"], payload) {
		t.Error(cmp.Diff(payload, message["payload"]))
	}
	bare := envelope.Assoc(action.ApprovalEnvelope(" ", nil, nil)["payload"])
	if _, has := bare["instruction"]; has || bare["grants"] != nil {
		t.Errorf("a bare envelope has %v", bare)
	}
}

// handler applies what it is told and counts.
type handler struct {
	denied  bool
	failure error
	applied []string
}

func (h *handler) CanResolve(context.Context, tool.PendingAction, tool.Resolution) (bool, error) {
	return !h.denied, nil
}

func (h *handler) Apply(_ context.Context, action tool.PendingAction, resolution tool.Resolution) (any, error) {
	h.applied = append(h.applied, resolution.Decision+" "+action.ActionID)
	return map[string]any{"ok": true}, h.failure
}

func newResolver(t *testing.T, h *handler, after time.Duration) tool.Resolver {
	t.Helper()
	store := tool.NewPendingMemory(0)
	if err := store.Store(t.Context(), tooltest.Action("one")); err != nil {
		t.Fatal(err)
	}
	return tool.Resolver{
		Store: store, Handlers: map[string]tool.ActionHandler{"publish": h},
		Now: func() time.Time { return tooltest.Moment.Add(after) },
	}
}

func decision(id, decided string) tool.Resolution {
	return tool.Resolution{ActionID: id, Decision: decided, Resolver: "anna"}
}

func TestResolverAppliesOnce(t *testing.T) {
	h := &handler{}
	resolver := newResolver(t, h, 0)
	result, err := resolver.Resolve(t.Context(), decision("one", tool.StateAccepted))
	if err != nil || !envelope.Equal(result, map[string]any{"ok": true}) {
		t.Fatalf("gives %v, %v", result, err)
	}
	if _, err := resolver.Resolve(t.Context(), decision("one", tool.StateRejected)); !fault.Is(err, fault.Conflict) {
		t.Errorf("a second decision gives %v", err)
	}
	if difference := cmp.Diff([]string{"accepted one"}, h.applied); difference != "" {
		t.Error(difference)
	}
	action, err := resolver.Store.Get(t.Context(), "one", true)
	if err != nil || action.Resolver != "anna" || !envelope.Equal(action.ResolutionResult, result) {
		t.Errorf("kept %+v, %v", action, err)
	}
}

func TestResolverRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		resolution tool.Resolution
		handler    handler
		after      time.Duration
		kind       fault.Kind
	}{
		"no id":       {decision(" ", "accepted"), handler{}, 0, fault.Malformed},
		"no resolver": {tool.Resolution{ActionID: "one", Decision: "accepted"}, handler{}, 0, fault.Malformed},
		"no decision": {decision("one", "expired"), handler{}, 0, fault.Malformed},
		"unknown":     {decision("two", "accepted"), handler{}, 0, fault.NotFound},
		"forbidden":   {decision("one", "accepted"), handler{denied: true}, 0, fault.Forbidden},
		"too late":    {decision("one", "accepted"), handler{}, 2 * time.Hour, fault.Gone},
	} {
		resolver := newResolver(t, &c.handler, c.after)
		if _, err := resolver.Resolve(t.Context(), c.resolution); !fault.Is(err, c.kind) {
			t.Errorf("%s: %v, want %s", name, err, c.kind)
		}
		if len(c.handler.applied) > 0 {
			t.Errorf("%s: applied %v", name, c.handler.applied)
		}
	}
}

func TestResolverRecordsFailure(t *testing.T) {
	h := &handler{failure: errors.New("the press is broken")}
	resolver := newResolver(t, h, 0)
	if _, err := resolver.Resolve(t.Context(), decision("one", tool.StateAccepted)); !errors.Is(err, h.failure) {
		t.Fatalf("gives %v", err)
	}
	action, err := resolver.Store.Get(t.Context(), "one", true)
	if err != nil || action.ResolutionError != "the press is broken" || action.Status != tool.StateAccepted {
		t.Errorf("kept %+v, %v", action, err)
	}
}
