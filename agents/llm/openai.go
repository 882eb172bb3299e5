package llm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"net/url"
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
	endpoint, err := connection.endpoint("chat/completions", header)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(connection.BaseURL)
	vendor := err == nil && target.Hostname() == "api.openai.com"
	return Retrying(&openAI{endpoint, vendor}, connection.Retry), nil
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
	body := openAIRequest{Model: request.Model, Temperature: request.Temperature, Stream: !request.Whole}
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

// arguments gives the arguments of a call as an object, which both APIs demand.
func arguments(block Block) json.RawMessage {
	if len(block.Arguments) == 0 {
		return json.RawMessage("{}")
	}
	return block.Arguments
}

// schema gives the parameters as the JSON Schema of an object, which both APIs demand.
func schema(parameters map[string]any) map[string]any {
	if parameters["type"] == "object" && parameters["properties"] != nil {
		return parameters
	}
	whole := map[string]any{"type": "object", "properties": map[string]any{}}
	maps.Copy(whole, parameters)
	whole["type"] = "object"
	return whole
}
