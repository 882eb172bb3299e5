package llm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"

	"inbox/exchange"
)

// openAI speaks chat completions. The prompt cache of this API works by itself, so breakpoints are not sent.
type openAI struct {
	endpoint *endpoint
	vendor   bool // api.openai.com itself, whose newer models know max_completion_tokens only; others know max_tokens
}

func connectOpenAI(connection Connection) (Provider, error) {
	header := http.Header{}
	if connection.APIKey != "" {
		header.Set("Authorization", "Bearer "+connection.APIKey)
	}

	endpoint, err := connection.endpoint("chat/completions", "models", header)
	if err != nil {
		return nil, err
	}

	target, err := url.Parse(connection.BaseURL)
	vendor := err == nil && target.Hostname() == "api.openai.com"
	return Retrying(&openAI{endpoint, vendor}, connection.Retry), nil
}

// Reach implements Reacher.
func (o *openAI) Reach(ctx context.Context) error { return o.endpoint.reach(ctx) }

// Probe implements Prober.
func (o *openAI) Probe(ctx context.Context) error { return o.endpoint.probe(ctx) }

// Formats implements Formatter.
func (*openAI) Formats(kind string) bool {
	return kind == exchange.FormatObject || kind == exchange.FormatSchema
}

// Stream implements Provider.
func (o *openAI) Stream(ctx context.Context, request Request) iter.Seq2[Delta, error] {
	return o.endpoint.stream(ctx, o.body(request), &openAIAnswer{})
}

type openAIRequest struct {
	Model               string          `json:"model"`
	Messages            []openAIMessage `json:"messages"`
	Tools               []openAITool    `json:"tools,omitempty"`
	ToolChoice          string          `json:"tool_choice,omitempty"`
	MaxTokens           int             `json:"max_tokens,omitempty"`
	MaxCompletionTokens int             `json:"max_completion_tokens,omitempty"`
	Temperature         *float64        `json:"temperature,omitempty"`
	Stream              bool            `json:"stream"`
	StreamOptions       *openAIStream   `json:"stream_options,omitempty"`
	ResponseFormat      *openAIFormat   `json:"response_format,omitempty"`
}

type openAIFormat struct {
	Type   string        `json:"type"`
	Schema *openAISchema `json:"json_schema,omitempty"`
}

