package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// memory is agents.Memory of one turn.
type memory struct {
	mu     sync.Mutex
	note   []byte
	saves  int
	broken error
}

func (m *memory) Load(context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.note, m.broken
}

func (m *memory) Save(_ context.Context, note []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note, m.saves = note, m.saves+1
	return m.broken
}

func kinds(deltas []normalized.Delta) string {
	var all []string
	for _, delta := range deltas {
		if len(all) == 0 || all[len(all)-1] != delta.Kind {
			all = append(all, delta.Kind)
		}
	}
	return strings.Join(all, " ")
}

// The whole way over HTTP: two parallel calls in pieces, then the answer, for both APIs.
//
//contract:shows envelope-12 envelope-18 runtime-40
func TestToolLoopOverHTTP(t *testing.T) {
	for api, streams := range map[string][2]string{
		APIOpenAI: {openAICalls, openAIHello}, APIAnthropic: {anthropicCalls, anthropicHello},
	} {
		t.Run(api, func(t *testing.T) {
			server := newScript(t, recorded{body: streams[0], chunk: 7}, recorded{body: streams[1], chunk: 7})
			tools := &toolbox{entries: []tool.Entry{declare("find", nil), declare("read", map[string]any{"untrusted_text": true})}}
			agent := newAgent(t, Options{Provider: server.connectRetrying(t, api), Tools: []Tools{tools}, Price: Price{Input: 2, Output: 10, CacheRead: 1, Currency: "EUR"}})
			response, deltas, err := fold(t.Context(), t, agent, question("tools"))
			if err != nil {
				t.Fatal(err)
			}
			if got := kinds(deltas); got != "tool_call_start tool_call_end tool_call_start tool_call_end part_begin text part_end status" {
				t.Errorf("deltas: %s", got)
			}
			if texts(response) != `Grüße, *Welt* – "ok"` || len(response.Parts) != 3 {
				t.Errorf("%d parts: %s", len(response.Parts), texts(response))
			}
			if first := response.Parts[0]; first.Name != "find" || string(first.Args) != `{"q":"café"}` || string(first.Result) != `{"echo":{"q":"café"}}` {
				t.Errorf("%s %s %s", first.Name, first.Args, first.Result)
			}
			want := map[string]string{
				"model": "test-model", "model_calls": "2", "tool_calls": "2", "stop": "end", "prompt_tokens": "49", "completion_tokens": "22",
				"total_tokens": "71", "cache_read_tokens": "4", "cache_write_tokens": "0", "cost": "0.000314", "currency": "EUR",
			}
			if diff := cmp.Diff(want, response.Metadata); diff != "" {
				t.Error(diff)
			}
			second, err := json.Marshal(server.questions()[1]["messages"])
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []string{"call_a", "call_b", `{\"q\":\"café\"}`, "text from outside (read)"} {
				if api == APIAnthropic && part == `{\"q\":\"café\"}` {
					part = `{"q":"café"}`
				}
				if !strings.Contains(string(second), part) {
					t.Errorf("the second question lacks %s: %s", part, second)
				}
			}
		})
	}
}

// What the model says before it calls a tool is streamed, but it is not the answer.
func TestThinkingAloudIsNotTheAnswer(t *testing.T) {
	aloud := append([]Delta{{Kind: DeltaText, Text: "Let me look."}}, calls("find", "{}")...)
	agent := newAgent(t, Options{Provider: scripted(aloud, says("Found ", "it.")), Tools: []Tools{&toolbox{entries: []tool.Entry{declare("find", nil)}}}})
	response, deltas, err := fold(t.Context(), t, agent, question("aloud"))
	if err != nil {
		t.Fatal(err)
	}
	if texts(response) != "Found it." || len(response.Parts) != 2 {
		t.Errorf("%d parts: %s", len(response.Parts), texts(response))
	}
	if got := kinds(deltas); got != "part_begin text part_end tool_call_start tool_call_end part_begin text part_end response" {
		t.Errorf("deltas: %s", got)
	}
}

