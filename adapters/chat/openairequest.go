package chat

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/filetype"
	"inbox/normalized"
)

// CompletionRequest is the body of POST /v1/chat/completions, as far as it means something here. Everything else that
// clients send is the agent's own business and not read: the settings of a model (temperature, max_tokens, seed, …). Members that would change
// what an answer consists of, and that no agent can follow, are read to be refused.
type CompletionRequest struct {
	Model         string              `json:"model"` // name of the agent: echo, @echo or @echo@domain
	Messages      []CompletionInput   `json:"messages"`
	Stream        bool                `json:"stream,omitempty"`
	StreamOptions CompletionStreaming `json:"stream_options,omitzero"`
	N             *int                `json:"n,omitempty"`           // 1
	Tools         []CompletionTool    `json:"tools,omitempty"`       // that the client executes
	ToolChoice    json.RawMessage     `json:"tool_choice,omitempty"` // auto, or none = the client executes nothing
	User          string              `json:"user,omitempty"`        // context for the agent; proves nothing
	Metadata      map[string]string   `json:"metadata,omitempty"`    // likewise

	ResponseFormat json.RawMessage `json:"response_format,omitempty"` // of type text, json_object or json_schema

	LogProbs     bool                       `json:"logprobs,omitempty"`     // false
	TopLogProbs  int                        `json:"top_logprobs,omitempty"` // 0
	Stop         json.RawMessage            `json:"stop,omitempty"`         // nothing
	Modalities   []string                   `json:"modalities,omitempty"`   // text
	Audio        json.RawMessage            `json:"audio,omitempty"`        // nothing
	LogitBias    map[string]json.RawMessage `json:"logit_bias,omitempty"`   // nothing
	Functions    []json.RawMessage          `json:"functions,omitempty"`    // nothing: tools
	FunctionCall json.RawMessage            `json:"function_call,omitempty"`
	WebSearch    json.RawMessage            `json:"web_search_options,omitempty"` // nothing
}

// given reports whether a member says something: it is neither left out nor null nor empty.
func given(member json.RawMessage) bool {
	return !slices.Contains([]string{"", "null", `""`, "[]", "{}"}, string(member))
}

