package chat

import (
	"context"
	"fmt"
	"net/http"

	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// Completion is a whole answer.
type Completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"` // chat.completion
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []CompletionChoice `json:"choices"`
	Usage   CompletionUsage    `json:"usage"`
}

// CompletionChoice is the one answer.
type CompletionChoice struct {
	Index        int               `json:"index"`
	Message      CompletionMessage `json:"message"`
	LogProbs     *struct{}         `json:"logprobs"`      // null
	FinishReason string            `json:"finish_reason"` // stop, or tool_calls when the client has to execute tools
}

// CompletionMessage is what the agent says.
type CompletionMessage struct {
	Role      string               `json:"role"`    // assistant
	Content   *string              `json:"content"` // null when there are calls only
	Refusal   *string              `json:"refusal"` // null
	ToolCalls []CompletionToolCall `json:"tool_calls,omitempty"`
}

// CompletionToolCall is a call of a tool: with finish_reason tool_calls the client executes it, otherwise the agent did.
type CompletionToolCall struct {
	Index    *int               `json:"index,omitempty"` // in chunks
	ID       string             `json:"id,omitempty"`
	Type     string             `json:"type,omitempty"` // function
	Function CompletionFunction `json:"function"`
}

// CompletionFunction is the tool of a call.
type CompletionFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"` // JSON
}

// CompletionUsage is what the agent's models took for the answer; zero for agents without a model.
type CompletionUsage struct {
	Prompt     int64                  `json:"prompt_tokens"`
	Completion int64                  `json:"completion_tokens"`
	Total      int64                  `json:"total_tokens"`
	Details    CompletionUsageDetails `json:"prompt_tokens_details"`
}

// CompletionUsageDetails tells which of the prompt's tokens came from a cache.
type CompletionUsageDetails struct {
	Cached int64 `json:"cached_tokens"`
}

func usageOf(steps []exchange.Event) CompletionUsage {
	spent := exchange.SpentBy(steps)
	if spent == nil {
		return CompletionUsage{}
	}
	return CompletionUsage{spent.Input, spent.Output, spent.Input + spent.Output, CompletionUsageDetails{spent.CacheRead}}
}

// answerCompletion waits for the answer and writes it.
func (a *Adapter) answerCompletion(w http.ResponseWriter, r *http.Request, c *completion) error {
	allowWait(w, a.options.WaitLimit)
	if err := c.await(r.Context()); err != nil {
		return err
	}
	turn, calls := c.found.turn, c.calls(c.found)
	if failure := a.completionError(turn); failure != nil && len(calls) == 0 {
		failure.write(w)
		return nil
	}
	spent, err := a.spent(r.Context(), turn.ID, c.found.after)
	if err != nil {
		return err
	}
	whole := Completion{ID: completionID(c.found), Object: "chat.completion", Created: turn.AcceptedAt.Unix(), Model: c.agent.Name, Usage: usageOf(spent)}
	whole.Choices = []CompletionChoice{{Message: CompletionMessage{Role: roleAssistant, ToolCalls: calls}, FinishReason: finishCalls}}
	if choice := &whole.Choices[0]; len(calls) == 0 {
		reply := a.reply(turn)
		choice.Message.Content, choice.Message.ToolCalls, choice.FinishReason = &reply, c.shown(turn), finishStop
	}
	httpserver.WriteJSON(w, http.StatusOK, whole)
	return nil
}

// Reasons why an answer ends.
const (
	finishStop  = "stop"
	finishCalls = "tool_calls"
)

// completionError is the error of a turn without an answer; nil where there is one. An SDK must not repeat the request by
// itself: what failed has been repeated here.
func (a *Adapter) completionError(turn exchange.TurnRecord) *openAIError {
	switch {
	case !exchange.Settled(turn.State), exchange.GoesOnByItself(turn):
		return &openAIError{http.StatusGatewayTimeout, OpenAIErrorDetail{Message: "The agent is still working.", Type: "server_error", Code: "timeout"}}
	case turn.State == exchange.StateRefused:
		return &openAIError{http.StatusForbidden, OpenAIErrorDetail{Message: a.reply(turn), Type: "invalid_request_error", Code: "refused"}}
	case turn.State == exchange.StateCancelled:
		return &openAIError{http.StatusInternalServerError, OpenAIErrorDetail{Message: "The run was cancelled.", Type: "server_error", Code: "agent_failed"}}
	case turn.State == exchange.StateFailed:
		return &openAIError{http.StatusInternalServerError, OpenAIErrorDetail{Message: a.reply(turn), Type: "server_error", Code: "agent_failed"}}
	}
	return nil
}

const (
	eventPage    = 500
	maxEventRead = 20 * eventPage
)

// spent reads what the models of a turn took after an event.
func (a *Adapter) spent(ctx context.Context, turnID string, after int64) (steps []exchange.Event, err error) {
	err = a.eachEvent(ctx, turnID, after, func(one exchange.Event) {
		if one.Kind == exchange.EventModelCalled {
			steps = append(steps, one)
		}
	})
	return steps, err
}

// eachEvent reads the stored events of a turn after one, at most maxEventRead.
func (a *Adapter) eachEvent(ctx context.Context, turnID string, after int64, read func(exchange.Event)) error {
	for last := after + maxEventRead; after < last; {
		events, err := a.options.Turns.Events(ctx, turnID, after, eventPage)
		if err != nil {
			return err
		}
		for _, one := range events {
			after = one.Seq
			read(one)
		}
		if len(events) < eventPage {
			break
		}
	}
	return nil
}

// completionID names an answer: that of a run, or of what came after a result of a tool.
func completionID(found run) string {
	id := "chatcmpl-" + found.turn.ID
	if found.after > 0 {
		id += fmt.Sprintf("-%d", found.after)
	}
	return id
}

// shown are the calls that the agent made by itself, where its operator wants them shown. Those that the client executed
// were told before.
func (c *completion) shown(turn exchange.TurnRecord) []CompletionToolCall {
	if turn.Response == nil || c.repeated || !c.adapter.options.ShowsTools(turn.Agent) {
		return nil
	}
	var list []CompletionToolCall
	for _, part := range turn.Response.Parts {
		if part.Kind != normalized.PartToolCall || c.executes(part.Name) {
			continue
		}
		list = append(list, CompletionToolCall{
			ID: shownCallID(turn.ID, len(list)), Type: "function", Function: CompletionFunction{Name: part.Name, Arguments: string(part.Args)},
		})
	}
	return list
}
