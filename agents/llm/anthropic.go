package llm

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"inbox/exchange"
)

const (
	anthropicVersion = "2023-06-01"

	// DefaultMaxTokens bounds an answer where the API demands a bound and the operator set none.
	DefaultMaxTokens = 4096
)

// anthropic speaks the messages API.
type anthropic struct{ endpoint *endpoint }

func connectAnthropic(connection Connection) (Provider, error) {
	header := http.Header{"Anthropic-Version": {anthropicVersion}}
	if connection.APIKey != "" {
		header.Set("X-Api-Key", connection.APIKey)
	}

	suffix, models := "v1/messages", "v1/models"
	if strings.HasSuffix(connection.BaseURL, "/v1") {
		suffix, models = "messages", "models"
	}

	endpoint, err := connection.endpoint(suffix, models, header)
	if err != nil {
		return nil, err
	}
	return Retrying(&anthropic{endpoint}, connection.Retry), nil
}

// Reach implements Reacher.
func (a *anthropic) Reach(ctx context.Context) error { return a.endpoint.reach(ctx) }

// Probe implements Prober.
func (a *anthropic) Probe(ctx context.Context) error { return a.endpoint.probe(ctx) }

// Formats implements Formatter: this API holds answers to schemas only.
func (*anthropic) Formats(kind string) bool { return kind == exchange.FormatSchema }

// Stream implements Provider.
func (a *anthropic) Stream(ctx context.Context, request Request) iter.Seq2[Delta, error] {
	return a.endpoint.stream(ctx, anthropicBody(request), &anthropicAnswer{})
}

type anthropicRequest struct {
	Model       string             `json:"model"`
	MaxTokens   int                `json:"max_tokens"`
	System      []anthropicBlock   `json:"system,omitempty"`
	Messages    []anthropicMessage `json:"messages"`
	Tools       []anthropicTool    `json:"tools,omitempty"`
	ToolChoice  *anthropicChoice   `json:"tool_choice,omitempty"`
	Temperature *float64           `json:"temperature,omitempty"`
	Stream      bool               `json:"stream"`
	Output      *anthropicOutput   `json:"output_config,omitempty"`
}

type anthropicOutput struct {
	Format anthropicFormat `json:"format"`
}

type anthropicFormat struct {
	Type   string          `json:"type"`
	Schema json.RawMessage `json:"schema"`
}

type anthropicChoice struct {
	Type string `json:"type"`
}

type anthropicMessage struct {
	Role    string           `json:"role"`
	Content []anthropicBlock `json:"content"`
}

type anthropicBlock struct {
	Type         string           `json:"type"`
	Text         string           `json:"text,omitempty"`
	Source       *anthropicSource `json:"source,omitempty"`
	ID           string           `json:"id,omitempty"`
	Name         string           `json:"name,omitempty"`
	Input        json.RawMessage  `json:"input,omitempty"`
	ToolUseID    string           `json:"tool_use_id,omitempty"`
	Content      string           `json:"content,omitempty"`
	IsError      bool             `json:"is_error,omitempty"`
	CacheControl *anthropicChoice `json:"cache_control,omitempty"`
}

type anthropicSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type,omitempty"`
	Data      string `json:"data,omitempty"`
	URL       string `json:"url,omitempty"`
}

type anthropicTool struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	InputSchema map[string]any `json:"input_schema"`
}

// ephemeral marks the end of a prefix that the API may keep. Four are allowed; one is set after the system prompt,
// which covers the tools before it, and one after the history.
var ephemeral = &anthropicChoice{"ephemeral"}

const maxBreakpoints = 3 // in the messages

func anthropicBody(request Request) anthropicRequest {
	body := anthropicRequest{
		Model: request.Model, MaxTokens: request.MaxTokens, Temperature: request.Temperature, Stream: !request.Whole,
		Messages: []anthropicMessage{},
	}
	if body.MaxTokens == 0 {
		body.MaxTokens = DefaultMaxTokens
	}
	if request.Format != nil {
		body.Output = &anthropicOutput{anthropicFormat{request.Format.Kind, request.Format.Schema}}
	}
	if request.System != "" {
		body.System = []anthropicBlock{{Type: "text", Text: request.System, CacheControl: ephemeral}}
	}

	for _, tool := range request.Tools {
		body.Tools = append(body.Tools, anthropicTool{tool.Name, tool.Description, schema(tool.Parameters)})
	}

	if request.NoTools && len(body.Tools) > 0 {
		body.ToolChoice = &anthropicChoice{"none"}
	}

	breakpoints := maxBreakpoints
	for _, message := range request.Messages {
		content := anthropicContent(message)
		if message.CacheBreakpoint && breakpoints > 0 && len(content) > 0 {
			last := len(content)
			if message.CacheBlocks > 0 {
				last = min(last, message.CacheBlocks)
			}
			content[last-1].CacheControl = ephemeral
			breakpoints--
		}
		body.Messages = append(body.Messages, anthropicMessage{message.Role, content})
	}

	return body
}

