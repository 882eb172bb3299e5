package loop_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/tool/request/requesttest"
	"inbox/agents/runtime/value"
)

func TestIterationBudgetFixtures(t *testing.T) {
	fixturetest.Run(t, "iteration-budget", func(c fixturetest.Case) (any, error) {
		input := c.Object()
		budget := loop.NewBudget(value.Text(input["name"]), number(input["ceiling"]), number(input["current"]))
		snapshots := []any{snapshot(budget)}
		operations, _ := value.List(input["ops"])
		for _, operation := range operations {
			if object, is := value.Object(operation); is {
				budget.SetCurrent(number(object["set"]))
			} else {
				budget.Increment()
			}
			snapshots = append(snapshots, snapshot(budget))
		}
		return snapshots, nil
	})
}

func snapshot(budget *loop.Budget) map[string]any {
	return map[string]any{
		"name": budget.Name(), "ceiling": budget.Ceiling(), "current": budget.Current(), "remaining": max(0, budget.Ceiling()-budget.Current()),
		"exceeded": budget.Exceeded(),
	}
}

// number reads an integer as leniently as the options of a record are written: "3" and 2.7 count, too.
func number(given any) int {
	if whole, is := value.Integer(given); is {
		return int(whole)
	}
	text, is := given.(string)
	if !is {
		text = fmt.Sprint(given)
	}
	float, _ := strconv.ParseFloat(value.Trim(text), 64) // anything else is 0
	return int(float)
}

func yes(value any) bool {
	truth, is := value.(bool)
	return is && truth
}

func TestProviderTurnResultFixtures(t *testing.T) {
	fixturetest.Run(t, "provider-turn-result", func(c fixturetest.Case) (any, error) {
		return loop.NormalizeProviderTurn(c.Object())
	})
}

func TestLoopTraceFixtures(t *testing.T) {
	fixturetest.Run(t, "loop-traces", func(c fixturetest.Case) (any, error) {
		s := newScript(c, declarationsOf(t, c.Text))
		result, err := loop.Run(context.Background(), s.input["messages"], s, s.options())
		actual := s.record(c.Expected)
		if err != nil {
			actual["error"] = errorValue(err, c.Expected)
		} else {
			actual["ok"] = result
		}
		return actual, nil
	})
}

// errorValue leaves out the path where the record of a run does not say it.
func errorValue(err error, expected map[string]any) map[string]any {
	given := fixturetest.ErrorValue(err)
	if value.Assoc(expected["error"])["path"] == nil {
		delete(given, "path")
	}
	return given
}

// declarationsOf reads the declarations of a case in the order of the text, which is part of the record.
func declarationsOf(t *testing.T, input []byte) []tool.Entry {
	t.Helper()
	text := fixturetest.MemberText(fixturetest.MemberText(input, "options"), "tool_declarations")
	if text == nil {
		return nil
	}
	members, err := fixturetest.Members(text)
	if err != nil {
		t.Fatal(err)
	}

	entries := make([]tool.Entry, len(members))
	for index, member := range members {
		entries[index] = tool.Entry{Name: member.Name, Value: member.Value}
	}
	return entries
}

// script plays a recorded case: it is runner, executor, policy and everything else that the case asks for.
type script struct {
	input    map[string]any
	setting  map[string]any
	declared []tool.Entry

	turn      int
	cancelled bool
	used      map[string]int
	calls     map[string][]any // recorded calls by the name of the expectation
	store     *requesttest.Memory
}

func newScript(c fixturetest.Case, declared []tool.Entry) *script {
	input := c.Object()
	return &script{
		input: input, setting: value.Assoc(input["options"]), declared: declared, used: map[string]int{},
		calls: map[string][]any{"events_emitted": {}, "runner_calls": {}},
	}
}

func (s *script) note(kind string, entry map[string]any) {
	s.calls[kind] = append(s.calls[kind], entry)
}

// Turn implements loop.Runner.
func (s *script) Turn(_ context.Context, messages []envelope.Envelope, turn map[string]any) (any, error) {
	s.note("runner_calls", map[string]any{"turn": turn["turn"], "message_count": len(messages)})
	turns, _ := value.List(s.input["turns"])
	if s.turn >= len(turns) {
		return map[string]any{"messages": messages}, nil
	}
	step := value.Assoc(turns[s.turn])
	s.turn++
	if yes(step["request_cancel"]) {
		s.cancelled = true
	}
	if text, has := step["throw"]; has {
		return nil, errors.New(value.Text(text))
	}
	if raw, has := step["raw"]; has {
		return raw, nil
	}
	result := value.Clone(value.Assoc(step["result"]))
	if added, has := value.List(step["append_messages"]); has {
		result["messages"] = append(envelope.Values(messages), added...)
	}
	return result, nil
}

