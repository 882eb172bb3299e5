package chat

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// ResponseRequest is the body of POST /v1/responses. What the server does not read belongs to the agent, such as temperature.
type ResponseRequest struct {
	Model        string            `json:"model"` // name of the agent: echo, @echo or @echo@domain
	Input        json.RawMessage   `json:"input"` // a string, or a list of items: message, function_call, function_call_output, item_reference
	Instructions string            `json:"instructions,omitempty"`
	Previous     string            `json:"previous_response_id,omitempty"` // the newest response of a conversation that the server continues
	Stream       bool              `json:"stream,omitempty"`
	Store        *bool             `json:"store,omitempty"` // false: the response cannot be read or continued
	Tools        []ResponseTool    `json:"tools,omitempty"` // that the client executes
	ToolChoice   json.RawMessage   `json:"tool_choice,omitempty"`
	User         string            `json:"user,omitempty"`     // context for the agent; proves nothing
	Metadata     map[string]string `json:"metadata,omitempty"` // likewise; the response repeats it
	Text         ResponseTextWish  `json:"text,omitzero"`

	TopLogProbs  int             `json:"top_logprobs,omitempty"` // 0
	Include      []string        `json:"include,omitempty"`      // not message.output_text.logprobs
	Background   bool            `json:"background,omitempty"`   // false
	Conversation json.RawMessage `json:"conversation,omitempty"` // nothing: previous_response_id
	Prompt       json.RawMessage `json:"prompt,omitempty"`       // nothing
}

// ResponseTextWish says which form the text of the answer has to have.
type ResponseTextWish struct {
	Format json.RawMessage `json:"format,omitempty"` // of type text, json_object or json_schema
}

// refuse names the first member that would change the answer and that no agent here can follow.
func (r *ResponseRequest) refuse() error {
	switch {
	case r.Background:
		return unsupported("background", "must be false: cut the connection and read the response later")
	case given(r.Conversation):
		return unsupported("conversation", "must be left out: use previous_response_id")
	case given(r.Prompt):
		return unsupported("prompt", "must be left out: prompts are not kept here")
	case slices.Contains(r.Include, "message.output_text.logprobs"):
		return unsupported("include", "must not have message.output_text.logprobs: an agent has no probabilities")
	}
	return nil
}

