package chat

import (
	"encoding/json"
	"fmt"
	"mime"
	"path"
	"slices"
	"strings"

	"inbox/adapters/chat/contract"
	"inbox/internal/fault"
)

// CompletionRequest is the body of POST /v1/chat/completions, as far as it means something here. Everything else that
// clients send is the agent's own business and not read: the settings of a model (temperature, max_tokens, stop, …), what a
// choice of tools forces, and the form of the answer.
type CompletionRequest struct {
	Model         string              `json:"model"` // name of the agent: echo, @echo or @echo@domain
	Messages      []CompletionInput   `json:"messages"`
	Stream        bool                `json:"stream,omitempty"`
	StreamOptions CompletionStreaming `json:"stream_options,omitzero"`
	N             *int                `json:"n,omitempty"`           // 1
	Tools         []CompletionTool    `json:"tools,omitempty"`       // that the client executes
	ToolChoice    json.RawMessage     `json:"tool_choice,omitempty"` // "none" = the client executes nothing
	User          string              `json:"user,omitempty"`        // context for the agent; proves nothing
	Metadata      map[string]string   `json:"metadata,omitempty"`    // likewise
}

// CompletionStreaming are the stream_options.
type CompletionStreaming struct {
	IncludeUsage bool `json:"include_usage,omitempty"`
}

// CompletionTool is a tool that the client executes. It counts when the agent's operator declared a client tool of this
// name that askers may execute; description and parameters are the operator's.
type CompletionTool struct {
	Type     string                 `json:"type"` // function
	Function CompletionToolFunction `json:"function"`
}

// CompletionToolFunction is the function of a CompletionTool.
type CompletionToolFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// CompletionInput is one message of the conversation. The last one is the new message, or they are the results of the
// tools that the answer before called.
type CompletionInput struct {
	Role       string               `json:"role"`              // system, developer, user, assistant or tool
	Content    json.RawMessage      `json:"content,omitempty"` // a string, or a list of parts: text, image_url, input_audio, file
	Name       string               `json:"name,omitempty"`
	ToolCalls  []CompletionToolCall `json:"tool_calls,omitempty"`   // of an assistant
	ToolCallID string               `json:"tool_call_id,omitempty"` // of a tool
}

// completionPart is one part of a content.
type completionPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL struct {
		URL string `json:"url"`
	} `json:"image_url"`
	Audio struct {
		Data   string `json:"data"`
		Format string `json:"format"`
	} `json:"input_audio"`
	File struct {
		Name string `json:"filename"`
		Data string `json:"file_data"`
		ID   string `json:"file_id"`
	} `json:"file"`
}

// Bounds of a request. What a client says was said before is kept with every turn.
const (
	maxCompletionBytes = 8 << 20                // pictures stand in it
	maxToldBytes       = contract.MaxInputBytes // of all texts of the conversation
)

// The roles of messages.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleTool      = "tool"
	roleFunction  = "function" // of older clients
)

var instructing = []string{"system", "developer"}

// ending returns the messages after the last one that is no result of a tool: the results that the client hands in.
func (c *CompletionRequest) ending() []CompletionInput {
	at := len(c.Messages)
	for at > 0 && c.Messages[at-1].Role == roleTool {
		at--
	}
	return c.Messages[at:]
}

// check refuses what no answer can be given to.
func (c *CompletionRequest) check() error {
	if len(c.Messages) == 0 {
		return fault.InField("messages", "must have at least one message")
	}
	if c.N != nil && *c.N != 1 {
		return fault.InField("n", "must be 1: an agent has one answer")
	}

	for i, message := range c.Messages {
		switch {
		case slices.Contains(instructing, message.Role):
		case slices.Contains([]string{roleUser, roleAssistant, roleTool, roleFunction}, message.Role):
		default:
			return fault.InField(fmt.Sprintf("messages[%d].role", i), "must be system, developer, user, assistant or tool")
		}
	}

	return nil
}

// input makes the last message the new one, and the others what was said before. Instructions of the caller count as its
// words: the agent's own stand above them.
func (c *CompletionRequest) input(agent string) (contract.Input, error) {
	last := len(c.Messages) - 1
	if role := c.Messages[last].Role; role == roleAssistant || role == roleFunction {
		return contract.Input{}, fault.InField("messages", "must end with a message of the user")
	}

	input := contract.Input{Agent: agent, ClientContext: c.context()}
	size := 0
	for i := range c.Messages {
		text, files, err := c.Messages[i].read(i)
		if err != nil {
			return input, err
		}
		if size += len(text); size > maxToldBytes {
			return input, fault.Newf(fault.TooLarge, "the texts of the messages are over %d MiB", maxToldBytes>>20)
		}

		if i == last {
			input.Message, input.Attachments = text, files
		} else if line := c.line(i, text); line.Content != "" {
			input.History = append(input.History, line)
		}
	}

	input.History = c.newest(input.History)
	if strings.TrimSpace(input.Message) == "" && len(input.Attachments) == 0 {
		return input, fault.InField("messages", "must end with a message that says something")
	}

	return input, nil
}