func anthropicContent(message Message) []anthropicBlock {
	content := make([]anthropicBlock, 0, len(message.Blocks))
	for _, block := range message.Blocks {
		switch block.Kind {
		case BlockText:
			content = append(content, anthropicBlock{Type: "text", Text: block.Text})
		case BlockImage:
			content = append(content, anthropicBlock{Type: "image", Source: anthropicImage(block)})
		case BlockCall:
			content = append(content, anthropicBlock{Type: "tool_use", ID: block.ID, Name: block.Name, Input: arguments(block)})
		case BlockResult:
			content = append(content, anthropicBlock{
				Type: "tool_result", ToolUseID: block.ID, Content: block.Text, IsError: block.Failed,
			})
		}
	}

	return content
}

func anthropicImage(block Block) *anthropicSource {
	if block.URL != "" {
		return &anthropicSource{Type: "url", URL: block.URL}
	}
	return &anthropicSource{Type: "base64", MediaType: block.MediaType, Data: base64.StdEncoding.EncodeToString(block.Data)}
}

// anthropicAnswer reads one message, whole or in events.
type anthropicAnswer struct {
	emit   emitter
	calls  map[int]int    // content block → call
	input  map[int]string // input of a call that stood whole in the start of its block, until pieces come
	halves map[int]halves // content block → what its pieces left
	usage  Usage
	stop   string
}

type anthropicEvent struct {
	Type         string             `json:"type"`
	Index        int                `json:"index"`
	Message      *anthropicDocument `json:"message"`
	ContentBlock *anthropicSpoken   `json:"content_block"`
	Delta        struct {
		Type        string   `json:"type"`
		Text        wireText `json:"text"`
		PartialJSON wireText `json:"partial_json"`
		Thinking    string   `json:"thinking"`
		StopReason  string   `json:"stop_reason"`
	} `json:"delta"`
	Usage *anthropicUsage `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type anthropicDocument struct {
	Type       string            `json:"type"`
	Content    []anthropicSpoken `json:"content"`
	StopReason string            `json:"stop_reason"`
	Usage      *anthropicUsage   `json:"usage"`
	Error      json.RawMessage   `json:"error"`
}

type anthropicSpoken struct {
	Type  string          `json:"type"`
	Text  wireText        `json:"text"`
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`

	Thinking string `json:"thinking"`
	Data     string `json:"data"` // of a thought that is sealed
}

// anthropicUsage counts so far; what an event does not repeat stays.
type anthropicUsage struct {
	InputTokens   *int64 `json:"input_tokens"`
	OutputTokens  *int64 `json:"output_tokens"`
	CacheCreation *int64 `json:"cache_creation_input_tokens"`
	CacheRead     *int64 `json:"cache_read_input_tokens"`
}

var anthropicStops = map[string]string{
	"end_turn": StopEnd, "stop_sequence": StopEnd, "tool_use": StopToolCalls, "max_tokens": StopLength,
	"model_context_window_exceeded": StopLength, "refusal": StopRefusal,
}

func (a *anthropicAnswer) stream(events *eventReader, emit emitter) error {
	a.emit = emit
	for {
		event, err := events.next()
		if errors.Is(err, io.EOF) {
			return errStreamCut
		}
		if err != nil {
			return err
		}

		if len(bytes.TrimSpace(event.data)) == 0 { // keeps the stream alive
			continue
		}

		var read anthropicEvent
		if err := json.Unmarshal(event.data, &read); err != nil {
			return event.fault(fmt.Errorf("read model answer: %w", err))
		}

		if read.Type == "" {
			read.Type = event.name
		}
		if read.Type == "message_stop" {
			return a.end()
		}
		if err := a.event(&read); err != nil {
			return err
		}
	}
}

func (a *anthropicAnswer) event(event *anthropicEvent) error {
	switch event.Type {
	case "message_start":
		if event.Message != nil {
			return a.count(event.Message.Usage)
		}
	case "content_block_start":
		return a.start(event.Index, event.ContentBlock)
	case "content_block_delta":
		return a.grow(event)
	case "content_block_stop":
		return a.close(event.Index)
	case "message_delta":
		if event.Delta.StopReason != "" {
			a.stop = known(anthropicStops, event.Delta.StopReason)
		}
		return a.count(event.Usage)
	case "error":
		kind, message := readError(event.Error)
		return &refusal{kind: kind, message: message, repeat: passing[kind]}
	}
	return nil // pings and what newer versions add
}

