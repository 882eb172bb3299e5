package chat

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"inbox/adapters/chat/contract"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// clientTools are the tools that the client of a paused run executes: their calls, and the results that it hands in.
type clientTools struct {
	*site
	sessions *sessions
}

// ToolRequests are the calls of tools that programs outside execute (agent runtime contract, section 5).
type ToolRequests interface {
	// ToolRequests lists requests, oldest first.
	ToolRequests(ctx context.Context, filter exchange.ToolRequestFilter) ([]exchange.ToolRequest, error)
	// Submit hands in the result of a request of an agent, for a by that its timeline tells, and stores the bytes of the files that are
	// in its metadata. A request that has one returns that, with Duplicate. Its refusals are *request.Error.
	Submit(ctx context.Context, agent, by string, result map[string]any, files exchange.Contents) (*request.Envelope, error)
}

// Kinds of a client tool, by who executes it.
const (
	ToolOfProgram = "program" // a program of the operator
	ToolOfAsker   = "asker"   // the client that sent the message
)

// toolMemory is how many of the newest turns of a session are looked through for the call of a result.
const toolMemory = 50

// ToolCall is a call that the client of a paused run has to execute. Its members are those of a data part.
type ToolCall struct {
	ID        string         `json:"toolCallId"`
	Tool      string         `json:"toolId"`
	Arguments map[string]any `json:"arguments"`
	TimeoutAt string         `json:"timeoutAt,omitempty"`
}

// askerRuns reports whether a turn waits for its asker to execute a tool.
func (t *clientTools) askerRuns(turn exchange.TurnRecord) bool {
	name, is := strings.CutPrefix(turn.Reason, exchange.WaitingTool+" (")
	return is && turn.State == exchange.StateWaiting && t.options.ToolKind(turn.Agent, strings.TrimSuffix(name, ")")) == ToolOfAsker
}

// settled reports whether the client needs to wait no more: the turn ended, or waits for a decision or a tool, of the client itself
// them.
func (t *clientTools) settled(turn exchange.TurnRecord) bool {
	return exchange.Settled(turn.State) && (!exchange.GoesOnByItself(turn) || t.askerRuns(turn))
}

// calls are what the client has to execute now.
func (t *clientTools) calls(ctx context.Context, turn exchange.TurnRecord) ([]ToolCall, error) {
	if !t.askerRuns(turn) {
		return nil, nil
	}

	pending, err := t.options.Tools.ToolRequests(ctx, exchange.ToolRequestFilter{TurnID: turn.ID, Agent: turn.Agent, Limit: toolMemory})
	if err != nil {
		return nil, err
	}

	var list []ToolCall
	for _, one := range pending {
		document, err := request.FromRow(one.Request, one.Status, one.Result)
		if err != nil {
			return nil, err
		}
		call := ToolCall{ID: value.Text(document["tool_call_id"]), Tool: one.ToolName, Arguments: value.Assoc(document["parameters"])}
		if !one.TimeoutAt.IsZero() {
			call.TimeoutAt = one.TimeoutAt.UTC().Format(time.RFC3339)
		}
		list = append(list, call)
	}

	return list, nil
}

// callDeltas are the calls as steps of a growing answer.
func callDeltas(calls []ToolCall) []contract.Delta {
	var list []contract.Delta
	for i, call := range calls {
		arguments, err := json.Marshal(call.Arguments)
		if err != nil {
			continue // values out of JSON always encode
		}
		list = append(list, contract.Delta{Kind: contract.DeltaCall, ToolCallID: call.ID, ToolName: call.Tool, Index: i},
			contract.Delta{Kind: contract.DeltaArgument, ToolCallID: call.ID, Text: string(arguments), Index: i})
	}
	return list
}

// submit hands in the results that a question brings for calls of its session. Those of tools that only the client knows
// stay with the question. It returns the run that goes on when nothing else is in the question.
func (t *clientTools) submit(ctx context.Context, q *question) (found run, over bool, err error) {
	if len(q.input.Continuations) == 0 {
		return run{}, false, nil
	}

	messages, err := q.input.Messages()
	if err != nil {
		return run{}, false, fault.Wrap(fault.Malformed, err.Error(), err)
	}

	results := toolParts(messages)
	requests, err := t.requestsOf(ctx, *q)
	if err != nil {
		return run{}, false, err
	}

	known := map[string]exchange.ToolRequest{}
	for _, result := range results {
		one, err := t.requestFor(*q, result, requests)
		if err != nil {
			return run{}, false, err
		}
		if one.ID != "" {
			known[result.ID] = one
		}
	}

	turn := ""
	for _, result := range results {
		if one, is := known[result.ID]; is {
			if err := t.handIn(ctx, one, result); err != nil {
				return run{}, false, err
			}
			turn = max(turn, one.TurnID)
		}
	}

	if turn == "" {
		return run{}, false, nil
	}
	if q.input.Continuations = without(q.input.Continuations, known); q.input.Message != "" || len(q.input.Continuations)+len(q.input.Attachments) > 0 {
		return run{}, false, nil
	}

	found, err = t.goesOn(ctx, *q, turn)
	return found, true, err
}

