package chat

import (
	"encoding/json"
	"mime"
	"path"
	"strings"

	"inbox/agents/chat"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// CompletionRequest is the body of POST /v1/chat/completions, as far as it means something here. Settings of a model are
// the agent's own business and are not read.
type CompletionRequest struct {
	Model         string              `json:"model"` // name of the agent
	Messages      []CompletionInput   `json:"messages"`
	Stream        bool                `json:"stream,omitempty"`
	StreamOptions CompletionStreaming `json:"stream_options,omitzero"`
	N             int                 `json:"n,omitempty"` // 1
}

// CompletionStreaming are the stream_options.
type CompletionStreaming struct {
	IncludeUsage bool `json:"include_usage,omitempty"`
}

// CompletionInput is one message of the conversation. The last one is the new message and must be the user's.
type CompletionInput struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content,omitempty"` // a string, or a list of parts
}

// completionPart is one part of a content.
type completionPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
	File struct {
		Name string `json:"filename"`
		Data string `json:"file_data"`
	} `json:"file"`
}

// Completion is an answer, or one chunk of a streamed one.
type Completion struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"` // chat.completion or chat.completion.chunk
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []CompletionChoice `json:"choices"`
	Usage   *CompletionUsage   `json:"usage,omitempty"`
}

// CompletionChoice is the one answer: Message when it is whole, Delta in a chunk.
type CompletionChoice struct {
	Index        int                `json:"index"`
	Message      *CompletionMessage `json:"message,omitempty"`
	Delta        *CompletionMessage `json:"delta,omitempty"`
	LogProbs     *struct{}          `json:"logprobs"`
	FinishReason *string            `json:"finish_reason"`
}

// CompletionMessage is the answer of the agent, or a piece of it.
type CompletionMessage struct {
	Role      string               `json:"role,omitempty"`
	Content   string               `json:"content"`
	ToolCalls []CompletionToolCall `json:"tool_calls,omitempty"` // of the agent itself; the client has nothing to do
}

// CompletionToolCall is a call of a tool that the agent made.
type CompletionToolCall struct {
	Index    *int   `json:"index,omitempty"` // in chunks
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"` // function
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// CompletionUsage is what the agent's models took; zero for agents without a model.
type CompletionUsage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
	Total      int64 `json:"total_tokens"`
}

func usageOf(steps []exchange.Event) CompletionUsage {
	spent := exchange.SpentBy(steps)
	if spent == nil {
		return CompletionUsage{}
	}
	return CompletionUsage{spent.Input, spent.Output, spent.Input + spent.Output}
}

// input makes the last message the new one, and the others what was said before. Instructions of the caller count as its
// words: the agent's own stand above them.
func (c *CompletionRequest) input(agent string) (chat.Input, error) {
	last := len(c.Messages) - 1
	switch {
	case last < 0:
		return chat.Input{}, fault.InField("messages", "must have at least one message")
	case c.Messages[last].Role != "user":
		return chat.Input{}, fault.InField("messages", "must end with a message of the user")
	case c.N > 1:
		return chat.Input{}, fault.InField("n", "must be 1: an agent has one answer")
	}
	input := chat.Input{Agent: agent, ClientContext: map[string]any{"source": chat.SourceREST, "client_name": "openai-api"}}
	for i, message := range c.Messages {
		text, files, err := message.read()
		if err != nil {
			return input, err
		}
		switch {
		case i == last:
			input.Message, input.Attachments = text, files
		case strings.TrimSpace(text) == "", message.Role == "tool", message.Role == "function":
		case message.Role == "assistant":
			input.History = append(input.History, chat.Line{Role: "assistant", Content: text})
		default:
			input.History = append(input.History, chat.Line{Role: "user", Content: text})
		}
	}
	if strings.TrimSpace(input.Message) == "" {
		return input, fault.InField("messages", "must end with a message that has text")
	}
	return input, nil
}

// read gives the text and the files of a message.
func (c *CompletionInput) read() (text string, files []any, err error) {
	if len(c.Content) == 0 || string(c.Content) == "null" || json.Unmarshal(c.Content, &text) == nil {
		return text, nil, nil
	}
	var parts []completionPart
	if err := json.Unmarshal(c.Content, &parts); err != nil {
		return "", nil, fault.InField("messages", "have a content that is neither text nor a list of parts")
	}
	var pieces []string
	for i := range parts {
		switch part := &parts[i]; part.Type {
		case "text", "refusal":
			pieces = append(pieces, part.Text)
		case "image_url":
			files = append(files, fileOf("", part.ImageURL.URL))
		case "file":
			files = append(files, fileOf(part.File.Name, part.File.Data))
		default:
			return "", nil, fault.InField("messages", "have a part of a type that is not supported: use text, image_url or file")
		}
	}
	return strings.Join(pieces, "\n"), files, nil
}

// fileOf reads a data URL (RFC 2397) or keeps another address.
func fileOf(name, address string) map[string]any {
	if rest, is := strings.CutPrefix(address, "data:"); is {
		mediaType, content, _ := strings.Cut(rest, ";base64,")
		return map[string]any{"name": name, "mimeType": mediaType, "bytes": content}
	}
	return map[string]any{"name": name, "mimeType": mime.TypeByExtension(path.Ext(address)), "uri": address}
}

// toolCalls are shown where the agent's operator wants it.
func (a *Adapter) toolCalls(turn exchange.TurnRecord) []CompletionToolCall {
	if turn.Response == nil || !a.options.ShowsTools(turn.Agent) {
		return nil
	}
	var list []CompletionToolCall
	for _, part := range turn.Response.Parts {
		if part.Kind == normalized.PartToolCall {
			call := CompletionToolCall{ID: part.ID, Type: "function"}
			call.Function.Name, call.Function.Arguments = part.Name, string(part.Args)
			list = append(list, call)
		}
	}
	return list
}
