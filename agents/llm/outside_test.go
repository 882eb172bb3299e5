package llm

import (
	"context"
	"strings"
	"testing"
	"time"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/loop"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/tool/request/requesttest"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
	"inbox/normalized"
)

// outsideBox is a source of tools that programs outside execute.
type outsideBox struct{ toolbox }

func (*outsideBox) Outside() bool { return true }

func newOutsideBox(more map[string]any) *outsideBox {
	box := &outsideBox{}
	box.entries = []tool.Entry{declare("client/pick", more)}
	box.run = func(_ context.Context, call tool.Call) (map[string]any, error) {
		return map[string]any{"success": false, "status": tool.StatusPending, "runtime_tool_request": map[string]any{
			"tool_name": call.Name, "tool_call_id": call.ID, "parameters": call.Parameters, "run_id": call.Context["run_id"],
		}}, nil
	}
	return box
}

// outside is agents.ToolRequests on a store in memory; the engine stores what a run awaits when the run is over.
type outside struct {
	store  request.Store
	wanted map[string]any
	broken error
}

func newOutside() *outside { return &outside{store: new(requesttest.Memory)} }

func (o *outside) Await(wanted map[string]any) error {
	o.wanted = wanted
	return nil
}

func (o *outside) Request(ctx context.Context, id string) (map[string]any, error) {
	if o.broken != nil {
		return nil, o.broken
	}
	return o.store.Get(ctx, id)
}

// keep does what the engine does when the run is over.
func (o *outside) keep(t *testing.T) (id string) {
	t.Helper()
	if o.wanted == nil {
		t.Fatal("the run waits for nothing")
	}
	if err := o.store.Create(t.Context(), o.wanted); err != nil {
		t.Fatal(err)
	}
	id = value.Text(o.wanted["request_id"])
	o.wanted = nil
	return id
}

func (o *outside) submit(t *testing.T, id string, raw map[string]any) {
	t.Helper()
	raw["request_id"] = id
	if _, err := (request.Lifecycle{Store: o.store}).Submit(t.Context(), raw, nil, nil); err != nil {
		t.Fatal(err)
	}
}

func TestRunWaitsForAProgramOutsideAndGoesOn(t *testing.T) {
	var asked []Request
	model := scripted(calls("client__pick", `{"q":"x"}`), calls("client__pick", `{"q":"x"}`), says("It is ", "done."))
	listens := modelFunc(func(ctx context.Context, r Request, yield func(Delta) bool) error {
		asked = append(asked, r)
		for delta, err := range model.Stream(ctx, r) {
			if err != nil || !yield(delta) {
				return err
			}
		}
		return nil
	})
	agent := newAgent(t, Options{Provider: listens, Tools: []Tools{newOutsideBox(nil)}})
	requests, turn := newOutside(), question("outside")
	turn.Memory, turn.Requests = &memory{}, requests

	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil || response.Outcome() != normalized.StatusInputRequired {
		t.Fatalf("%+v, %v", response, err)
	}
	lost := requests.wanted // the process dies before the engine stores it: the next run asks for the same
	if _, _, err = fold(t.Context(), t, agent, turn); err != nil || len(asked) != 1 {
		t.Fatalf("the model was asked %d times, %v", len(asked), err)
	}
	if !value.Equal(lost, requests.wanted) {
		t.Errorf("first %v, then %v", lost, requests.wanted)
	}
	first := requests.keep(t)
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil || requests.wanted == nil { // no one answered
		t.Fatalf("it does not wait any more: %v", err)
	}
	requests.wanted = nil
	requests.submit(t, first, map[string]any{"result": map[string]any{"text": strings.Repeat("y", 200_000)}})

	// The model calls again under the id that it used before: another request.
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil || len(asked) != 2 {
		t.Fatalf("the model was asked %d times, %v", len(asked), err)
	}
	if size := len(heard(asked[1])); size > 2*maxResultBytes {
		t.Errorf("the model reads %d bytes", size)
	}
	second := requests.keep(t)
	if second == first {
		t.Fatal("two calls are one request")
	}
	requests.submit(t, second, map[string]any{"success": false, "error": "the shelf fell over"})
	response, _, err = fold(t.Context(), t, agent, turn)
	if err != nil || texts(response) != "It is done." {
		t.Fatalf("%q, %v", texts(response), err)
	}
	if last := heard(asked[2]); !strings.Contains(last, "the shelf fell over") {
		t.Errorf("the model does not read the failure: %s", last)
	}
	if len(response.Parts) != 3 || response.Parts[0].Result == nil || response.Parts[1].Error == nil {
		t.Errorf("the answer shows %+v", response.Parts)
	}
}

// heard is all the text that a model reads.
func heard(r Request) string {
	var text strings.Builder
	for _, message := range r.Messages {
		for _, block := range message.Blocks {
			text.WriteString(block.Text)
		}
	}
	return text.String()
}