// Execute implements tool.Executor.
func (s *script) Execute(_ context.Context, call tool.Call) (map[string]any, error) {
	s.note("executor_calls", map[string]any{
		"tool_name": call.Name, "parameters": call.Parameters, "id": call.ID,
		"provider_tool_name": call.Metadata["provider_tool_name"], "turn": call.Context["turn"],
	})
	answers, _ := value.List(value.Assoc(s.input["tools"])[call.Name])
	answer, has := s.next("tool "+call.Name, answers, true)
	if !has {
		return map[string]any{"success": true, "result": map[string]any{"ok": true}}, nil
	}
	object := value.Assoc(answer)
	if text, throws := object["throw"]; throws {
		return nil, errors.New(value.Text(text))
	}
	returned, _ := value.Object(object["return"])
	return returned, nil
}

// next returns the next entry of a script; the last one repeats where that is asked for.
func (s *script) next(name string, entries []any, repeat bool) (any, bool) {
	at := s.used[name]
	s.used[name]++
	if at >= len(entries) {
		if !repeat || len(entries) == 0 {
			return nil, false
		}
		at = len(entries) - 1
	}
	return entries[at], true
}

func (s *script) list(name string) []any {
	entries, _ := value.List(s.setting[name])
	return entries
}

func (s *script) options() loop.Options {
	options := loop.Options{
		MaxTurns: number(s.setting["max_turns"]), Context: value.Assoc(s.setting["context"]),
		SessionID: value.Text(s.setting["session_id"]), RunID: value.Text(s.setting["run_id"]),
		ToolCallRules: s.setting["tool_call_rules"],
		Declarations:  s.declared, StructuredOutput: s.setting["structured_output"], Control: (*scriptControl)(s),
		Observer: loop.ObserverFunc(s.observe),
	}
	if ttl, has := s.setting["transcript_lock_ttl"]; has {
		options.TranscriptLockTTL = max(time.Second, time.Duration(number(ttl))*time.Second)
	}
	if id := value.Text(s.setting["transcript_session_id"]); value.Trim(id) != "" {
		options.SessionID = id
	}
	if yes(s.setting["tool_executor"]) {
		s.calls["executor_calls"] = []any{}
		options.Executors.Default = s
	}
	for _, row := range s.list("budgets") {
		object := value.Assoc(row)
		options.Budgets = append(options.Budgets,
			loop.NewBudget(value.Text(object["name"]), number(object["ceiling"]), number(object["current"])))
	}
	s.guards(&options)
	s.callbacks(&options)
	s.stores(&options)
	return options
}

func (s *script) guards(options *loop.Options) {
	if threshold, has := s.setting["spin_threshold"]; has {
		options.SpinDetector = loop.NewConsecutiveSpin(number(threshold))
	}
	if threshold, has := s.setting["failure_threshold"]; has {
		options.FailureTracker = loop.NewConsecutiveFailures(number(threshold))
	}
	if limit, has := s.setting["truncate_bytes"]; has {
		options.Truncator = loop.NewByteTruncator(number(limit))
	}
	if policy, has := value.Object(s.setting["compaction_policy"]); has {
		options.CompactionPolicy = policy
	}
	if summarizer, has := value.Object(s.setting["summarizer"]); has {
		options.Summarizer = loop.SummarizerFunc(func(context.Context, []envelope.Envelope, map[string]any) (any, error) {
			if text, throws := summarizer["throw"]; throws {
				return nil, errors.New(value.Text(text))
			}
			return summarizer["return"], nil
		})
	}
}

func (s *script) callbacks(options *loop.Options) {
	if _, has := s.setting["completion_policy"]; has {
		s.calls["policy_calls"] = []any{}
		options.CompletionPolicy = (*scriptPolicy)(s)
	}
	if _, has := s.setting["mediator"]; has {
		s.calls["mediator_contexts"] = []any{}
		options.Mediator = loop.MediatorFunc(s.mediate)
	}
	if _, has := s.setting["interrupts"]; has {
		options.Interrupts = loop.InterruptSourceFunc(func(context.Context, loop.Request, map[string]any) (any, error) {
			value, _ := s.next("interrupts", s.list("interrupts"), false)
			return value, nil
		})
	}
	if diagnostics, has := value.Object(s.setting["diagnostics"]); has {
		options.Diagnostics = func(context.Context, map[string]any) (map[string]any, error) { return diagnostics, nil }
	}
	if wanted, has := s.setting["should_continue"]; has {
		switch wanted {
		case "always", "never":
			options.ShouldContinue = func(context.Context, map[string]any, map[string]any) (bool, error) {
				return wanted == "always", nil
			}
		default:
			options.SingleTurn = true
		}
	}
}

func (s *script) stores(options *loop.Options) {
	if _, has := s.setting["lock"]; has {
		s.calls["lock_calls"] = []any{}
		options.TranscriptLock = (*scriptLock)(s)
	}
	if _, has := s.setting["persister"]; has {
		s.calls["persist_calls"] = []any{}
		options.TranscriptPersister = (*scriptPersister)(s)
	}
	if yes(s.setting["request_store"]) {
		s.calls["store_calls"] = []any{}
		s.store = new(requesttest.Memory)
		options.RequestStore = s
	}
}

