package tool

import (
	"context"
	"maps"

	"inbox/agents/runtime/value"
)

// oncePolicies are the words of runtime.duplicate_policy after which a tool does not run twice with equal parameters in
// one run. Every other word, and none at all, lets it run again.
var oncePolicies = map[string]bool{"once": true, "non_repeatable": true, "at_most_once": true}

// Repeatable tells whether a tool may run again with equal parameters in one run. The reference leaves this to the
// caller; here runtime.duplicate_policy "once", "non_repeatable" or "at_most_once" is enforced.
func Repeatable(declaration *Declaration) bool {
	return !oncePolicies[value.Text(declaration.Runtime()["duplicate_policy"])]
}

// Repeats remembers the calls of one run. A store that survives the process makes at_most_once true over a crash.
type Repeats interface {
	// Claim takes a key for the caller. A key that was taken before gives claimed = false and its result, or nil if the
	// first call never ended. The call may run only if claimed is true and err is nil.
	Claim(ctx context.Context, key string) (earlier map[string]any, claimed bool, err error)
	// Keep stores the result for a claimed key.
	Keep(ctx context.Context, key string, result map[string]any) error
}

// RepeatKey is what equal calls have in common: the canonical name and the real parameters, which the hash hides.
func RepeatKey(call Call) string {
	return Hash(map[string]any{"tool_name": call.Name, "parameters": call.Parameters})
}

// IdempotencyKey is what a tool can use to recognise a call that it saw before: run (run_id of the context), name and
// real parameters.
func (c Call) IdempotencyKey() string {
	return Hash(map[string]any{
		"run_id": value.Text(c.Context["run_id"]), "tool_name": c.Name, "parameters": c.Parameters,
	})
}

func executeOnce(ctx context.Context, call Call, executor Executor, repeats Repeats) map[string]any {
	key := RepeatKey(call)
	earlier, claimed, err := repeats.Claim(ctx, key)
	switch {
	case err != nil:
		return notRun(call, publicText(err), "repeat_check_failed")
	case claimed:
		result := execute(ctx, call, executor)
		if err := repeats.Keep(context.WithoutCancel(ctx), key, result); err != nil {
			result["metadata"] = with(result["metadata"], "repeat_unrecorded", true)
		}
		return result
	case earlier == nil:
		return notRun(call, "The tool was already called with these parameters and its result is unknown.", "earlier_call_unfinished")
	default:
		answered := value.Clone(earlier)
		answered["metadata"] = with(answered["metadata"], "repeated", true)
		return answered
	}
}

func notRun(call Call, text, kind string) map[string]any {
	return ErrorResult(call.Name, text, map[string]any{"error_type": kind}, call.Declaration.Runtime())
}

func with(metadata any, name string, given any) map[string]any {
	copied := maps.Clone(value.Members(metadata))
	copied[name] = given
	return copied
}
