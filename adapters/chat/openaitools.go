package chat

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

const (
	clientNamespace = "client/"  // of tools that programs outside execute (agents/clienttool)
	modelNamespace  = "client__" // the same in the names of models
	maxToolResults  = 64
	maxResultDepth  = 32
)

// offers returns the tools that the client executes: it names them, and the agent's operator lets askers do it. A guest has
// no later request by which it could be known, so it executes nothing. Two functions that are the same tool are a fault: the client may mean
// different tools.
func (c *completion) offers() (map[string]string, error) {
	var choice string
	_ = json.Unmarshal(c.request.ToolChoice, &choice) // or an object, which names a tool

	if c.who.guest() || choice == "none" {
		return nil, nil
	}

	offered := map[string]string{}
	for _, one := range c.request.Tools {
		name := clientTool(one.Function.Name)
		if c.api.options.ToolKind(c.agent.Name, name) != ToolOfAsker {
			continue
		}
		if other, taken := offered[name]; taken && other != one.Function.Name {
			return nil, fault.InField("tools", "have two functions for the tool "+name+": "+short(other)+" and "+short(one.Function.Name)+"; offer one of them")
		}
		offered[name] = one.Function.Name
	}
	return offered, nil
}

func (c *completion) executes(tool string) bool { return c.offered[tool] != "" }

// waitsForClient reports whether the turn waits for a tool that the client executes.
func (c *completion) waitsForClient(turn exchange.TurnRecord) bool {
	name, _ := strings.CutPrefix(turn.Reason, exchange.WaitingTool+" (")
	return c.api.tools.askerRuns(turn) && c.executes(strings.TrimSuffix(name, ")"))
}

// calls are what the client has to execute now.
func (c *completion) calls(found run) []CompletionToolCall {
	var list []CompletionToolCall
	for _, one := range found.calls {
		if c.executes(one.Tool) {
			list = append(list, CompletionToolCall{ID: clientCallID(found.turn.ID, one.Tool, one.ID), Type: "function", Function: CompletionFunction{
				Name: c.offered[one.Tool], Arguments: value.EncodeText(one.Arguments),
			}})
		}
	}
	return list
}

// Calls have ids of ours: the turn is in them, and ids of models repeat.
const callPrefix = "call_"

func callID(turnID, which string) string {
	return callPrefix + strings.ReplaceAll(turnID, "-", "") + "_" + which
}

func clientCallID(turnID, tool, id string) string {
	return callID(turnID, "c"+hash("completion call", tool, id)[:12])
}

// turnOfCall reads the turn out of the id of a call.
func turnOfCall(id string) (turnID string, ok bool) {
	digits, is := strings.CutPrefix(id, callPrefix)
	digits, _, _ = strings.Cut(digits, "_")
	raw, err := hex.DecodeString(digits)
	found, wrong := uuid.FromBytes(raw)
	return found.String(), is && err == nil && wrong == nil
}

// goOn hands in the results at the end of the conversation and finds the run that waits for them. All are checked before
// one counts. Handing them in again changes nothing and finds the same run.
func (c *completion) goOn(ctx context.Context) error {
	results := c.request.ending()
	turn, err := c.calledBy(ctx, results)
	if err != nil {
		return err
	}

	asked, err := c.asked(ctx, turn, results)
	if err != nil {
		return err
	}

	outcomes, err := c.outcomes(ctx, results)
	if err != nil {
		return err
	}
	for i := range outcomes {
		if err := c.submit(ctx, asked[i], outcomes[i]); err != nil {
			return err
		}
	}

	if turn, err = c.api.options.Turns.Turn(ctx, turn.ID); err != nil {
		return err
	}

	c.found = run{turn: turn, route: routeOf(turn)}
	c.found.after, err = c.submittedAt(ctx, turn.ID, asked)
	c.found.from, c.repeated = c.found.after, c.found.after == 0
	return err
}

// calledBy finds the run whose calls the results belong to: one run of the caller with this agent.
func (c *completion) calledBy(ctx context.Context, results []CompletionInput) (exchange.TurnRecord, error) {
	if len(results) > maxToolResults {
		return exchange.TurnRecord{}, fault.InField("messages", fmt.Sprintf("ends with %d results of tools, and the limit is %d", len(results), maxToolResults))
	}

	turnID, is := turnOfCall(results[0].ToolCallID)
	for _, result := range results {
		if other, ok := turnOfCall(result.ToolCallID); !ok || other != turnID {
			return exchange.TurnRecord{}, notCalled(result)
		}
	}

	if !is || c.who.guest() {
		return exchange.TurnRecord{}, notCalled(results[0])
	}

	turn, err := c.api.options.Turns.Turn(ctx, turnID)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return turn, err
	}
	if err != nil || !routeOf(turn).Chat || turn.Agent != c.agent.Name || turn.Principal != c.principal() {
		return turn, notCalled(results[0])
	}

	return turn, nil
}

func notCalled(result CompletionInput) error {
	return fault.InField("messages", "end with a result for the call "+short(result.ToolCallID)+", which is no call of this agent in your conversation")
}

// asked returns the tool request of each result. No result is taken for a tool that the operator did not leave to askers.
func (c *completion) asked(ctx context.Context, turn exchange.TurnRecord, results []CompletionInput) ([]exchange.ToolRequest, error) {
	list := make([]exchange.ToolRequest, len(results))
	known, err := c.requests(ctx, turn)
	if err != nil {
		return nil, err
	}

	for i, result := range results {
		request, is := known[result.ToolCallID]
		if !is {
			return nil, notCalled(result)
		}
		list[i] = request
	}

	return list, nil
}

