package chat

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"inbox/adapters/chat/contract"
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
	FinishReason string            `json:"finish_reason"` // stop, length when the answer is cut or its run stopped at a budget, or tool_calls when the client has to execute tools
}

// CompletionMessage is what the agent says.
type CompletionMessage struct {
	Role      string               `json:"role"`    // assistant
	Content   *string              `json:"content"` // null when there are calls only
	Refusal   *string              `json:"refusal"` // null
	ToolCalls []CompletionToolCall `json:"tool_calls,omitempty"`

	ExecutedTools []CompletionExecutedTool `json:"executed_tools,omitempty"` // that the agent called by itself
	Annotations   []CompletionAnnotation   `json:"annotations,omitempty"`
	Files         []ChatFile               `json:"files,omitempty"` // to which the content links
}

// CompletionToolCall is a call of a tool that the client executes.
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
func (a *openAI) answerCompletion(w http.ResponseWriter, r *http.Request, c *completion) error {
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
		reply := a.said(turn)
		choice.Message.Content, choice.Message.ToolCalls, choice.FinishReason = &reply, nil, finishOf(turn)
		choice.Message.ExecutedTools, choice.Message.Annotations = c.executed(turn), annotations(reply, citationsOf(turn))
		choice.Message.Files = a.renderer.filesOf(turn)
	}

	httpserver.WriteJSON(w, http.StatusOK, whole)
	return nil
}

// Reasons why an answer ends.
const (
	finishStop   = "stop"
	finishLength = "length"
	finishCalls  = "tool_calls"
)

// finishOf is the reason why an answer without calls ends.
func finishOf(turn exchange.TurnRecord) string {
	if stopOf(turn) == normalized.StopLength || turn.Response.Stopped() != "" {
		return finishLength
	}
	return finishStop
}

// said is the text of an answer. The line that tells other readers that the answer is cut is left out: clients read the finish reason.
func (a *openAI) said(turn exchange.TurnRecord) string {
	if stopOf(turn) == normalized.StopLength {
		response := *turn.Response
		if last := len(response.Parts) - 1; last >= 0 && response.Parts[last].OnlyText() && response.Parts[last].Content == normalized.Cut {
			response.Parts = response.Parts[:last]
			turn.Response = &response
		}
	}
	if turn.Response != nil && routeOf(turn).Format != nil {
		response := formed(*turn.Response)
		turn.Response = &response
	}
	return a.renderer.linkedReply(turn)
}

// completionError is the error of a turn without an answer; nil where there is one. An SDK must not repeat the request by
// itself: what failed has been repeated here.
func (a *openAI) completionError(turn exchange.TurnRecord) *openAIError {
	switch {
	case !exchange.Settled(turn.State), exchange.GoesOnByItself(turn):
		return &openAIError{http.StatusGatewayTimeout, OpenAIErrorDetail{Message: "The agent is still working.", Type: "server_error", Code: "timeout"}}
	case turn.State == exchange.StateRefused:
		return &openAIError{http.StatusForbidden, OpenAIErrorDetail{Message: a.renderer.reply(turn), Type: "invalid_request_error", Code: "refused"}}
	case turn.State == exchange.StateCancelled:
		return &openAIError{http.StatusInternalServerError, OpenAIErrorDetail{Message: "The run was cancelled.", Type: "server_error", Code: "agent_failed"}}
	case turn.State == exchange.StateFailed:
		return a.failed(turn)
	}
	return nil
}

// failed is the error of a turn whose agent gave no answer, with the code of its reason. Only a conversation that is too long is one that the
// client can change.
func (a *openAI) failed(turn exchange.TurnRecord) *openAIError {
	failure := &openAIError{http.StatusInternalServerError, OpenAIErrorDetail{Message: a.renderer.reply(turn), Type: "server_error", Code: "agent_failed"}}
	why := exchange.FailureOf(ended(turn))
	if why == nil {
		return failure
	}

	failure.detail.Code, failure.detail.Retryable = why.Code, why.Retryable()
	if why.Code == normalized.FailedContextTooLong {
		failure.status, failure.detail.Type = http.StatusBadRequest, "invalid_request_error"
	}
	return failure
}

const (
	eventPage    = 500
	maxEventRead = 20 * eventPage
)

// spent reads what the models of a turn took after an event.
func (a *openAI) spent(ctx context.Context, turnID string, after int64) (steps []exchange.Event, err error) {
	err = a.eachEvent(ctx, turnID, after, func(one exchange.Event) {
		if one.Kind == exchange.EventModelCalled {
			steps = append(steps, one)
		}
	})
	return steps, err
}