// requestsOf returns the requests of the question's session by the call's id; the newest of an id counts.
func (t *clientTools) requestsOf(ctx context.Context, q question) (map[string]exchange.ToolRequest, error) {
	found := map[string]exchange.ToolRequest{}
	if q.input.SessionID == "" || t.options.ToolKind(q.agent.Name, "") == "" {
		return found, nil
	}

	turns, err := t.sessions.turnsOf(ctx, q, toolMemory)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return nil, err
	}

	for _, turn := range turns {
		list, err := t.options.Tools.ToolRequests(ctx, exchange.ToolRequestFilter{TurnID: turn.ID, Agent: turn.Agent, All: true, Limit: toolMemory})
		if err != nil {
			return nil, err
		}
		for _, one := range list {
			document, err := request.FromRow(one.Request, one.Status, one.Result)
			if err != nil {
				return nil, err
			}
			id := value.Text(document["tool_call_id"])
			if kept, there := found[id]; !there || kept.TurnID <= one.TurnID {
				found[id] = one
			}
		}
	}

	return found, nil
}

// requestFor finds the request of a result. No asker answers for a tool of the operator, nor for a call that was not made
// here: the agent would rely on such a result.
func (t *clientTools) requestFor(q question, result normalized.Part, requests map[string]exchange.ToolRequest) (exchange.ToolRequest, error) {
	one, there := requests[result.ID]
	if there && t.options.ToolKind(q.agent.Name, one.ToolName) == ToolOfAsker {
		if clientTool(result.Name) != one.ToolName {
			return one, fault.New(fault.Malformed, "the toolId is not that of the call")
		}
		return one, nil
	}
	if there || t.options.ToolKind(q.agent.Name, clientTool(result.Name)) != "" {
		return one, request.AsFault(&request.Error{Code: request.CodeResult, Reason: request.ReasonNotFound})
	}
	return exchange.ToolRequest{}, nil
}

// clientTool returns the canonical name of the tool that a client names: "client/look_up", "client__look_up" or "look_up". The operator
// cannot declare a tool whose name begins with "client__", so each of these is one tool only. An empty name stays empty.
func clientTool(used string) string {
	if used == "" {
		return ""
	}
	return clientNamespace + strings.TrimPrefix(strings.TrimPrefix(used, clientNamespace), modelNamespace)
}

func (t *clientTools) handIn(ctx context.Context, one exchange.ToolRequest, result normalized.Part) error {
	if result.Error != nil {
		_, err := t.options.Tools.Submit(ctx, one.Agent, ToolOfAsker, map[string]any{"request_id": one.ID, "success": false, "error": result.Error.Message}, nil)
		return request.AsFault(err)
	}

	given, err := value.Decode(result.Result, value.Limits{Bytes: contract.MaxInputBytes, Depth: maxDepth})
	if err != nil {
		return fault.Wrap(fault.Malformed, "the result of a tool is not JSON", err)
	}
	_, err = t.options.Tools.Submit(ctx, one.Agent, ToolOfAsker, map[string]any{"request_id": one.ID, "success": true, "result": given}, nil)
	return request.AsFault(err)
}

// without leaves out the calls that were answered and their results.
func without(messages []any, known map[string]exchange.ToolRequest) []any {
	var rest []any
	for _, message := range messages {
		id := value.Text(value.Assoc(value.Assoc(message)["metadata"])["tool_call_id"])
		if _, is := known[id]; !is {
			rest = append(rest, message)
		}
	}
	return rest
}

// goesOn returns the run whose tool was executed, under the name that the client wants for it.
func (t *clientTools) goesOn(ctx context.Context, q question, turnID string) (run, error) {
	turn, err := t.options.Turns.Turn(ctx, turnID)
	if err != nil {
		return run{}, err
	}
	found := run{turn: turn, route: routeOf(turn)}
	if named := strings.TrimSpace(q.input.RunID); named != "" {
		found.route.Run = named
	}
	return found, nil
}

// toolRefusal is what a client reads of a refused result.
func toolRefusal(err error) (text string, is bool) {
	refused, is := errors.AsType[*request.Error](err)
	if !is {
		return "", false
	}
	return refused.Error(), true
}