func TestOnlyPermittedToolsAreOffered(t *testing.T) {
	var asked []Request
	tools := &toolbox{entries: []tool.Entry{declare("open", nil), declare("closed", nil), declare("forbidden", nil), declare("previewed", nil)}}
	agent := newAgent(t, Options{Provider: listening(&asked), Tools: []Tools{tools}, Actions: Actions{
		Tools: map[string]string{"forbidden": "forbidden", "previewed": "preview"},
	}})
	turn := question("permitted")
	turn.Permits = func(purpose string) bool { return purpose != "tool:closed" && purpose != "tool:previewed" }
	for range 2 {
		if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
			t.Fatal(err)
		}
		turn.Permits = nil
	}
	var offered [2][]string
	for i := range asked {
		for _, one := range asked[i].Tools {
			offered[i] = append(offered[i], one.Name)
		}
	}
	if diff := cmp.Diff([2][]string{{"open", "previewed"}, {"previewed"}}, offered); diff != "" {
		t.Error(diff)
	}
}

// A model may still name a tool that it was not offered, or write arguments that are none.
func TestBadCallsAreRefused(t *testing.T) {
	for name, turn := range map[string][]Delta{
		"not offered":    calls("closed", "{}"),
		"unknown":        calls("nothing", "{}"),
		"broken json":    calls("find", `{"q":`),
		"no object":      calls("find", `[1]`),
		"two values":     calls("find", `{}{}`),
		"needs approval": calls("previewed", "{}"),
	} {
		t.Run(name, func(t *testing.T) {
			tools := &toolbox{entries: []tool.Entry{declare("find", nil), declare("closed", nil), declare("previewed", map[string]any{"action_policy": "preview"})}}
			agent := newAgent(t, Options{Provider: scripted(turn, says("sorry")), Tools: []Tools{tools}})
			question := question("bad")
			question.Permits = func(purpose string) bool { return purpose != "tool:closed" }
			response, _, err := fold(t.Context(), t, agent, question)
			if err != nil {
				t.Fatal(err)
			}
			if tools.count() != 0 || response.Parts[0].Error == nil || texts(response) != "sorry" {
				t.Errorf("called %v: %+v", tools.called, response.Parts)
			}
		})
	}
}

func TestLimitsOfTheLoop(t *testing.T) {
	endless := modelFunc(func(_ context.Context, request Request, yield func(Delta) bool) error {
		turn := calls("find", `{"q":"`+strings.Repeat("x", len(request.Messages))+`"}`)
		if request.NoTools {
			turn = says("I have to stop.")
		}
		for _, delta := range turn {
			if !yield(delta) {
				return nil
			}
		}
		return nil
	})
	for name, c := range map[string]struct {
		options Options
		calls   int
		outcome string
	}{
		"turns":      {Options{MaxTurns: 3}, 2, ""},
		"tool calls": {Options{ToolCalls: 2}, 2, "budget_exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
			c.options.Provider, c.options.Tools = endless, []Tools{tools}
			response, _, err := fold(t.Context(), t, newAgent(t, c.options), question("limits"))
			if err != nil {
				t.Fatal(err)
			}
			if tools.count() != c.calls || texts(response) != "I have to stop." || response.Metadata["outcome"] != c.outcome {
				t.Errorf("%d calls, %q, %v", tools.count(), texts(response), response.Metadata)
			}
		})
	}
	t.Run("circles", func(t *testing.T) {
		tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
		agent := newAgent(t, Options{Tools: []Tools{tools}, Provider: scripted(calls("find", "{}"), calls("find", "{}"), calls("find", "{}"), says("Enough."))})
		response, _, err := fold(t.Context(), t, agent, question("circles"))
		if err != nil || tools.count() != 3 || texts(response) != "Enough." || response.Metadata["outcome"] != "stalled" {
			t.Errorf("%d calls, %q, %v, %v", tools.count(), texts(response), response.Metadata, err)
		}
	})
}

func TestNoAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		turn []Delta
		code string
	}{
		"empty":   {[]Delta{{Kind: DeltaStop, Stop: StopEnd}}, "model:empty"},
		"blank":   {[]Delta{{Kind: DeltaText, Text: " \n"}, {Kind: DeltaStop, Stop: StopEnd}}, "model:empty"},
		"refused": {[]Delta{{Kind: DeltaStop, Stop: StopRefusal}}, "model:refusal"},
	} {
		t.Run(name, func(t *testing.T) {
			response, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: scripted(c.turn)}), question("none"))
			if err != nil || response.Status != normalized.StatusFailed || response.Error.Code != c.code {
				t.Errorf("%+v %v", response, err)
			}
		})
	}
}

func TestFaultsOfTheModelReachTheEngine(t *testing.T) {
	busy := (&refusal{status: 429, repeat: true}).fault(0)
	for name, before := range map[string][]Delta{"at once": nil, "in the middle": {{Kind: DeltaText, Text: "Half of"}}} {
		t.Run(name, func(t *testing.T) {
			provider, _ := failing(9, busy, before...)
			_, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: provider}), question("fault"))
			if !errors.Is(err, busy) || !errors.Is(err, upstream.ErrBusy) {
				t.Errorf("the engine gets %v", err)
			}
		})
	}
}

func TestStopsInTheMiddleOfATool(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the server stops")
	tools := &toolbox{entries: []tool.Entry{declare("find", nil)}, run: func(ctx context.Context, _ tool.Call) (map[string]any, error) {
		cancel(stop)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	_, _, err := fold(ctx, t, newAgent(t, Options{Provider: scripted(calls("find", "{}")), Tools: []Tools{tools}}), question("stop"))
	if !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	// An engine that wants no more stops tools, too.
	tools = &toolbox{entries: tools.entries}
	for _, err := range newAgent(t, Options{Provider: scripted(calls("find", "{}")), Tools: []Tools{tools}}).Handle(t.Context(), question("enough")) {
		if err != nil {
			t.Error(err)
		}
		break
	}
	if tools.count() > 1 {
		t.Errorf("%d calls", tools.count())
	}
}

// A run that dies between two calls of the model goes on where it was, with its costs.
func TestGoesOnAfterACrash(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("find", nil), declare("pay", map[string]any{"runtime": map[string]any{"duplicate_policy": "at_most_once"}})}}
	note := &memory{}
	turn := question("crash")
	turn.Memory = note
	dies, _ := failing(1, (&refusal{status: http.StatusServiceUnavailable}).fault(0))
	var asked []Request
	first := true
	agent := newAgent(t, Options{Tools: []Tools{tools}, Provider: modelFunc(func(ctx context.Context, request Request, yield func(Delta) bool) error {
		asked = append(asked, request)
		next := scripted(says("All done."))
		switch {
		case first:
			next, first = scripted(calls("find", `{"q":"1"}`, "pay", `{"q":"me"}`)), false
		case len(asked) == 2:
			next = dies
		case len(asked) == 3:
			next = scripted(calls("pay", `{"q":"me"}`))
		}
		for delta, err := range next.Stream(ctx, request) {
			if err != nil {
				return err
			}
			if !yield(delta) {
				return nil
			}
		}
		return nil
	})})
	if _, _, err := fold(t.Context(), t, agent, turn); err == nil {
		t.Fatal("the first run did not die")
	}
	turn.Attempt++
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"find", "pay"}, tools.called); diff != "" {
		t.Error(diff)
	}
	if !cmp.Equal(asked[1].Messages, asked[2].Messages) {
		t.Errorf("the second run asked something else:\n%v\n%v", asked[1].Messages, asked[2].Messages)
	}
	if texts(response) != "All done." || response.Metadata["model_calls"] != "3" || response.Metadata["prompt_tokens"] != "50" {
		t.Errorf("%q %v", texts(response), response.Metadata)
	}
}

