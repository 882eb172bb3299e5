package llm

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
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
	suffix := "v1/messages"
	if strings.HasSuffix(connection.BaseURL, "/v1") {
		suffix = "messages"
	}
	endpoint, err := connection.endpoint(suffix, header)
	if err != nil {
		return nil, err
	}
	return Retrying(&anthropic{endpoint}, connection.Retry), nil
}

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
			content[len(content)-1].CacheControl = ephemeral
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