// requests are the tool requests of a turn that its asker executes, by the ids of their calls.
func (c *completion) requests(ctx context.Context, turn exchange.TurnRecord) (map[string]exchange.ToolRequest, error) {
	known := map[string]exchange.ToolRequest{}
	if c.api.options.ToolKind(turn.Agent, "") != ToolOfAsker {
		return known, nil
	}

	found, err := c.api.options.Tools.ToolRequests(ctx, exchange.ToolRequestFilter{TurnID: turn.ID, Agent: turn.Agent, All: true, Limit: eventPage})
	if err != nil {
		return nil, err
	}

	for _, one := range found {
		document, err := request.FromRow(one.Request, one.Status, one.Result)
		if err != nil {
			return nil, err
		}
		if c.api.options.ToolKind(turn.Agent, one.ToolName) == ToolOfAsker {
			known[clientCallID(turn.ID, one.ToolName, value.Text(document["tool_call_id"]))] = one
		}
	}

	return known, nil
}

// handedIn is what a tool of the client returned: a JSON value, and files.
type handedIn struct {
	value any
	files []normalized.Part
	bytes exchange.Contents // to which the files refer
}

// outcomes reads results.
func (c *completion) outcomes(ctx context.Context, results []CompletionInput) ([]handedIn, error) {
	list := make([]handedIn, len(results))
	said := conversation{limits: c.api.options.Limits}
	for i := range results {
		said.files = exchange.Contents{}
		parts, err := said.read(ctx, results[i].Content, len(c.request.Messages)-len(results)+i, false)
		if err != nil {
			return nil, err
		}
		isText := func(part normalized.Part) bool { return part.Kind == normalized.PartText }
		list[i] = handedIn{value: resultOf(textsOf(parts)), files: slices.DeleteFunc(parts, isText), bytes: said.files}
	}
	return list, nil
}

// submit hands in one result. One that has a result already keeps it.
func (c *completion) submit(ctx context.Context, asked exchange.ToolRequest, brought handedIn) error {
	result := map[string]any{"request_id": asked.ID, "success": true, "result": brought.value}
	if len(brought.files) > 0 {
		files, err := json.Marshal(brought.files)
		if err != nil {
			return err
		}
		given, err := value.Decode(files, value.Limits{Bytes: len(files)})
		if err != nil {
			return err
		}
		result["metadata"] = map[string]any{request.FilesKey: given}
	}
	if asked.Status != request.StatusPending { // it keeps the result that it has
		brought.bytes = nil
	}
	_, err := c.api.options.Tools.Submit(ctx, asked.Agent, ToolOfAsker, result, brought.bytes)
	return request.AsFault(err) //nolint:wrapcheck // a fault
}

// resultOf is the object or list that a tool wrote as JSON, or its text.
func resultOf(text string) any {
	given, err := value.Decode([]byte(text), value.Limits{Bytes: maxToldBytes, Depth: maxResultDepth})
	if err == nil && value.Container(given) {
		return given
	}
	return text
}

// submittedAt returns the place of the newest of the results in the timeline, 0 without any: the answer is what comes after it.
func (c *completion) submittedAt(ctx context.Context, turnID string, asked []exchange.ToolRequest) (seq int64, err error) {
	err = c.api.eachEvent(ctx, turnID, 0, func(one exchange.Event) {
		var about struct {
			RequestID string `json:"request_id"`
		}
		if one.Kind == exchange.EventToolSubmitted && json.Unmarshal(one.Body, &about) == nil && slices.ContainsFunc(asked, func(known exchange.ToolRequest) bool {
			return known.ID == about.RequestID
		}) {
			seq = one.Seq
		}
	})
	return seq, err
}

// await waits until the run ended, or itself waits for a decision or a tool, which may be the client's, at most Options.WaitLimit.
func (c *completion) await(ctx context.Context) (err error) {
	turnID := c.found.turn.ID
	if c.api.options.ToolKind(c.agent.Name, "") != ToolOfAsker {
		c.found.turn, err = c.api.runs.await(ctx, turnID)
		return err
	}

	serving, stop := httpserver.WhileServing(ctx)
	defer stop()
	waiting, cancel := context.WithTimeout(serving, c.api.options.WaitLimit)
	defer cancel()

	for one, err := range c.api.options.Runs.Follow(waiting, turnID, c.found.after) {
		if err != nil && (ctx.Err() != nil || waiting.Err() == nil) {
			return err
		}
		if err == nil && !strings.HasPrefix(one.Kind, "turn.") {
			continue
		}

		over, wrong := c.look(ctx)
		if over || wrong != nil || err != nil {
			return wrong
		}
	}

	_, err = c.look(ctx)
	return err
}

// look reads the run as it is now and reports whether the client needs to wait no more.
func (c *completion) look(ctx context.Context) (over bool, err error) {
	turn, err := c.api.options.Turns.Turn(ctx, c.found.turn.ID)
	if err != nil {
		return false, err
	}

	c.found.turn = turn
	if !c.waitsForClient(turn) {
		return exchange.Settled(turn.State) && !exchange.GoesOnByItself(turn), nil
	}

	c.found.calls, err = c.api.tools.calls(ctx, turn)
	return len(c.calls(c.found)) > 0, err
}