// An at_most_once tool whose end no one knows is not run again.
func TestUnfinishedCallIsNotRepeated(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tools := &toolbox{entries: []tool.Entry{declare("pay", map[string]any{"runtime": map[string]any{"duplicate_policy": "at_most_once"}})}}
	turn := question("unfinished")
	kept := &memory{}
	turn.Memory = kept
	tools.run = func(context.Context, tool.Call) (map[string]any, error) {
		kept.mu.Lock()
		kept.note = append([]byte(nil), kept.note...)
		frozen := kept.note
		kept.mu.Unlock()
		cancel()
		turn.Memory = &memory{note: frozen} // what a killed process leaves
		return map[string]any{"success": true}, nil
	}
	agent := newAgent(t, Options{Tools: []Tools{tools}, Provider: scripted(calls("pay", "{}"), calls("pay", "{}"), says("Unclear."))})
	if _, _, err := fold(ctx, t, agent, turn); err == nil {
		t.Fatal("the first run did not die")
	}
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil || tools.count() != 1 || response.Parts[0].Error == nil {
		t.Errorf("%d calls, %+v, %v", tools.count(), response.Parts, err)
	}
}

// unkept is a memory that fails to keep the first note with a claim.
type unkept struct {
	memory

	failure error
}

func (m *unkept) Save(ctx context.Context, note []byte) error {
	if failure := m.failure; failure != nil && bytes.Contains(note, []byte(`"claims"`)) {
		m.failure = nil
		return failure
	}
	return m.memory.Save(ctx, note)
}

// TestClaimThatWasNotKept: a call whose claim was not stored can be made later, and one whose claim may be stored cannot.
func TestClaimThatWasNotKept(t *testing.T) {
	for name, row := range map[string]struct {
		failure error
		calls   int
	}{
		"not done": {fault.Wrap(fault.Unavailable, "later", fault.ErrStore), 1},
		"unknown":  {fault.Wrap(fault.Unavailable, "later", fault.ErrUnknown), 0},
	} {
		t.Run(name, func(t *testing.T) {
			tools := &toolbox{entries: []tool.Entry{declare("pay", map[string]any{"runtime": map[string]any{"duplicate_policy": "at_most_once"}})}}
			turn := question("claim")
			turn.Memory = &unkept{failure: row.failure}
			agent := newAgent(t, Options{Tools: []Tools{tools}, Provider: scripted(calls("pay", "{}"), calls("pay", "{}"), says("Done."))})
			if _, _, err := fold(t.Context(), t, agent, turn); err != nil || tools.count() != row.calls {
				t.Errorf("%d calls, %v; want %d", tools.count(), err, row.calls)
			}
		})
	}
}

func TestMemoryFaults(t *testing.T) {
	turn := question("memory")
	turn.Memory = &memory{broken: fault.New(fault.Unavailable, "no store")}
	if _, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: scripted(says("x"))}), turn); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v", err)
	}
	for _, note := range []string{"{", `{"version":2}`, `{"version":1,"messages":[1]}`, `[]`} {
		turn.Memory = &memory{note: []byte(note)}
		if response, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: scripted(says("x"))}), turn); err != nil || texts(response) != "x" {
			t.Errorf("%s: %v", note, err)
		}
	}
}

// owner is a person who decides about calls.
type owner struct {
	asked   []loop.Proposal
	verdict map[string]any
}

func (o *owner) Ask(_ context.Context, _ agents.Turn, proposal loop.Proposal) (map[string]any, error) {
	o.asked = append(o.asked, proposal)
	return map[string]any{
		"type": "approval_required", "role": "tool", "content": "Pay 5 to Bob?",
		"payload": map[string]any{"action_id": "act-1", "kind": "tool", "summary": "Pay 5 to Bob?"},
	}, nil
}

func (o *owner) Settle(_ context.Context, _ agents.Turn, waiting Waiting) (map[string]any, error) {
	if waiting.CallID != "call_pay0" || waiting.ToolName != "pay" {
		return nil, errors.New("waits for something else")
	}
	return o.verdict, nil
}