// ResponseTool is a function that the client executes, see CompletionTool.
type ResponseTool struct {
	Type        string          `json:"type"` // function
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// Codes of refusals in OpenAI's form that no other surface has.
const (
	codeNoPrevious  = "previous_response_not_found"
	codeNotNewest   = "previous_response_not_newest"
	codeNoResponse  = "response_not_found"
	codeNoItem      = "item_not_found"
	codeUnsupported = "unsupported_parameter"
)

// responseNote is what a route keeps of a request for a response. It has no words of the client.
type responseNote struct {
	Previous string `json:"previous,omitempty"`
	Unlisted bool   `json:"unlisted,omitempty"` // store was false
}

// serveResponse is POST /v1/responses. A response is a completion with another form on the wire.
func (a *openAI) serveResponse(w http.ResponseWriter, r *http.Request) error {
	var asked ResponseRequest
	who, body, err := a.read(r, &asked)
	if err != nil {
		return err
	}
	c := completion{api: a, who: who, response: &response{asked: asked}}
	if c.agent, err = a.modelFor(who, asked.Model); err != nil {
		return err
	}
	if err := c.respond(r, body); err != nil {
		return c.response.inInput(err)
	}

	if c.request.Stream {
		return a.runs.stream(w, r, c.found, &responseFrames{completion: &c})
	}
	return a.answerResponse(w, r, &c)
}

// response is what a request for a response has beyond one for a completion.
type response struct {
	asked    ResponseRequest
	origins  []int               // of each message the item of input that it comes from; instructions have -1
	previous exchange.TurnRecord // of the conversation that it continues; zero = none
	referred map[string]string   // words of turns that items refer to
	words    int                 // bytes of the words that items refer to
}

// respond brings the request to the agent.
func (c *completion) respond(r *http.Request, body []byte) (err error) {
	if err := c.response.asked.refuse(); err != nil {
		return err
	}
	if c.format, err = c.formatOf(c.response.asked.Text.Format, "text.format"); err != nil {
		return err
	}
	if err := c.response.previousOf(r.Context(), c); err != nil {
		return err
	}
	if c.request, err = c.response.completion(r.Context(), c); err != nil {
		return err
	}
	if err := c.request.check(); err != nil {
		return err
	}
	if err := c.request.refuse(); err != nil {
		return err
	}
	if c.offered, err = c.offers(); err != nil {
		return err
	}
	if len(c.request.ending()) > 0 {
		return c.goOn(r.Context())
	}
	return c.ask(r, body)
}

// previousOf finds the turn of previous_response_id. One of another owner, of another agent, or that was not stored, is not found.
func (p *response) previousOf(ctx context.Context, c *completion) error {
	if p.asked.Previous == "" {
		return nil
	}

	turn, found, err := c.api.responseOf(ctx, reader{c.who, scopeSend, c.agent.Name}, p.asked.Previous)
	if err != nil {
		return err
	}
	if !found {
		return fault.InField("previous_response_id", "names none of your stored responses with this model").Coded(codeNoPrevious)
	}
	p.previous = turn
	return nil
}

// note is what the route keeps.
func (p *response) note() *responseNote {
	return &responseNote{Previous: p.asked.Previous, Unlisted: p.asked.Store != nil && !*p.asked.Store}
}

// The ids of responses and of their items contain the id of the turn.
const (
	responsePrefix = "resp_"
	messagePrefix  = "msg_"
	callItemPrefix = "fc_"
)

// responseID returns the id of the response for a run. Each result of a client tool begins a new response.
func responseID(found run) string { return itemID(responsePrefix, found) }

func itemID(prefix string, found run) string {
	id := prefix + strings.ReplaceAll(found.turn.ID, "-", "")
	if found.after > 0 {
		id += fmt.Sprintf("_%d", found.after)
	}
	return id
}

var itemForm = regexp.MustCompile(`^([0-9a-f]{32})(_[0-9]{1,18})?$`)

// turnOfItem reads the turn out of an id.
func turnOfItem(prefix, id string) (turnID string, ok bool) {
	rest, is := strings.CutPrefix(id, prefix)
	parts := itemForm.FindStringSubmatch(rest)
	if !is || parts == nil {
		return "", false
	}
	raw, err := hex.DecodeString(parts[1])
	if err != nil {
		return "", false
	}
	found, err := uuid.FromBytes(raw)
	return found.String(), err == nil
}

// responseOf finds the turn of a stored response of the caller. Guests have no stored responses, because nothing proves that two requests come from one guest.
func (a *openAI) responseOf(ctx context.Context, by reader, id string) (exchange.TurnRecord, bool, error) {
	turnID, is := turnOfItem(responsePrefix, id)
	if !is || by.who.guest() {
		return exchange.TurnRecord{}, false, nil
	}
	return a.storedTurn(ctx, by, turnID)
}

// reader is who wants a stored response, with the scope that a signed token needs for it.
type reader struct {
	who   caller
	scope string
	agent string // of the response; empty = any
}

// storedTurn finds a turn of the caller that has a stored response.
func (a *openAI) storedTurn(ctx context.Context, by reader, turnID string) (exchange.TurnRecord, bool, error) {
	turn, err := a.options.Turns.Turn(ctx, turnID)
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			err = nil
		}
		return turn, false, err
	}

	kept := routeOf(turn)
	agent, known := a.agent(turn.Agent)
	stored := kept.Chat && kept.Response != nil && !kept.Response.Unlisted
	found := stored && known && (by.agent == "" || by.agent == turn.Agent) && a.access.admitTo(by.scope, by.who, agent) == nil &&
		turn.Principal == a.access.sender(by.who, agent, "").Principal()
	return turn, found, nil
}

// serveStoredResponse serves GET /v1/responses/{response} from the stored turn.
func (a *openAI) serveStoredResponse(w http.ResponseWriter, r *http.Request) error {
	who, err := a.access.identify(r)
	if err != nil {
		return err
	}

	id := httpserver.Param(r, "response")
	turn, found, err := a.responseOf(r.Context(), reader{who: who, scope: scopeRead}, id)
	if err != nil {
		return err
	}
	if !found {
		return fault.New(fault.NotFound, "None of your stored responses has this id.").Coded(codeNoResponse)
	}

	agent, _ := a.agent(turn.Agent)
	c := completion{api: a, who: who, agent: agent, found: run{turn: turn, route: routeOf(turn)}, response: &response{}}
	spent, err := a.spent(r.Context(), turn.ID, 0)
	if err != nil {
		return err
	}
	whole := c.object(spent)
	whole.ID = id
	httpserver.WriteJSON(w, http.StatusOK, whole)
	return nil
}

