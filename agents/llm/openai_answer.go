package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxCalls bounds the tool calls of one assistant turn.
const maxCalls = 128

// openAIAnswer reads one chat completion, whole or in chunks.
type openAIAnswer struct {
	emit    emitter
	calls   map[int]int // index on the wire → ours
	ids     []string    // of our calls
	last    int         // the call that the last piece belonged to
	stop    string
	stopped bool
}

type openAIChunk struct {
	Choices []openAIChoice  `json:"choices"`
	Usage   *openAIUsage    `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type openAIChoice struct {
	Index        int           `json:"index"`
	Delta        *openAISpoken `json:"delta"`   // of a chunk
	Message      *openAISpoken `json:"message"` // of a whole answer
	FinishReason string        `json:"finish_reason"`
}

type openAISpoken struct {
	Content   json.RawMessage  `json:"content"` // string, parts of text, or null
	Refusal   string           `json:"refusal"`
	ToolCalls []openAICallPart `json:"tool_calls"`
}

type openAICallPart struct {
	Index    *int   `json:"index"` // some servers leave it out, some always write 0
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"` // a string with JSON text; some servers write the object itself
	} `json:"function"`
}

type openAIUsage struct {
	PromptTokens     int64   `json:"prompt_tokens"`
	CompletionTokens int64   `json:"completion_tokens"`
	Cost             float64 `json:"cost"` // some services say what it cost
	Details          struct {
		CachedTokens     int64 `json:"cached_tokens"`
		CacheWriteTokens int64 `json:"cache_write_tokens"`
	} `json:"prompt_tokens_details"`
}

var openAIStops = map[string]string{
	"stop": StopEnd, "tool_calls": StopToolCalls, "function_call": StopToolCalls, "length": StopLength,
	"content_filter": StopRefusal,
}

func (a *openAIAnswer) stream(events *eventReader, emit emitter) error {
	a.emit = emit
	for {
		event, err := events.next()
		if err != nil {
			return a.end(err)
		}
		if string(event.data) == "[DONE]" {
			return a.end(io.EOF)
		}
		if err := a.chunk(event.data); err != nil {
			return event.fault(err)
		}
	}
}

// end accepts the end of the stream once the model has said why it stopped: some servers leave [DONE] out.
func (a *openAIAnswer) end(err error) error {
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case !a.stopped:
		return errStreamCut
	}
	if a.stop == StopEnd && len(a.ids) > 0 {
		a.stop = StopToolCalls
	}
	return a.emit(Delta{Kind: DeltaStop, Stop: a.stop})
}

func (a *openAIAnswer) document(data []byte, emit emitter) error {
	a.emit = emit
	if err := a.chunk(data); err != nil {
		return err
	}
	return a.end(io.EOF)
}

func (a *openAIAnswer) chunk(data []byte) error {
	var chunk openAIChunk
	if err := json.Unmarshal(data, &chunk); err != nil {
		return fmt.Errorf("read model answer: %w", err)
	}
	if kind, message := readError(chunk.Error); kind != "" || message != "" {
		return &refusal{kind: kind, message: message, repeat: passing[kind]}
	}
	for i := range chunk.Choices {
		if chunk.Choices[i].Index == 0 { // we ask for one answer
			if err := a.choice(&chunk.Choices[i]); err != nil {
				return err
			}
		}
	}
	if chunk.Usage == nil {
		return nil
	}
	return a.emit(Delta{Kind: DeltaUsage, Usage: Usage{
		Input: chunk.Usage.PromptTokens, Output: chunk.Usage.CompletionTokens, Cost: chunk.Usage.Cost,
		CacheRead: chunk.Usage.Details.CachedTokens, CacheWrite: chunk.Usage.Details.CacheWriteTokens,
	}})
}

// passing are errors inside a stream after which another attempt may succeed.
var passing = map[string]bool{
	"overloaded_error": true, "rate_limit_error": true, "api_error": true, "timeout_error": true,
	"server_error": true, "rate_limit_exceeded": true, "service_unavailable": true, "internal_server_error": true,
	"429": true, "500": true, "502": true, "503": true, "504": true, "529": true,
}

func (a *openAIAnswer) choice(choice *openAIChoice) error {
	spoken := choice.Delta
	if spoken == nil {
		spoken = choice.Message
	}
	if spoken != nil {
		if err := a.spoken(spoken); err != nil {
			return err
		}
	}
	if choice.FinishReason == "" {
		return nil
	}
	a.stopped = true
	if a.stop != StopRefusal {
		a.stop = known(openAIStops, choice.FinishReason)
	}
	return nil
}

func (a *openAIAnswer) spoken(spoken *openAISpoken) error {
	text, err := openAIText(spoken.Content)
	if err != nil {
		return err
	}
	if spoken.Refusal != "" {
		a.stop = StopRefusal
	}
	if text += spoken.Refusal; text != "" {
		if err := a.emit(Delta{Kind: DeltaText, Text: text}); err != nil {
			return err
		}
	}
	for i := range spoken.ToolCalls {
		if err := a.call(&spoken.ToolCalls[i]); err != nil {
			return err
		}
	}
	return nil
}

// openAIText reads a text or a list of parts; parts of other kinds, such as a model's thinking, are no answer.
func openAIText(content json.RawMessage) (string, error) {
	if len(content) == 0 || string(content) == "null" {
		return "", nil
	}
	if content[0] != '[' {
		var text string
		if err := json.Unmarshal(content, &text); err != nil {
			return "", fmt.Errorf("read model answer: content: %w", err)
		}
		return text, nil
	}
	var parts []openAIPart
	if err := json.Unmarshal(content, &parts); err != nil {
		return "", fmt.Errorf("read model answer: content: %w", err)
	}
	var text strings.Builder
	for _, part := range parts {
		if part.Type == "text" {
			text.WriteString(part.Text)
		}
	}
	return text.String(), nil
}

// known translates a provider's word; one that nobody knows stays as it is.
func known(words map[string]string, word string) string {
	if ours, has := words[word]; has {
		return ours
	}
	return word
}