func TestApprovalParksAndResumes(t *testing.T) {
	for name, verdict := range map[string]map[string]any{
		"approved": {"success": true, "result": map[string]any{"receipt": 7}},
		"denied":   {"success": false, "error": "The owner said no."},
	} {
		t.Run(name, func(t *testing.T) {
			decides := &owner{}
			tools := &toolbox{entries: []tool.Entry{declare("find", nil), declare("pay", map[string]any{"action_policy": "preview"})}}
			var asked []Request
			model := scripted(calls("pay", `{"q":"5"}`, "find", "{}"), says("Settled."))
			agent := newAgent(t, Options{Approvals: decides, Tools: []Tools{tools}, Provider: modelFunc(func(ctx context.Context, request Request, yield func(Delta) bool) error {
				asked = append(asked, request)
				for delta, err := range model.Stream(ctx, request) {
					if err != nil || !yield(delta) {
						return err
					}
				}
				return nil
			})})
			turn := question("approval")
			turn.Memory = &memory{}
			for range 2 { // asked again before anyone decided, it waits for the same
				response, _, err := fold(t.Context(), t, agent, turn)
				if err != nil {
					t.Fatal(err)
				}
				demand := response.Policy()
				if demand == nil || demand.Kind != policypart.ConsentRequired || demand.Code != CodeApproval || response.Status != normalized.StatusInputRequired {
					t.Fatalf("%+v", response)
				}
				if demand.Message != "Pay 5 to Bob?" || !strings.Contains(string(demand.Data[DataApproval]), `"action_id":"act-1"`) {
					t.Errorf("%+v", demand)
				}
				if part := response.Parts[0]; part.Kind != normalized.PartToolCall || part.Result != nil {
					t.Errorf("%+v", part)
				}
			}
			if len(decides.asked) != 1 || len(asked) != 1 || tools.count() != 0 {
				t.Errorf("asked %d times, model %d times, %d calls", len(decides.asked), len(asked), tools.count())
			}
			decides.verdict = verdict
			response, _, err := fold(t.Context(), t, agent, turn)
			if err != nil || texts(response) != "Settled." {
				t.Fatalf("%q %v", texts(response), err)
			}
			if part := response.Parts[0]; (part.Error == nil) != (name == "approved") {
				t.Errorf("%+v", part)
			}
			last := asked[1].Messages[len(asked[1].Messages)-1]
			if last.Blocks[0].Kind != BlockResult || last.Blocks[0].ID != "call_pay0" || last.Blocks[0].Failed != (name == "denied") {
				t.Errorf("the model reads %+v", last)
			}
			if tools.count() != 0 {
				t.Error("the tool ran without its approver")
			}
		})
	}
}

// Without anyone to ask, a tool that asks by itself is answered by the resolution of the demand.
func TestApprovalOfAToolOfItsOwn(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("pay", nil)}}
	tools.run = func(_ context.Context, call tool.Call) (map[string]any, error) {
		if call.Context["policy_resolution"] != nil {
			return map[string]any{"success": true, "result": "paid"}, nil
		}
		return map[string]any{"success": true, "result": map[string]any{"type": "approval_required", "role": "tool", "content": "Pay?", "payload": map[string]any{}}}, nil
	}
	agent := newAgent(t, Options{Provider: scripted(calls("pay", "{}"), calls("pay", "{}"), says("Paid.")), Tools: []Tools{tools}})
	turn := question("own")
	turn.Memory = &memory{}
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil || response.Policy() == nil {
		t.Fatalf("%+v %v", response, err)
	}
	turn.Message.PolicyResolution = &policypart.Resolution{Kind: policypart.ConsentRequired, Outcome: policypart.OutcomeGranted}
	response, _, err = fold(t.Context(), t, agent, turn)
	if err != nil || texts(response) != "Paid." || tools.count() != 2 {
		t.Errorf("%q %v, %d calls", texts(response), err, tools.count())
	}
}