// inInput names the member of the request for a response where a refusal names that of the completion made of it.
func (p *response) inInput(err error) error {
	wrong := fault.Of(err)
	rest, is := strings.CutPrefix(wrong.Field, "messages")
	if !is {
		return err
	}

	named := *wrong
	named.Field = "input"
	if index, behind, has := strings.Cut(strings.TrimPrefix(rest, "["), "]"); has {
		var at int
		if _, err := fmt.Sscanf(index, "%d", &at); err == nil && at < len(p.origins) {
			named.Field = "instructions"
			if p.origins[at] >= 0 {
				named.Field = fmt.Sprintf("input[%d]%s", p.origins[at], behind)
			}
		}
	}
	return &named
}

// responseItem is one item of input.
type responseItem struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// responsePart is one part of the content of an item.
type responsePart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Refusal  string          `json:"refusal"`
	ImageURL string          `json:"image_url"`
	Filename string          `json:"filename"`
	FileData string          `json:"file_data"`
	FileURL  string          `json:"file_url"`
	FileID   string          `json:"file_id"`
	Audio    json.RawMessage `json:"input_audio"`
}

// completion returns the request as one for a completion.
func (p *response) completion(ctx context.Context, c *completion) (made CompletionRequest, err error) {
	asked := &p.asked
	made = CompletionRequest{
		Model: asked.Model, Stream: asked.Stream, ToolChoice: asked.ToolChoice, User: asked.User, Metadata: asked.Metadata, TopLogProbs: asked.TopLogProbs,
	}
	for i, tool := range asked.Tools {
		if tool.Type != "function" {
			return made, unsupported(fmt.Sprintf("tools[%d].type", i), "must be function: the agent has tools of its own")
		}
		made.Tools = append(made.Tools, CompletionTool{tool.Type, CompletionToolFunction{tool.Name, tool.Description, tool.Parameters}})
	}

	add := func(origin int, message CompletionInput) {
		made.Messages, p.origins = append(made.Messages, message), append(p.origins, origin)
	}
	if asked.Instructions != "" {
		add(-1, CompletionInput{Role: instructing[0], Content: encode(asked.Instructions)})
	}

	var text string
	if json.Unmarshal(asked.Input, &text) == nil {
		add(0, CompletionInput{Role: roleUser, Content: asked.Input})
		return made, nil
	}
	var items []responseItem
	if err := json.Unmarshal(asked.Input, &items); err != nil || len(items) == 0 {
		return made, fault.InField("input", "must be a text or a list of items")
	}
	if len(items) > maxCompletionMessages {
		return made, fault.InField("input", fmt.Sprintf("has %d items, and the limit is %d", len(items), maxCompletionMessages))
	}

	for i := range items {
		message, some, err := p.message(ctx, c, &items[i], fmt.Sprintf("input[%d]", i))
		if err != nil {
			return made, err
		}
		if some {
			add(i, message)
		}
	}
	return made, nil
}

// message converts an item to a message. Items that carry nothing for the agent give none.
func (p *response) message(ctx context.Context, c *completion, item *responseItem, field string) (message CompletionInput, some bool, err error) {
	switch item.Type {
	case "", "message":
		message.Role = item.Role
		message.Content, err = contentOf(item.Content, field+".content")
	case "function_call":
		call := CompletionToolCall{ID: item.CallID, Type: "function", Function: CompletionFunction{item.Name, item.Arguments}}
		message.Role, message.ToolCalls = roleAssistant, []CompletionToolCall{call}
	case "function_call_output":
		message.Role, message.ToolCallID = roleTool, item.CallID
		message.Content, err = contentOf(item.Output, field+".output")
	case "item_reference":
		return p.refer(ctx, c, item.ID, field)
	case "reasoning": // of a model; no agent reads it
		return message, false, nil
	default:
		err = unsupported(field+".type", "must be message, function_call, function_call_output, item_reference or reasoning")
	}
	return message, true, err
}

// refer returns what an item_reference names: the words of a stored response of the caller with this agent. Calls need no words: their
// results name them. A reference is short and its words may be long, so they are counted before they are copied.
func (p *response) refer(ctx context.Context, c *completion, id, field string) (message CompletionInput, some bool, err error) {
	if strings.HasPrefix(id, callItemPrefix) {
		return message, false, nil
	}

	turnID, is := turnOfItem(messagePrefix, id)
	said, known := p.referred[turnID]
	if is && !known && !c.who.guest() {
		turn, found, err := c.api.storedTurn(ctx, reader{c.who, scopeSend, c.agent.Name}, turnID)
		if err != nil {
			return message, false, err
		}
		if known = found; known {
			if p.referred == nil {
				p.referred = map[string]string{}
			}
			said = c.api.said(turn)
			p.referred[turnID] = said
		}
	}
	if known {
		if p.words += len(said); p.words > maxToldBytes {
			return message, false, tooMuchText()
		}
		return CompletionInput{Role: roleAssistant, Content: encode(said)}, said != "", nil
	}
	return message, false, fault.InField(field+".id", "names no item of your stored responses with this model").Coded(codeNoItem)
}