type openAISchema struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`
	Strict      bool            `json:"strict"`
}

func openAIFormatOf(format *exchange.Format) *openAIFormat {
	switch {
	case format == nil:
		return nil
	case format.Kind == exchange.FormatObject:
		return &openAIFormat{Type: format.Kind}
	}
	return &openAIFormat{format.Kind, &openAISchema{formatName(format), format.Description, format.Schema, format.Strict}}
}

type openAIStream struct {
	IncludeUsage bool `json:"include_usage"`
}

type openAIMessage struct {
	Role       string       `json:"role"`
	Content    any          `json:"content"` // string, []openAIPart or null
	ToolCalls  []openAICall `json:"tool_calls,omitempty"`
	ToolCallID string       `json:"tool_call_id,omitempty"`
}

type openAIPart struct {
	Type     string       `json:"type"`
	Text     string       `json:"text,omitempty"`
	ImageURL *openAIImage `json:"image_url,omitempty"`
}

type openAIImage struct {
	URL string `json:"url"`
}

type openAICall struct {
	ID       string         `json:"id"`
	Type     string         `json:"type"`
	Function openAIFunction `json:"function"`
}

type openAIFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON text
}

type openAITool struct {
	Type     string             `json:"type"`
	Function openAIToolFunction `json:"function"`
}

type openAIToolFunction struct {
	Name        string         `json:"name"`
	Description string         `json:"description,omitempty"`
	Parameters  map[string]any `json:"parameters"`
}

func (o *openAI) body(request Request) openAIRequest {
	body := openAIRequest{Model: request.Model, Temperature: request.Temperature, Stream: !request.Whole, ResponseFormat: openAIFormatOf(request.Format)}
	if body.Stream {
		body.StreamOptions = &openAIStream{IncludeUsage: true}
	}

	if o.vendor {
		body.MaxCompletionTokens = request.MaxTokens
	} else {
		body.MaxTokens = request.MaxTokens
	}

	if request.System != "" {
		body.Messages = append(body.Messages, openAIMessage{Role: "system", Content: request.System})
	}

	for _, message := range request.Messages {
		body.Messages = append(body.Messages, openAIMessages(message)...)
	}

	for _, tool := range request.Tools {
		body.Tools = append(body.Tools, openAITool{"function", openAIToolFunction{tool.Name, tool.Description, schema(tool.Parameters)}})
	}

	if request.NoTools && len(body.Tools) > 0 {
		body.ToolChoice = "none"
	}

	return body
}

// openAIMessages splits a user's turn: each result of a tool is a message of its own here, before what was said.
func openAIMessages(message Message) []openAIMessage {
	if message.Role == RoleAssistant {
		return []openAIMessage{openAIAssistant(message)}
	}

	var messages []openAIMessage
	var parts []openAIPart
	for _, block := range message.Blocks {
		switch block.Kind {
		case BlockResult:
			messages = append(messages, openAIMessage{Role: "tool", ToolCallID: block.ID, Content: block.Text})
		case BlockText:
			parts = append(parts, openAIPart{Type: "text", Text: block.Text})
		case BlockImage:
			parts = append(parts, openAIPart{Type: "image_url", ImageURL: &openAIImage{imageURL(block)}})
		}
	}

	switch {
	case len(parts) == 1 && parts[0].Type == "text": // the only form that every server understands
		messages = append(messages, openAIMessage{Role: RoleUser, Content: parts[0].Text})
	case len(parts) > 0:
		messages = append(messages, openAIMessage{Role: RoleUser, Content: parts})
	}

	return messages
}

func openAIAssistant(message Message) openAIMessage {
	out := openAIMessage{Role: RoleAssistant}
	text := ""
	for _, block := range message.Blocks {
		switch block.Kind {
		case BlockText:
			if text != "" {
				text += "\n\n"
			}
			text += block.Text
		case BlockCall:
			out.ToolCalls = append(out.ToolCalls, openAICall{block.ID, "function", openAIFunction{block.Name, string(arguments(block))}})
		}
	}

	if text != "" || len(out.ToolCalls) == 0 {
		out.Content = text
	}

	return out
}

func imageURL(block Block) string {
	if block.URL != "" {
		return block.URL
	}
	return "data:" + block.MediaType + ";base64," + base64.StdEncoding.EncodeToString(block.Data)
}

// arguments returns the arguments of a call as an object, which both APIs demand.
func arguments(block Block) json.RawMessage {
	if len(block.Arguments) == 0 {
		return json.RawMessage("{}")
	}
	return block.Arguments
}

// schema returns the parameters as the JSON Schema of an object, which both APIs demand.
func schema(parameters map[string]any) map[string]any {
	if parameters["type"] == "object" && parameters["properties"] != nil {
		return parameters
	}
	whole := map[string]any{"type": "object", "properties": map[string]any{}}
	maps.Copy(whole, parameters)
	whole["type"] = "object"
	return whole
}

// openAIAnswer reads one chat completion, whole or in chunks.
type openAIAnswer struct {
	emit    emitter
	calls   wireCalls
	halves  halves // of the text
	stop    string
	stopped bool
	spoke   bool // a text or a call has begun
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
	Refusal   wireText         `json:"refusal"`
	ToolCalls []openAICallPart `json:"tool_calls"`
	Thought   json.RawMessage  `json:"reasoning_content"` // what a model thinks; some servers have one name for it, some the other, some both
	Reasoning json.RawMessage  `json:"reasoning"`
}

// thought returns what the model wrote for itself, as JSON.
func (s *openAISpoken) thought() string {
	thought := string(s.Thought)
	if len(thought) < len(s.Reasoning) {
		thought = string(s.Reasoning)
	}
	if thought == `""` || thought == "null" {
		return ""
	}
	return thought
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
		data := bytes.TrimSpace(event.data)
		if len(data) == 0 { // keeps the stream alive, as some servers do it
			continue
		}
		if string(data) == "[DONE]" {
			return a.whole()
		}
		if err := a.chunk(event.data); err != nil {
			return event.fault(err)
		}
	}
}

// whole ends an answer of which the server says that it is all: some name no reason for the end then.
func (a *openAIAnswer) whole() error {
	if !a.stopped && a.spoke {
		a.stopped, a.stop = true, cmp.Or(a.stop, StopEnd)
	}
	return a.end(io.EOF)
}

// end accepts the end of the stream once the model has said why it stopped: some servers leave [DONE] out.
func (a *openAIAnswer) end(err error) error {
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case !a.stopped:
		return errStreamCut
	}
	if err := a.rest(); err != nil {
		return err
	}

	if a.stop == StopEnd && len(a.calls.list) > 0 {
		a.stop = StopToolCalls
	}
	return a.emit(Delta{Kind: DeltaStop, Stop: a.stop})
}

// rest hands on the halves of characters that came without the other one.
func (a *openAIAnswer) rest() error {
	if text := a.halves.rest(); text != "" {
		if err := a.emit(Delta{Kind: DeltaText, Text: text}); err != nil {
			return err
		}
	}
	for i := range a.calls.list {
		if text := a.calls.list[i].halves.rest(); text != "" {
			if err := a.emit(Delta{Kind: DeltaArguments, Index: i, Text: text}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *openAIAnswer) document(data []byte, emit emitter) error {
	a.emit = emit
	if err := a.chunk(bytes.TrimPrefix(data, []byte("\ufeff"))); err != nil {
		return err
	}
	return a.whole()
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
	spoken, whole := choice.Delta, false
	if spoken == nil {
		spoken, whole = choice.Message, true
	}
	if spoken != nil {
		if err := a.spoken(spoken, whole); err != nil {
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

func (a *openAIAnswer) spoken(spoken *openAISpoken, whole bool) error {
	text, others, err := a.text(spoken.Content)
	if err != nil {
		return err
	}

	if spoken.Refusal != (wireText{}) {
		a.stop = StopRefusal
	}

	if thought := spoken.thought() + others; thought != "" {
		if err := a.emit(Delta{Kind: DeltaThought, Text: thought}); err != nil {
			return err
		}
	}

	if text += a.halves.join(spoken.Refusal); text != "" {
		a.spoke = true
		if err := a.emit(Delta{Kind: DeltaText, Text: text}); err != nil {
			return err
		}
	}

	for i := range spoken.ToolCalls {
		a.spoke = true
		if err := a.call(&spoken.ToolCalls[i], whole); err != nil {
			return err
		}
	}

	return nil
}

// text reads a text or a list of parts. Parts of other kinds, such as a model's thinking, are no answer; they are returned as JSON.
func (a *openAIAnswer) text(content json.RawMessage) (text, others string, err error) {
	if len(content) == 0 || string(content) == "null" {
		return "", "", nil
	}
	if content[0] != '[' {
		var whole wireText
		if err := json.Unmarshal(content, &whole); err != nil {
			return "", "", fmt.Errorf("read model answer: content: %w", err)
		}
		return a.halves.join(whole), "", nil
	}

	var parts []json.RawMessage
	if err := json.Unmarshal(content, &parts); err != nil {
		return "", "", fmt.Errorf("read model answer: content: %w", err)
	}

	for _, raw := range parts {
		var part struct {
			Type string   `json:"type"`
			Text wireText `json:"text"`
		}
		if err := json.Unmarshal(raw, &part); err != nil {
			return "", "", fmt.Errorf("read model answer: content: %w", err)
		}
		if part.Type == "text" {
			text += a.halves.join(part.Text)
		} else {
			others += string(raw)
		}
	}

	return text, others, nil
}

// known translates a provider's word; an unknown one stays as it is.
func known(words map[string]string, word string) string {
	if ours, has := words[word]; has {
		return ours
	}
	return word
}

func (a *openAIAnswer) call(part *openAICallPart, whole bool) error {
	piece, err := openAIArguments(part.Function.Arguments)
	if err != nil {
		return err
	}

	index, begins, err := a.calls.find(part, piece.text, whole)
	if err != nil {
		return err
	}
	if begins {
		if err := a.emit(Delta{Kind: DeltaToolCall, Index: index, ID: part.ID, Name: part.Function.Name}); err != nil {
			return err
		}
	}
	text := a.calls.list[index].halves.join(piece)
	if text == "" {
		return nil
	}

	a.calls.list[index].arguments.add(text)
	return a.emit(Delta{Kind: DeltaArguments, Index: index, Text: text})
}
