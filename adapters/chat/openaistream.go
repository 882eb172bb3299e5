package chat

import (
	"strings"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
)

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
}

// completionFrames are the chunks of a streamed completion.
type completionFrames struct {
	*completion

	sent   strings.Builder
	places map[string]int // of the calls that are shown
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
	call, is := f.shownCall(found, delta)
	if !is {
		return nil
	}
	return []event{f.chunk(found, CompletionDelta{ToolCalls: []CompletionToolCall{call}}, "")}
}

// shownCall is a piece of a call that the agent made by itself.
func (f *completionFrames) shownCall(found run, delta contract.Delta) (CompletionToolCall, bool) {
	place, known := f.places[delta.ToolCallID]
	if delta.Kind != contract.DeltaCall {
		return CompletionToolCall{Index: &place, Function: CompletionFunction{Arguments: delta.Text}}, known
	}
	if f.repeated || f.executes(delta.ToolName) {
		return CompletionToolCall{}, false
	}
	if f.places == nil {
		f.places = map[string]int{}
	}
	place = len(f.places)
	f.places[delta.ToolCallID] = place
	return CompletionToolCall{Index: &place, ID: shownCallID(found.turn.ID, place), Type: "function", Function: CompletionFunction{Name: delta.ToolName}}, true
}

// over lets the stream go on where the run waits for a tool that the client did not offer.
func (f *completionFrames) over(found run) bool {
	return !exchange.GoesOnByItself(found.turn) || len(f.calls(found)) > 0
}

// called ends the stream when the client has to execute tools.
func (f *completionFrames) called(found run, steps []exchange.Event) []event {
	calls := f.calls(found)
	for i := range calls {
		place := len(f.places) + i
		calls[i].Index = &place
	}
	return append([]event{f.chunk(found, CompletionDelta{ToolCalls: calls}, "")}, f.finish(found, steps, finishCalls)...)
}

// end tells what is left of the answer. Words that left cannot be taken back: where the answer became another one, it
// stands after them.
func (f *completionFrames) end(found run, steps []exchange.Event) []event {
	if len(f.calls(found)) > 0 {
		return f.called(found, steps)
	}
	if failure := f.adapter.completionError(found.turn); failure != nil {
		return []event{{data: OpenAIErrorBody{failure.detail}}}
	}
	var list []event
	for place, call := range f.shown(found.turn) { // a quick run leaves no deltas
		if place >= len(f.places) {
			call.Index = &place
			list = append(list, f.chunk(found, CompletionDelta{ToolCalls: []CompletionToolCall{call}}, ""))
		}
	}
	reply, sent := f.adapter.reply(found.turn), strings.TrimSpace(f.sent.String())
	rest, grown := strings.CutPrefix(reply, sent)
	if !grown {
		rest = "\n\n" + reply
	}
	if rest != "" {
		list = append(list, f.chunk(found, CompletionDelta{Content: &rest}, ""))
	}
	return append(list, f.finish(found, steps, finishStop)...)
}

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
	return []event{{data: OpenAIErrorBody{OpenAIErrorDetail{
		Message: "The stream was cut off on the side of the server. The run goes on.", Type: "server_error", Code: "stream_cut",
	}}}}
}