// context is what the client says about itself.
func (c *CompletionRequest) context() map[string]any {
	about := map[string]any{"source": contract.SourceREST, "client_name": "openai-api"}
	if c.User != "" {
		about["user"] = c.User
	}
	if len(c.Metadata) > 0 {
		about["metadata"] = c.Metadata
	}
	return about
}

// line is an earlier message as it is told to the agent. The result of a tool is the client's word, like everything else.
func (c *CompletionRequest) line(at int, text string) contract.Line {
	message := c.Messages[at]
	switch {
	case strings.TrimSpace(text) == "":
		return contract.Line{}
	case message.Role == roleAssistant:
		return contract.Line{Role: roleAssistant, Content: text}
	case message.Role == roleTool, message.Role == roleFunction:
		return contract.Line{Role: roleUser, Content: "Result of " + c.toolOf(at) + ": " + text}
	}
	return contract.Line{Role: roleUser, Content: text}
}

// toolOf names the tool of a result by the call that it answers.
func (c *CompletionRequest) toolOf(at int) string {
	result := c.Messages[at]
	for _, message := range slices.Backward(c.Messages[:at]) {
		for _, call := range message.ToolCalls {
			if call.ID != "" && call.ID == result.ToolCallID {
				return call.Function.Name
			}
		}
	}

	if result.Name != "" {
		return result.Name
	}
	return "a tool"
}

// newest keeps the instructions at the start and the newest of what follows, when there is more than is told.
func (c *CompletionRequest) newest(lines []contract.Line) []contract.Line {
	over := len(lines) - maxHistoryLines
	if over <= 0 {
		return lines
	}

	leading := 0
	for leading < len(c.Messages) && slices.Contains(instructing, c.Messages[leading].Role) {
		leading++
	}

	leading = min(leading, maxHistoryLines)
	return slices.Delete(lines, leading, leading+over)
}

// read returns the text and the files of a message.
func (c *CompletionInput) read(at int) (text string, files []any, err error) {
	if len(c.Content) == 0 || string(c.Content) == "null" || json.Unmarshal(c.Content, &text) == nil {
		return text, nil, nil
	}

	field := fmt.Sprintf("messages[%d].content", at)
	var parts []completionPart
	if err := json.Unmarshal(c.Content, &parts); err != nil {
		return "", nil, fault.InField(field, "must be a text or a list of parts")
	}

	var pieces []string
	for i := range parts {
		said, file, err := parts[i].read(fmt.Sprintf("%s[%d]", field, i))
		switch {
		case err != nil:
			return "", nil, err
		case file != nil:
			files = append(files, file)
		default:
			pieces = append(pieces, said)
		}
	}

	return strings.Join(pieces, "\n"), files, nil
}

// read returns the text of a part, or its file.
func (p *completionPart) read(field string) (text string, file map[string]any, err error) {
	switch {
	case p.Type == "text":
		return p.Text, nil, nil
	case p.Type == "refusal":
		return p.Refusal, nil, nil
	case p.Type == "image_url" && p.ImageURL.URL != "":
		return "", fileOf("", p.ImageURL.URL), nil
	case p.Type == "input_audio" && p.Audio.Data != "":
		return "", map[string]any{"mimeType": "audio/" + p.Audio.Format, "bytes": p.Audio.Data}, nil
	case p.Type == "file" && p.File.Data != "":
		return "", fileOf(p.File.Name, p.File.Data), nil
	case p.Type == "file" && p.File.ID != "":
		return "", nil, fault.InField(field, "names an uploaded file: files are not kept here, send file_data")
	}
	return "", nil, fault.InField(field, "must be a text, image_url, input_audio or file with its content")
}

// fileOf reads a data URL (RFC 2397), whose media type may have parameters, or keeps another address.
func fileOf(name, address string) map[string]any {
	if rest, is := strings.CutPrefix(address, "data:"); is {
		about, content, _ := strings.Cut(rest, ";base64,")
		mediaType, _, _ := strings.Cut(about, ";")
		return map[string]any{"name": name, "mimeType": mediaType, "bytes": content}
	}
	return map[string]any{"name": name, "mimeType": mime.TypeByExtension(path.Ext(address)), "uri": address}
}

// digest tells a repeat of the request from another one: the same conversation, however the client wrote it.
func (c *CompletionRequest) digest(agent string) string {
	said, err := json.Marshal(c.Messages)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return hash("chat completion", agent, string(said))
}