// contentOf returns the content of an item, or the output of a call, as that of a message.
func contentOf(content json.RawMessage, field string) (json.RawMessage, error) {
	var parts []responsePart
	var text string
	if len(content) == 0 || string(content) == "null" || json.Unmarshal(content, &text) == nil {
		return content, nil
	}
	if err := json.Unmarshal(content, &parts); err != nil {
		return nil, fault.InField(field, "must be a text or a list of parts")
	}

	list := make([]map[string]any, len(parts))
	for i, part := range parts {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch part.Type {
		case "input_text", "output_text", "text":
			list[i] = map[string]any{"type": "text", "text": part.Text}
		case "refusal":
			list[i] = map[string]any{"type": "refusal", "refusal": part.Refusal}
		case "input_audio":
			list[i] = map[string]any{"type": "input_audio", "input_audio": part.Audio}
		case "input_image", "input_file":
			if part.FileID != "" {
				return nil, fault.InField(at, "names an uploaded file: files are not kept here, send file_data, file_url or image_url")
			}
			if part.Type == "input_image" {
				list[i] = map[string]any{"type": "image_url", "image_url": map[string]any{"url": part.ImageURL}}
				continue
			}
			data := part.FileData
			if data == "" {
				data = part.FileURL
			}
			list[i] = map[string]any{"type": "file", "file": map[string]any{"filename": part.Filename, "file_data": data}}
		default:
			return nil, fault.InField(at+".type", "must be input_text, input_image, input_file, input_audio, output_text or refusal")
		}
	}
	return encode(list), nil
}

// goOnFrom brings a message to the end of a stored conversation. A request that was sent before finds its run. The message is named by the one
// that it follows, so that of two requests at the same time one is stored and the other refused.
func (c *completion) goOnFrom(ctx context.Context, q question) error {
	last, err := c.response.newest(ctx, c, q.request)
	if err != nil {
		return err
	}
	if routeOf(last).Request == q.request && !unanswered(last) {
		c.found = run{turn: last, route: routeOf(last)}
		return nil
	}

	keyed := q.input.RunID != ""
	if !keyed && last.ID != "" {
		q.input.RunID = "after:" + last.ID
	}
	c.found, err = c.api.messages.accept(ctx, q, "")
	switch {
	case !keyed && (fault.Is(err, fault.Conflict) || err == nil && c.found.route.Request != q.request):
		return notNewest()
	case err != nil:
		return err
	}
	return c.sameRequest(q)
}

// maxUnanswered bounds the messages without an answer after a response that can be continued.
const maxUnanswered = 50

// newest returns the newest turn of the conversation. It refuses to continue from another place than the end, unless the request is a repeat
// of the one that did. Messages without an answer are passed over: a client that was told of a failure has the id of no later response.
func (p *response) newest(ctx context.Context, c *completion, digest string) (last exchange.TurnRecord, err error) {
	filter := exchange.TurnFilter{
		Agent: p.previous.Agent, Principal: p.previous.Principal, ThreadID: p.previous.ThreadID, ReceivedVia: normalized.ViaA2A, ByArrival: true, Limit: 1,
	}
	turns, err := c.api.options.Turns.Turns(ctx, filter)
	if err == nil && len(turns) > 0 && turns[0].ID != p.previous.ID && unanswered(turns[0]) {
		filter.Limit = maxUnanswered + 1
		turns, err = c.api.options.Turns.Turns(ctx, filter)
	}
	if err != nil || len(turns) == 0 {
		return last, err
	}

	for i, turn := range turns {
		if turn.ID == p.previous.ID || i == 0 && routeOf(turn).Request == digest {
			return turns[0], nil
		}
		if !unanswered(turn) {
			break
		}
	}
	return last, notNewest()
}

// unanswered reports whether a turn ended without an answer.
func unanswered(turn exchange.TurnRecord) bool {
	return slices.Contains([]string{exchange.StateFailed, exchange.StateRefused, exchange.StateCancelled}, turn.State)
}

func notNewest() error {
	return fault.InField("previous_response_id", "is not the newest response of its conversation: to branch off, send the conversation in input").Coded(codeNotNewest)
}

// unsupported refuses a member that would change the answer and that no agent here can follow.
func unsupported(field, rule string) error {
	return fault.InField(field, rule).Coded(codeUnsupported)
}