func (a *anthropicAnswer) start(index int, block *anthropicSpoken) error {
	if block == nil {
		return nil
	}

	switch block.Type {
	case "text":
		return a.text(a.join(index, block.Text))
	case "tool_use":
		return a.call(index, block)
	}
	return a.thought(block.Thinking + block.Data) // thinking and server tools are not the answer
}

// thought counts what the model wrote for itself.
func (a *anthropicAnswer) thought(text string) error {
	if text == "" {
		return nil
	}
	return a.emit(Delta{Kind: DeltaThought, Text: text})
}

// join returns the next text of a block, with the half of a character that the one before left.
func (a *anthropicAnswer) join(index int, next wireText) string {
	left := a.halves[index]
	text := left.join(next)
	if left.high == 0 {
		delete(a.halves, index)
		return text
	}
	if a.halves == nil {
		a.halves = map[int]halves{}
	}
	a.halves[index] = left
	return text
}

func (a *anthropicAnswer) text(text string) error {
	if text == "" {
		return nil
	}
	return a.emit(Delta{Kind: DeltaText, Text: text})
}

func (a *anthropicAnswer) call(index int, block *anthropicSpoken) error {
	if a.calls == nil {
		a.calls, a.input = map[int]int{}, map[int]string{}
	}
	if _, again := a.calls[index]; again || len(a.calls) >= maxWireCalls {
		return fmt.Errorf("the model calls a tool twice in one block, or more than %d tools at once", maxWireCalls)
	}

	a.calls[index] = len(a.calls)
	if input := string(block.Input); input != "" && input != "null" && input != "{}" {
		a.input[index] = input
	}
	return a.emit(Delta{Kind: DeltaToolCall, Index: a.calls[index], ID: block.ID, Name: block.Name})
}

func (a *anthropicAnswer) grow(event *anthropicEvent) error {
	switch event.Delta.Type {
	case "text_delta":
		return a.text(a.join(event.Index, event.Delta.Text))
	case "thinking_delta":
		return a.thought(event.Delta.Thinking)
	case "input_json_delta":
		call, known := a.calls[event.Index]
		text := a.join(event.Index, event.Delta.PartialJSON)
		if !known {
			return a.thought(text)
		}
		if text == "" {
			return nil
		}
		delete(a.input, event.Index)
		return a.emit(Delta{Kind: DeltaArguments, Index: call, Text: text})
	}
	return nil
}

// close hands on an input that came whole, and the half of a character that came without the other one.
func (a *anthropicAnswer) close(index int) error {
	left := a.halves[index]
	delete(a.halves, index)
	if text := left.rest(); text != "" {
		if call, is := a.calls[index]; is {
			return a.emit(Delta{Kind: DeltaArguments, Index: call, Text: text})
		}
		return a.text(text)
	}
	input, whole := a.input[index]
	if !whole {
		return nil
	}
	delete(a.input, index)
	return a.emit(Delta{Kind: DeltaArguments, Index: a.calls[index], Text: input})
}

// count adds up what the API counts apart: input_tokens are those outside the cache.
func (a *anthropicAnswer) count(usage *anthropicUsage) error {
	if usage == nil {
		return nil
	}

	fresh := a.usage.Input - a.usage.CacheRead - a.usage.CacheWrite
	for _, counter := range []struct {
		into *int64
		from *int64
	}{
		{&fresh, usage.InputTokens}, {&a.usage.Output, usage.OutputTokens},
		{&a.usage.CacheWrite, usage.CacheCreation}, {&a.usage.CacheRead, usage.CacheRead},
	} {
		if counter.from != nil {
			*counter.into = *counter.from
		}
	}

	a.usage.Input = fresh + a.usage.CacheRead + a.usage.CacheWrite
	return a.emit(Delta{Kind: DeltaUsage, Usage: a.usage})
}

func (a *anthropicAnswer) end() error {
	if a.stop == "" {
		return errStreamCut
	}
	return a.emit(Delta{Kind: DeltaStop, Stop: a.stop})
}

func (a *anthropicAnswer) document(data []byte, emit emitter) error {
	a.emit = emit
	var document anthropicDocument
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\ufeff")), &document); err != nil {
		return fmt.Errorf("read model answer: %w", err)
	}
	if document.Type == "error" {
		kind, message := readError(document.Error)
		return &refusal{kind: kind, message: message, repeat: passing[kind]}
	}

	for index := range document.Content {
		if err := a.start(index, &document.Content[index]); err != nil {
			return err
		}
		if err := a.close(index); err != nil {
			return err
		}
	}

	if err := a.count(document.Usage); err != nil {
		return err
	}

	if document.StopReason != "" {
		a.stop = known(anthropicStops, document.StopReason)
	}

	return a.end()
}