// refuse names the first member that would change the answer and that no agent here can follow.
func (c *CompletionRequest) refuse() error {
	choice := strings.Trim(string(c.ToolChoice), `"`)
	for _, one := range []struct {
		wants  bool
		member string
		rule   string
	}{
		{c.LogProbs, "logprobs", "must be false: an agent has no probabilities"},
		{c.TopLogProbs != 0, "top_logprobs", "must be 0: an agent has no probabilities"},
		{given(c.Stop), "stop", "must be left out: an agent ends its answer itself"},
		{slices.ContainsFunc(c.Modalities, func(one string) bool { return one != "text" }), "modalities", "must be text"},
		{given(c.Audio), "audio", "must be left out: an agent answers with text and files"},
		{len(c.LogitBias) > 0, "logit_bias", "must be left out: an agent has no tokens of the client's choice"},
		{len(c.Functions) > 0, "functions", "must be sent as tools"},
		{given(c.FunctionCall), "function_call", "must be sent as tool_choice"},
		{given(c.WebSearch), "web_search_options", "must be left out: the agent has tools of its own"},
		{given(c.ToolChoice) && choice != "auto" && choice != "none", "tool_choice", "must be auto or none: the agent chooses its tools itself"},
	} {
		if one.wants {
			return unsupported(one.member, one.rule)
		}
	}
	return nil
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
	Refusal    string               `json:"refusal,omitempty"`      // of an assistant: in the place of its content
	ToolCalls  []CompletionToolCall `json:"tool_calls,omitempty"`   // of an assistant
	ToolCallID string               `json:"tool_call_id,omitempty"` // of a tool

	FunctionCall *CompletionFunction `json:"function_call,omitempty"` // of an assistant, from older clients
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
	maxCompletionBytes    = 8 << 20                // pictures stand in it
	maxCompletionMessages = exchange.MaxEarlier    // of the conversation, the new one included
	maxCompletionFiles    = 128                    // of the conversation: each may cost a write of its own
	maxToldBytes          = contract.MaxInputBytes // of all texts of the conversation
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
	if len(c.Messages) > maxCompletionMessages {
		return fault.InField("messages", fmt.Sprintf("has %d messages, and the limit is %d", len(c.Messages), maxCompletionMessages))
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

// conversation is the content of a request: the new message and the earlier ones.
type conversation struct {
	input   contract.Input // of the new message
	parts   []normalized.Part
	earlier []exchange.Earlier
	files   exchange.Contents // to which the parts refer

	limits        normalized.Limits
	texts, pieces int // bytes of text and number of files so far
}

// conversation splits the request into the new message, which is the last one, and the earlier messages. Instructions of the caller count as its
// words: the agent's own stand above them.
func (c *CompletionRequest) conversation(ctx context.Context, agent string, limits normalized.Limits) (said conversation, err error) {
	last := len(c.Messages) - 1
	if role := c.Messages[last].Role; role == roleAssistant || role == roleFunction {
		return said, fault.InField("messages", "must end with a message of the user")
	}

	said.limits, said.files = limits, exchange.Contents{}
	for i := range c.Messages[:last] {
		if err := said.tell(ctx, c, i); err != nil {
			return said, err
		}
	}

	if said.parts, err = said.read(ctx, c.Messages[last].Content, last, true); err != nil {
		return said, err
	}
	if len(said.parts) == 0 {
		return said, fault.InField("messages", "must end with a message that says something")
	}
	said.input = contract.Input{Agent: agent, Message: textsOf(said.parts), ClientContext: c.context()}
	return said, nil
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

// tell adds an earlier message as it is told to the agent. Calls and results of tools are the client's word, like everything else, and
// become text: no model can be asked to go on with them. A message that says nothing is left out.
func (s *conversation) tell(ctx context.Context, c *CompletionRequest, at int) error {
	message := &c.Messages[at]
	parts, err := s.read(ctx, message.Content, at, false)
	if err != nil {
		return err
	}

	var before, after []string
	role := normalized.RoleUser
	switch message.Role {
	case roleAssistant:
		role, after = normalized.RoleAssistant, message.more()
	case roleTool, roleFunction:
		before = []string{"Result of " + c.toolOf(at) + ": "}
	}
	for _, text := range slices.Concat(before, after) {
		s.texts += len(text)
	}
	if s.texts > maxToldBytes {
		return tooMuchText()
	}

	if len(before) > 0 {
		if len(parts) == 0 || parts[0].Kind != normalized.PartText {
			parts = slices.Insert(parts, 0, normalized.Text(""))
		}
		parts[0].Content = strings.TrimSpace(before[0] + parts[0].Content)
	}
	for _, text := range after {
		parts = append(parts, normalized.Text(text))
	}
	if len(parts) == 0 {
		return nil
	}

	if err := normalized.ValidateEarlier(parts, s.limits); err != nil {
		wrong := fault.Of(err)
		return inMessage(at, wrong.Kind, wrong.Field+" "+wrong.Public)
	}
	earlier := exchange.Earlier{Role: role, Parts: parts}
	if len(parts) == 1 && parts[0].Kind == normalized.PartText {
		earlier.Text, earlier.Parts = parts[0].Content, nil
	}
	s.earlier = append(s.earlier, earlier)
	return nil
}

// more is what an assistant said besides its content: the reason of a refusal, and calls of tools.
func (m *CompletionInput) more() (texts []string) {
	if text := strings.TrimSpace(m.Refusal); text != "" {
		texts = append(texts, text)
	}
	called := func(function CompletionFunction) {
		texts = append(texts, strings.TrimSpace("[called "+cmp.Or(function.Name, "a tool")+" "+function.Arguments)+"]")
	}
	for _, call := range m.ToolCalls {
		called(call.Function)
	}
	if m.FunctionCall != nil {
		called(*m.FunctionCall)
	}
	return texts
}

func tooMuchText() error {
	return &fault.Fault{Kind: fault.TooLarge, Field: "messages", Public: fmt.Sprintf("has over %d MiB of text, which is the limit", maxToldBytes>>20)}
}

func inMessage(at int, kind fault.Kind, what string) error {
	return &fault.Fault{Kind: kind, Field: fmt.Sprintf("messages[%d].content", at), Public: what}
}

// toolOf names the tool of a result by the call that it answers.
func (c *CompletionRequest) toolOf(at int) string {
	result := c.Messages[at]
	for _, message := range slices.Backward(c.Messages[:at]) {
		for _, call := range message.ToolCalls {
			if call.ID != "" && call.ID == result.ToolCallID && call.Function.Name != "" {
				return call.Function.Name
			}
		}
	}

	if result.Name != "" {
		return result.Name
	}
	return "a tool"
}

// read returns the texts and files of the content of a message, in their order. Texts without a file between them are one. Only the new
// message may have small files inline: a history has no inline bytes.
func (s *conversation) read(ctx context.Context, content json.RawMessage, at int, inline bool) (parts []normalized.Part, err error) {
	if len(content) == 0 || string(content) == "null" {
		return nil, nil
	}

	var pieces []completionPart
	var text string
	if json.Unmarshal(content, &text) == nil {
		pieces = []completionPart{{Type: "text", Text: text}}
	} else if err := json.Unmarshal(content, &pieces); err != nil {
		return nil, inMessage(at, fault.Malformed, "must be a text or a list of parts")
	}

	files, texts := 0, []string(nil) // texts since the last file; joined once, because a content may have very many
	speak := func() {
		if texts != nil {
			parts, texts = append(parts, normalized.Text(strings.Join(texts, "\n"))), nil
		}
	}
	for i := range pieces {
		field := fmt.Sprintf("messages[%d].content[%d]", at, i)
		said, file, err := pieces[i].read(field)
		if err != nil {
			return nil, err
		}
		if file == nil {
			if s.texts += len(said); s.texts > maxToldBytes {
				return nil, tooMuchText()
			}
			texts = append(texts, said)
			continue
		}

		if files++; files > maxAttachments {
			return nil, inMessage(at, fault.Malformed, fmt.Sprintf("has more than %d files, which is the limit for one message", maxAttachments))
		}
		if s.pieces++; s.pieces > maxCompletionFiles {
			return nil, fault.InField("messages", fmt.Sprintf("has more than %d files, which is the limit for one request", maxCompletionFiles))
		}
		part, err := s.file(ctx, file, inline)
		if err != nil {
			wrong := fault.Of(err)
			rule := strings.TrimSpace(strings.TrimPrefix(wrong.Field, "parts[0].bytes_ref.") + " " + wrong.Public)
			return nil, &fault.Fault{Kind: wrong.Kind, Field: field, Public: "has a file that cannot be read: " + rule, Cause: err}
		}
		speak()
		parts = append(parts, part)
	}
	speak()

	said := normalized.Message{Parts: parts}
	said.Clean()
	for i := range said.Parts {
		if part := &said.Parts[i]; part.Kind == normalized.PartText {
			part.Content = strings.TrimSpace(part.Content)
		}
	}
	return said.Parts, nil
}

// file returns the part of a file, as the contract allows it.
func (s *conversation) file(ctx context.Context, file map[string]any, inline bool) (normalized.Part, error) {
	part, content, err := filePart(file)
	switch {
	case err != nil:
		return part, err
	case inline && content != nil:
		part, err = part.Carrying(ctx, content, s.files)
	case content != nil:
		part.Size, part.BytesRef = int64(len(content)), normalized.Stored(s.files.Add(content))
	}
	if err != nil {
		return part, err //nolint:wrapcheck // of memory
	}
	return part, normalized.ValidateEarlier([]normalized.Part{part}, s.limits) //nolint:wrapcheck // a fault
}

// textsOf joins the texts of parts.
func textsOf(parts []normalized.Part) string {
	var texts []string
	for i := range parts {
		if parts[i].Kind == normalized.PartText {
			texts = append(texts, parts[i].Content)
		}
	}
	return strings.Join(texts, "\n")
}

// read returns the text of a part, or its file.
func (p *completionPart) read(field string) (text string, file map[string]any, err error) {
	switch {
	case p.Type == "text":
		return p.Text, nil, nil
	case p.Type == "refusal":
		return p.Refusal, nil, nil
	case p.Type == "image_url" && p.ImageURL.URL != "":
		return "", pictureOf(p.ImageURL.URL), nil
	case p.Type == "input_audio" && p.Audio.Data != "":
		return "", map[string]any{"mimeType": "audio/" + p.Audio.Format, "bytes": p.Audio.Data}, nil
	case p.Type == "file" && p.File.Data != "":
		return "", fileOf(p.File.Name, p.File.Data), nil
	case p.Type == "file" && p.File.ID != "":
		return "", nil, fault.InField(field, "names an uploaded file: files are not kept here, send file_data")
	}
	return "", nil, fault.InField(field, "must be a text, image_url, input_audio or file with its content")
}

// pictureOf is fileOf for a picture, which is one whatever its address looks like.
func pictureOf(address string) map[string]any {
	file := fileOf("", address)
	if file["mimeType"] == "" {
		file["mimeType"] = filetype.Picture
	}
	return file
}

// fileOf reads a data URL (RFC 2397), whose media type may have parameters, or keeps another address. What is neither is the content itself.
func fileOf(name, address string) map[string]any {
	const scheme = len("data:")
	if len(address) > scheme && strings.EqualFold(address[:scheme], "data:") {
		about, content, _ := strings.Cut(address[scheme:], ",")
		mediaType, _, _ := strings.Cut(about, ";")
		if !strings.HasSuffix(strings.ToLower(about), ";base64") {
			content = "" // only bytes are read
		}
		return map[string]any{"name": name, "mimeType": strings.ToLower(mediaType), "bytes": content}
	}

	if !strings.Contains(address, ":") { // no letter of base64
		return map[string]any{"name": name, "mimeType": filetype.ByName(name), "bytes": address}
	}
	at := address
	if read, err := url.Parse(address); err == nil { // without the query
		at = read.Path
	}
	return map[string]any{"name": name, "mimeType": filetype.ByName(at), "uri": address}
}

// digest tells a repeat of the request from another one: the same conversation, however the client wrote it.
func (c *completion) digest() string {
	said, err := json.Marshal(c.request.Messages)
	if err != nil {
		panic(err) // it was read from JSON
	}
	pieces := []string{"chat completion", c.agent.Name, string(said)}
	if c.response != nil {
		pieces = []string{"response", c.agent.Name, c.response.asked.Previous, string(said)}
	}
	if c.format != nil {
		pieces = append(pieces, string(encode(c.format)))
	}
	return hash(pieces...)
}