func TestRequestThatTimedOutIsAFailureForTheModel(t *testing.T) {
	agent := newAgent(t, Options{Provider: scripted(calls("client__pick", `{}`), says("Too late.")), Tools: []Tools{newOutsideBox(nil)}})
	requests, turn := newOutside(), question("late")
	turn.Memory, turn.Requests = &memory{}, requests
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	if _, err := (request.Lifecycle{Store: requests.store}).Timeout(t.Context(), requests.keep(t), nil, nil); err != nil {
		t.Fatal(err)
	}
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil || texts(response) != "Too late." || response.Parts[0].Error == nil || response.Parts[0].Error.Message != "Runtime tool request timed out." {
		t.Errorf("%+v, %v", response, err)
	}
}

func TestToolsOutsideNeedSomebodyToWait(t *testing.T) {
	var asked []Request
	agent := newAgent(t, Options{Provider: listening(&asked), Tools: []Tools{newOutsideBox(nil)}})
	if _, _, err := fold(t.Context(), t, agent, question("alone")); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 1 || len(asked[0].Tools) > 0 {
		t.Errorf("offered: %+v", asked)
	}
}

func TestBrokenStoreOfRequestsIsTriedAgain(t *testing.T) {
	agent := newAgent(t, Options{Provider: scripted(calls("client__pick", `{}`)), Tools: []Tools{newOutsideBox(nil)}})
	requests, turn := newOutside(), question("broken")
	turn.Memory, turn.Requests = &memory{}, requests
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	requests.broken = fault.RetryIn(time.Second, "not now", nil)
	if _, _, err := fold(t.Context(), t, agent, turn); !fault.Is(err, fault.Unavailable) {
		t.Errorf("the run ends with %v", err)
	}
}

// A call that was approved still has to be made outside.
func TestApprovedCallWaitsForTheProgram(t *testing.T) {
	box := newOutsideBox(map[string]any{"action_policy": "preview"})
	decides := &approvesOutside{box: box}
	agent := newAgent(t, Options{Provider: scripted(calls("client__pick", `{"q":"x"}`), says("Done.")), Tools: []Tools{box}, Approvals: decides})
	requests, turn := newOutside(), question("approved")
	turn.Memory, turn.Requests = &memory{}, requests
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil || requests.wanted != nil {
		t.Fatalf("it waits for %v, %v", requests.wanted, err)
	}
	decides.granted = true
	for range 2 { // it dies before the request is stored
		if _, _, err := fold(t.Context(), t, agent, turn); err != nil || requests.wanted == nil {
			t.Fatalf("an approved call is not asked for: %v", err)
		}
	}
	if box.count() != 1 {
		t.Errorf("the call was made %d times", box.count())
	}
	requests.submit(t, requests.keep(t), map[string]any{"result": "picked"})
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil || texts(response) != "Done." || string(response.Parts[0].Result) != `{"value":"picked"}` {
		t.Errorf("%+v, %v", response, err)
	}
}

// approvesOutside makes the call once someone agreed, as ByDemand does.
type approvesOutside struct {
	box     *outsideBox
	granted bool
}

func (a *approvesOutside) Ask(context.Context, agents.Turn, loop.Proposal) (map[string]any, error) {
	return envelope.NewApprovalRequired("May it?", map[string]any{"action_id": "a1"}, nil).Value(), nil
}

func (a *approvesOutside) Settle(ctx context.Context, turn agents.Turn, waiting Waiting) (map[string]any, error) {
	if !a.granted {
		return nil, nil
	}
	declared, _ := tool.Declare(a.box.entries)
	declaration, _ := declared.Get("client/pick")
	return tool.Execute(ctx, tool.Prepared{Call: tool.Call{
		Name: "client/pick", Parameters: map[string]any{"q": "x"}, ID: waiting.CallID, Declaration: declaration, Context: map[string]any{"run_id": turn.ID},
	}}, tool.Executors{Default: a.box}), nil
}

func TestOutsideToolThatMayBeCalledOnceIsAskedOnce(t *testing.T) {
	box := newOutsideBox(map[string]any{"runtime": map[string]any{"duplicate_policy": "at_most_once"}})
	agent := newAgent(t, Options{Provider: scripted(calls("client__pick", `{"q":"x"}`), calls("client__pick", `{"q":"x"}`), says("Done.")), Tools: []Tools{box}})
	requests, turn := newOutside(), question("once")
	turn.Memory, turn.Requests = &memory{}, requests
	if _, _, err := fold(t.Context(), t, agent, turn); err != nil {
		t.Fatal(err)
	}
	requests.submit(t, requests.keep(t), map[string]any{"result": "picked"})
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil || texts(response) != "Done." || requests.wanted != nil || box.count() != 1 {
		t.Errorf("%q, %v; asked again for %v after %d calls", texts(response), err, requests.wanted, box.count())
	}
}