func (s *script) observe(name string, payload map[string]any) {
	s.note("events_emitted", map[string]any{"event": name, "payload": value.Clone(payload)})
	if yes(s.setting["event_sink_throws"]) {
		panic("sink")
	}
}

func (s *script) mediate(_ context.Context, proposal loop.Proposal) (any, error) {
	s.note("mediator_contexts", map[string]any{
		"tool_name": proposal.ToolName, "turn": proposal.Turn, "tool_call_id": proposal.ToolCallID,
		"prepared": proposal.PreparedToolCall != nil, "declared": proposal.ToolDeclaration != nil,
		"prior_tool_results": len(proposal.PriorToolResults), "prior_mediated_results": len(proposal.PriorMediatedResults),
		"parameters": proposal.Parameters,
	})
	decision, _ := s.next("mediator", s.list("mediator"), false)
	if yes(value.Assoc(decision)["throw"]) {
		panic("mediator")
	}
	return decision, nil
}

// Create implements loop.RequestStore.
func (s *script) Create(ctx context.Context, raw, about map[string]any) (map[string]any, error) {
	s.note("store_calls", map[string]any{"op": "create", "request": raw, "request_id": raw["request_id"]})
	return request.Lifecycle{Store: s.store}.Create(ctx, raw, about)
}

type scriptControl script

func (c *scriptControl) Start(context.Context, string, string) error { return nil }

func (c *scriptControl) Cancelling(context.Context, string) (bool, error) { return c.cancelled, nil }

func (c *scriptControl) Finish(context.Context, string, string) error { return nil }

type scriptPolicy script

func (p *scriptPolicy) RecordToolResult(_ context.Context, result loop.ToolResult) (loop.Decision, error) {
	s := (*script)(p)
	s.note("policy_calls", map[string]any{
		"tool_name": result.ToolName, "turn": result.Turn, "defined": result.Declaration != nil,
		"declared": result.Declaration != nil, "result": result.Result, "success": result.Result["success"],
		"context": result.Context,
	})
	given, _ := s.next("completion_policy", s.list("completion_policy"), false)
	decision := value.Assoc(given)
	complete, _ := decision["complete"].(bool)
	return loop.Decision{
		Complete: complete, Message: value.Text(decision["message"]), Context: value.Assoc(decision["context"]),
	}, nil
}

type scriptLock script

func (l *scriptLock) Acquire(_ context.Context, sessionID string, ttl time.Duration) (string, error) {
	(*script)(l).note("lock_calls", map[string]any{
		"op": "acquire", "call": "acquire", "session_id": sessionID, "ttl": int(ttl / time.Second),
	})
	if l.setting["lock"] == "contended" {
		return "", nil
	}
	return "lock-token", nil
}

func (l *scriptLock) Release(_ context.Context, sessionID, token string) error {
	(*script)(l).note("lock_calls", map[string]any{
		"op": "release", "call": "release", "session_id": sessionID, "token": token,
	})
	if l.setting["lock"] == "release_throws" {
		panic("release")
	}
	return nil
}

type scriptPersister script

func (p *scriptPersister) Persist(_ context.Context, messages []envelope.Envelope, r loop.Request, result map[string]any) error {
	entry := map[string]any{
		"message_count": len(messages), "messages": envelope.Values(messages), "result": result, "max_turns": r.MaxTurns,
		"request_messages": len(r.Messages), "result_keys": nil,
	}
	for _, name := range []string{"status", "completed", "turn_count", "schema", "version", "final_content", "run_outcome"} {
		entry[name] = result[name]
		entry["result_"+name] = result[name]
	}
	(*script)(p).note("persist_calls", entry)
	if p.setting["persister"] == "throw" {
		panic("persister")
	}
	return nil
}

// loose are the members whose form the shared records do not show: what is recorded is compared by its known members.
var loose = []string{"policy_calls", "lock_calls", "persist_calls", "store_calls"}

// record returns what was called, in the members that the case expects and in those that it lacks.
func (s *script) record(expected map[string]any) map[string]any {
	actual := map[string]any{}
	for kind, calls := range s.calls {
		actual[kind] = calls
	}
	for _, kind := range loose {
		if wanted, is := value.List(expected[kind]); is && s.calls[kind] != nil {
			actual[kind] = wanted
			if problems := looseDifferences(wanted, s.calls[kind]); len(problems) > 0 {
				actual[kind] = strings.Join(problems, "; ")
			}
		}
	}
	return actual
}

func looseDifferences(wanted, called []any) (problems []string) {
	if len(wanted) != len(called) {
		return []string{fmt.Sprintf("%d calls, expected %d", len(called), len(wanted))}
	}
	for i, want := range wanted {
		call := value.Assoc(called[i])
		object, is := want.(map[string]any)
		if !is {
			continue
		}
		for name, value := range object {
			own, known := call[name]
			if !known || own == nil {
				continue
			}
			for _, difference := range fixturetest.Compare(map[string]any{"ok": value}, map[string]any{"ok": own}) {
				problems = append(problems, fmt.Sprintf("call %d: %s: %s", i, name, difference))
			}
		}
	}
	return problems
}