// A tool of the caller's side pauses the run until its result is there.
func TestClientToolPauses(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("client/ask", map[string]any{"executor": "client"})}}
	tools.run = func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"success": false, "status": "runtime_tool_pending"}, nil
	}
	agent := newAgent(t, Options{Provider: scripted(calls("client__ask", `{"q":"x"}`)), Tools: []Tools{tools}})
	turn := question("client")
	turn.Memory = &memory{}
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil || response.Status != normalized.StatusInputRequired || response.Metadata["outcome"] != "runtime_tool_pending" {
		t.Fatalf("%+v %v", response, err)
	}
	if part := response.Parts[0]; part.Name != "client/ask" || part.Result != nil || part.Error != nil {
		t.Errorf("%+v", part)
	}
	if !strings.Contains(string(turn.Memory.(*memory).note), `"status":"runtime_tool_pending"`) {
		t.Error("the note does not know what it waits for")
	}
}

func TestSecretsStayOutOfParts(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("login", nil)}}
	tools.run = func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"success": true, "result": map[string]any{"access_token": "hush", "user": "a"}}, nil
	}
	agent := newAgent(t, Options{Provider: scripted(calls("login", `{"password":"hush"}`), says("in")), Tools: []Tools{tools}})
	response, deltas, err := fold(t.Context(), t, agent, question("secrets"))
	if err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal([]any{response, deltas})
	if err != nil || strings.Contains(string(shown), "hush") {
		t.Errorf("%v %s", err, shown)
	}
}

func TestLargeToolResultsFit(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("dump", nil)}}
	tools.run = func(context.Context, tool.Call) (map[string]any, error) {
		return map[string]any{"success": true, "result": strings.Repeat("<ß>", 100_000)}, nil
	}
	var turns [][]Delta
	for i := range 70 { // more calls than an answer has room for
		turn := calls("dump", `{"q":"`+strings.Repeat("x", i)+`"}`)
		turn[0].ID = "call_" + strconv.Itoa(i)
		turns = append(turns, turn)
	}
	agent := newAgent(t, Options{Provider: scripted(append(turns, says("done"))...), Tools: []Tools{tools}, MaxTurns: 100, ToolCalls: 100})
	response, _, err := fold(t.Context(), t, agent, question("large"))
	if err != nil || texts(response) != "(14 more tool calls are not shown.)\n\ndone" || len(response.Parts) != maxToolParts+2 {
		t.Errorf("%d parts, %q %v", len(response.Parts), texts(response), err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	model := scripted(says("x"))
	for name, options := range map[string]Options{
		"no provider": {Model: "m"}, "no model": {Provider: model}, "turns": {Provider: model, Model: "m", MaxTurns: -1},
		"temperature": {Provider: model, Model: "m", Temperature: new(3.0)},
		"action":      {Provider: model, Model: "m", Actions: Actions{Tools: map[string]string{"a": "maybe"}}},
	} {
		if _, err := New(options); !fault.Is(err, fault.Malformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLongToolNames(t *testing.T) {
	long := "some-server/" + strings.Repeat("a", 80)
	var asked []Request
	tools := &toolbox{entries: []tool.Entry{declare(long, nil), declare(long+"b", nil)}}
	agent := newAgent(t, Options{Tools: []Tools{tools}, Provider: modelFunc(func(_ context.Context, request Request, yield func(Delta) bool) error {
		asked = append(asked, request)
		turn := says("ok")
		if len(asked) == 1 {
			turn = calls(request.Tools[1].Name, "{}")
		}
		for _, delta := range turn {
			if !yield(delta) {
				return nil
			}
		}
		return nil
	})})
	response, _, err := fold(t.Context(), t, agent, question("long"))
	if err != nil || len(tools.called) != 1 || tools.called[0] != long+"b" || response.Parts[0].Name != long+"b" {
		t.Errorf("%v %v", tools.called, err)
	}
	for _, offered := range asked[0].Tools {
		if len(offered.Name) > maxNameBytes {
			t.Errorf("%s is too long", offered.Name)
		}
	}
	if shown := asked[1].Messages[len(asked[1].Messages)-2].Blocks[0].Name; shown != asked[0].Tools[1].Name {
		t.Errorf("the transcript calls it %s", shown)
	}
}