// eachEvent reads the stored events of a turn after one, at most maxEventRead.
func (a *openAI) eachEvent(ctx context.Context, turnID string, after int64, read func(exchange.Event)) error {
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

// CompletionChunk is one event of a streamed answer. With stream_options.include_usage the last one has no choice and the
// usage, and all others have null for it.
type CompletionChunk struct {
	ID      string                  `json:"id"`
	Object  string                  `json:"object"` // chat.completion.chunk
	Created int64                   `json:"created"`
	Model   string                  `json:"model"`
	Choices []CompletionChunkChoice `json:"choices"`
	Usage   **CompletionUsage       `json:"usage,omitempty"`
}

// CompletionChunkChoice is a piece of the one answer.
type CompletionChunkChoice struct {
	Index        int             `json:"index"`
	Delta        CompletionDelta `json:"delta"`
	LogProbs     *struct{}       `json:"logprobs"`      // null
	FinishReason *string         `json:"finish_reason"` // null but in the last one
}

// CompletionDelta is what a chunk adds.
type CompletionDelta struct {
	Role      string               `json:"role,omitempty"` // in the first chunk
	Content   *string              `json:"content,omitempty"`
	ToolCalls []CompletionToolCall `json:"tool_calls,omitempty"`

	ExecutedTools []CompletionExecutedTool `json:"executed_tools,omitempty"`
	Annotations   []CompletionAnnotation   `json:"annotations,omitempty"` // before the last chunk of the choice
	Files         []ChatFile               `json:"files,omitempty"`       // there, too
}

// completionFrames are the chunks of a streamed completion.
type completionFrames struct {
	*completion

	sent   strings.Builder
	places map[string]int    // of the calls that are shown
	states map[string]string // what the client was last told of them
}

func (f *completionFrames) head(found run) CompletionChunk {
	chunk := CompletionChunk{
		ID: completionID(found), Object: "chat.completion.chunk", Created: found.turn.AcceptedAt.Unix(), Model: f.agent.Name, Choices: []CompletionChunkChoice{},
	}
	if f.request.StreamOptions.IncludeUsage {
		chunk.Usage = new(*CompletionUsage)
	}
	return chunk
}

func (f *completionFrames) chunk(found run, delta CompletionDelta, finish string) event {
	chunk := f.head(found)
	chunk.Choices = append(chunk.Choices, CompletionChunkChoice{Delta: delta})
	if finish != "" {
		chunk.Choices[0].FinishReason = &finish
	}
	return event{data: chunk}
}

func (f *completionFrames) begin(found run) []event {
	return []event{f.chunk(found, CompletionDelta{Role: roleAssistant, Content: new(string)}, "")}
}

func (f *completionFrames) delta(found run, delta contract.Delta) []event {
	if delta.Kind == contract.DeltaContent {
		f.sent.WriteString(delta.Text)
		return []event{f.chunk(found, CompletionDelta{Content: &delta.Text}, "")}
	}
	shown, is := chatToolOfDelta(delta)
	if !is || f.repeated || f.executes(shown.Name) {
		return nil
	}
	return []event{f.chunk(found, CompletionDelta{ExecutedTools: []CompletionExecutedTool{f.tell(shown)}}, "")}
}

// tell notes what the client hears of a call.
func (f *completionFrames) tell(shown ChatTool) CompletionExecutedTool {
	if f.places == nil {
		f.places, f.states = map[string]int{}, map[string]string{}
	}
	if _, known := f.places[shown.ID]; !known {
		f.places[shown.ID] = len(f.places)
	}
	f.states[shown.ID] = shown.Status
	return executedTool(f.places[shown.ID], shown)
}

// over lets the stream go on where the run waits for a tool that the client did not offer.
func (f *completionFrames) over(found run) bool {
	return !exchange.GoesOnByItself(found.turn) || len(f.calls(found)) > 0
}

// called ends the stream when the client has to execute tools.
func (f *completionFrames) called(found run, steps []exchange.Event) []event {
	calls := f.calls(found)
	for i := range calls {
		calls[i].Index = &i
	}
	return append([]event{f.chunk(found, CompletionDelta{ToolCalls: calls}, "")}, f.finish(found, steps, finishCalls)...)
}

// appends says that clients of this form join all pieces of text, and cannot be told to begin again.
func (*completionFrames) appends() {}

// end returns the frames that complete the stream: the text not sent yet, or the tool calls, and the finish reason.
func (f *completionFrames) end(found run, steps []exchange.Event) []event {
	if len(f.calls(found)) > 0 {
		return f.called(found, steps)
	}
	if failure := f.api.completionError(found.turn); failure != nil {
		return []event{{data: failure.detail.documented()}}
	}

	var list []event
	for _, call := range f.executed(found.turn) { // a quick run leaves no deltas
		if f.states[call.ID] != call.Status {
			told := f.tell(ChatTool{ID: call.ID, Name: call.Name, Status: call.Status})
			call.Index = told.Index
			list = append(list, f.chunk(found, CompletionDelta{ExecutedTools: []CompletionExecutedTool{call}}, ""))
		}
	}

	rest, one := found.lacks(f.api.said(found.turn))
	if !one {
		return []event{{data: restarted().documented()}}
	}
	if rest != "" {
		list = append(list, f.chunk(found, CompletionDelta{Content: &rest}, ""))
	}
	if cited := annotations(f.sent.String()+rest, citationsOf(found.turn)); len(cited) > 0 {
		list = append(list, f.chunk(found, CompletionDelta{Annotations: cited}, ""))
	}
	if files := f.api.renderer.filesOf(found.turn); len(files) > 0 {
		list = append(list, f.chunk(found, CompletionDelta{Files: files}, ""))
	}

	return append(list, f.finish(found, steps, finishOf(found.turn))...)
}

// restarted is the error of a stream whose text is of a run that ended without an answer.
func restarted() OpenAIErrorDetail {
	return OpenAIErrorDetail{
		Message: "The agent's answer broke off, and its second attempt says other words: the text so far is not the answer. Send the request again.",
		Type:    "server_error", Code: "answer_restarted",
	}
}

const sayCut = "The stream was cut off on the side of the server. The run goes on."

// finish are the last events: why the answer ends, what it took, and that there is nothing more.
func (f *completionFrames) finish(found run, steps []exchange.Event, reason string) []event {
	list := []event{f.chunk(found, CompletionDelta{}, reason)}
	if f.request.StreamOptions.IncludeUsage {
		usage, last := usageOf(steps), f.head(found)
		*last.Usage = &usage
		list = append(list, event{data: last})
	}
	return append(list, event{data: raw("[DONE]")})
}

// broken tells a reader that is still there that the server has to stop: without it the answer would look whole.
func (f *completionFrames) broken(run, string) []event {
	cut := OpenAIErrorDetail{Message: sayCut, Type: "server_error", Code: "stream_cut"}
	return []event{{data: cut.documented()}}
}
