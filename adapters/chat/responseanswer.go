package chat

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"inbox/adapters/chat/contract"
	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/internal/reference"
)

// ResponseObject is an answer in the form of OpenAI's responses.
type ResponseObject struct {
	ID                string              `json:"id"`
	Object            string              `json:"object"` // response
	CreatedAt         int64               `json:"created_at"`
	Status            string              `json:"status"` // queued, in_progress, completed, incomplete, failed or cancelled
	Error             *ResponseFailure    `json:"error"`  // of a failed one
	IncompleteDetails *ResponseIncomplete `json:"incomplete_details"`
	Instructions      *string             `json:"instructions"` // null in one that is read later
	Metadata          map[string]string   `json:"metadata"`
	Model             string              `json:"model"`
	Output            []ResponseItem      `json:"output"`
	ParallelToolCalls bool                `json:"parallel_tool_calls"` // false: the agent calls one tool of the client at a time
	Previous          *string             `json:"previous_response_id"`
	Store             bool                `json:"store"`
	Temperature       *float64            `json:"temperature"` // null: it belongs to the agent
	ToolChoice        any                 `json:"tool_choice"`
	Tools             []ResponseTool      `json:"tools"`
	TopP              *float64            `json:"top_p"` // null
	Usage             *ResponseUsage      `json:"usage"` // null before the end

	ExecutedTools []CompletionExecutedTool `json:"executed_tools,omitempty"` // that the agent called by itself
	Files         []ChatFile               `json:"files,omitempty"`          // to which the text links
}

// ResponseFailure says why a response failed.
type ResponseFailure struct {
	Code          string  `json:"code"`
	Message       string  `json:"message"`
	Type          string  `json:"type"`
	Param         *string `json:"param"`               // null
	Retryable     bool    `json:"retryable,omitempty"` // the same request may be answered later
	Documentation string  `json:"documentation,omitempty"`
}

// ResponseIncomplete says why a response is incomplete.
type ResponseIncomplete struct {
	Reason string `json:"reason"` // max_output_tokens
}

// ResponseItem is one item of the output: what the agent says, or a call of a tool that the client executes.
type ResponseItem struct {
	ID     string `json:"id"`
	Type   string `json:"type"`   // message or function_call
	Status string `json:"status"` // in_progress, completed or incomplete

	Role    string          `json:"role,omitempty"`    // of a message: assistant
	Content *[]ResponseText `json:"content,omitempty"` // of a message

	CallID    string  `json:"call_id,omitempty"`   // of a call
	Name      string  `json:"name,omitempty"`      // of a call
	Arguments *string `json:"arguments,omitempty"` // of a call: JSON
}

// ResponseText is the text of a message.
type ResponseText struct {
	Type        string               `json:"type"` // output_text
	Text        string               `json:"text"`
	Annotations []ResponseAnnotation `json:"annotations"`
}

// ResponseAnnotation is a source of a text.
type ResponseAnnotation struct {
	Type  string `json:"type"`        // url_citation
	Start int    `json:"start_index"` // in characters of the text
	End   int    `json:"end_index"`
	URL   string `json:"url"`
	Title string `json:"title"`
}

// ResponseUsage is what the agent's models took for the answer; zero for agents without a model.
type ResponseUsage struct {
	Input         int64                  `json:"input_tokens"`
	InputDetails  ResponseInputDetails   `json:"input_tokens_details"`
	Output        int64                  `json:"output_tokens"`
	OutputDetails ResponseOutputReasoned `json:"output_tokens_details"`
	Total         int64                  `json:"total_tokens"`
}

// ResponseInputDetails tells which of the input tokens came from a cache.
type ResponseInputDetails struct {
	Cached int64 `json:"cached_tokens"`
}

// ResponseOutputReasoned counts tokens that models wrote for themselves: 0, because they are not told apart.
type ResponseOutputReasoned struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// Values of the members of a response.
const (
	itemMessage      = "message"
	itemCall         = "function_call"
	itemInProgress   = "in_progress"
	itemCompleted    = "completed"
	itemIncomplete   = "incomplete"
	responseQueued   = "queued"
	responseFailed   = "failed"
	responseCanceled = "cancelled"
	maxOutputTokens  = "max_output_tokens"
)

// answerResponse waits for the answer and writes it.
func (a *openAI) answerResponse(w http.ResponseWriter, r *http.Request, c *completion) error {
	allowWait(w, a.options.WaitLimit)
	if err := c.await(r.Context()); err != nil {
		return err
	}
	if failure := a.completionError(c.found.turn); failure != nil && len(c.calls(c.found)) == 0 {
		failure.write(w)
		return nil
	}

	spent, err := a.spent(r.Context(), c.found.turn.ID, c.found.after)
	if err != nil {
		return err
	}
	httpserver.WriteJSON(w, http.StatusOK, c.object(spent))
	return nil
}

// head is a response without an outcome.
func (c *completion) head() ResponseObject {
	turn, asked := c.found.turn, &c.response.asked
	head := ResponseObject{
		ID: responseID(c.found), Object: "response", CreatedAt: turn.AcceptedAt.Unix(), Status: itemInProgress, Model: c.agent.Name,
		Output: []ResponseItem{}, Metadata: metadataOf(turn), ToolChoice: "auto", Tools: asked.Tools, Store: true,
	}
	if asked.Instructions != "" {
		head.Instructions = &asked.Instructions
	}
	if len(asked.ToolChoice) > 0 {
		head.ToolChoice = asked.ToolChoice
	}
	if head.Tools == nil {
		head.Tools = []ResponseTool{}
	}
	if kept := routeOf(turn).Response; kept != nil {
		head.Store = !kept.Unlisted
		if kept.Previous != "" {
			head.Previous = &kept.Previous
		}
	}
	return head
}

// metadataOf is what the client wrote about its request.
func metadataOf(turn exchange.TurnRecord) map[string]string {
	var about struct {
		Metadata map[string]string `json:"metadata"`
	}
	if profile := turn.Message.Sender.Profile; profile != nil {
		_ = json.Unmarshal(profile.Extensions[contextExtension], &about) // of another form where another client wrote it
	}
	if about.Metadata == nil {
		return map[string]string{}
	}
	return about.Metadata
}

// object returns the response object for an outcome.
func (c *completion) object(steps []exchange.Event) ResponseObject {
	whole, turn := c.head(), c.found.turn
	calls := c.calls(c.found)
	failure := c.api.completionError(turn)
	switch {
	case len(calls) > 0:
		whole.Status = itemCompleted
		for _, call := range calls {
			whole.Output = append(whole.Output, callItem(call, itemCompleted))
		}
	case turn.State == exchange.StateCancelled:
		whole.Status = responseCanceled
	case turn.State == exchange.StateAccepted:
		whole.Status = responseQueued
		return whole
	case failure != nil && failure.status == http.StatusGatewayTimeout:
		return whole
	case failure != nil:
		whole.Status, whole.Error = responseFailed, failure.detail.ofResponse()
	default:
		text := c.api.said(turn)
		message := ResponseItem{ID: itemID(messagePrefix, c.found), Type: itemMessage, Status: itemCompleted, Role: roleAssistant}
		whole.Status = itemCompleted
		if finishOf(turn) == finishLength {
			message.Status, whole.Status, whole.IncompleteDetails = itemIncomplete, itemIncomplete, &ResponseIncomplete{cmp.Or(turn.Response.Stopped(), maxOutputTokens)}
		}
		message.Content = &[]ResponseText{{"output_text", text, sourcesOf(text, turn)}}
		whole.Output = append(whole.Output, message)
		whole.ExecutedTools, whole.Files = c.executed(turn), c.api.renderer.filesOf(turn)
	}

	used := usageOf(steps)
	whole.Usage = &ResponseUsage{
		Input: used.Prompt, InputDetails: ResponseInputDetails{used.Details.Cached}, Output: used.Completion, Total: used.Total,
	}
	return whole
}

// ofResponse is the error as a response has it.
func (d OpenAIErrorDetail) ofResponse() *ResponseFailure {
	return &ResponseFailure{Code: d.Code, Message: d.Message, Type: d.Type, Retryable: d.Retryable, Documentation: reference.OfCode(d.Code)}
}

func callItem(call CompletionToolCall, status string) ResponseItem {
	item := ResponseItem{
		ID: callItemPrefix + strings.TrimPrefix(call.ID, callPrefix), Type: itemCall, Status: status, CallID: call.ID, Name: call.Function.Name, Arguments: new(string),
	}
	if status == itemCompleted {
		item.Arguments = &call.Function.Arguments
	}
	return item
}

func sourcesOf(text string, turn exchange.TurnRecord) []ResponseAnnotation {
	list := []ResponseAnnotation{}
	for _, one := range annotations(text, citationsOf(turn)) {
		list = append(list, ResponseAnnotation{one.Type, one.URLCitation.StartIndex, one.URLCitation.EndIndex, one.URLCitation.URL, one.URLCitation.Title})
	}
	return list
}

// ResponseEvent is one event of a streamed response; which members it has depends on its type.
type ResponseEvent struct {
	Type     string `json:"type"`
	Sequence int    `json:"sequence_number"`

	Response        *ResponseObject     `json:"response,omitempty"`
	OutputIndex     *int                `json:"output_index,omitempty"`
	ContentIndex    *int                `json:"content_index,omitempty"`
	AnnotationIndex *int                `json:"annotation_index,omitempty"`
	ItemID          string              `json:"item_id,omitempty"`
	Item            *ResponseItem       `json:"item,omitempty"`
	Part            *ResponseText       `json:"part,omitempty"`
	Delta           *string             `json:"delta,omitempty"`
	Text            *string             `json:"text,omitempty"`
	Name            string              `json:"name,omitempty"`
	Arguments       *string             `json:"arguments,omitempty"`
	Annotation      *ResponseAnnotation `json:"annotation,omitempty"`

	Code    string `json:"code,omitempty"` // of an event error
	Message string `json:"message,omitempty"`
}

// responseFrames are the events of a streamed response.
type responseFrames struct {
	*completion

	number int // of the next event
	items  int // that are complete
	open   bool
	sent   strings.Builder
}

// appends says that clients of this form join all pieces of text, and cannot be told to begin again.
func (*responseFrames) appends() {}

func (f *responseFrames) event(one ResponseEvent) event {
	one.Sequence = f.number
	f.number++
	return event{one.Type, one}
}

func (f *responseFrames) begin(found run) []event {
	f.found = found
	head := f.head()
	return []event{f.event(ResponseEvent{Type: "response.created", Response: &head}), f.event(ResponseEvent{Type: "response.in_progress", Response: &head})}
}

// message is the item of the text, with its events about the place.
func (f *responseFrames) message(one ResponseEvent) event {
	index := 0
	one.ItemID, one.OutputIndex, one.ContentIndex = itemID(messagePrefix, f.found), new(f.items), &index
	return f.event(one)
}

func (f *responseFrames) item(kind string, item ResponseItem) event {
	return f.event(ResponseEvent{Type: kind, OutputIndex: new(f.items), Item: &item})
}

// text returns the events of more text, and before the first of them those that begin the message.
func (f *responseFrames) text(more string) (list []event) {
	if !f.open {
		f.open = true
		list = append(list,
			f.item("response.output_item.added", ResponseItem{ID: itemID(messagePrefix, f.found), Type: itemMessage, Status: itemInProgress, Role: roleAssistant, Content: &[]ResponseText{}}),
			f.message(ResponseEvent{Type: "response.content_part.added", Part: &ResponseText{Type: "output_text", Annotations: []ResponseAnnotation{}}}))
	}
	if more != "" {
		f.sent.WriteString(more)
		list = append(list, f.message(ResponseEvent{Type: "response.output_text.delta", Delta: &more}))
	}
	return list
}

// close returns the events that end the message.
func (f *responseFrames) close(status string, sources []ResponseAnnotation) (list []event) {
	text := f.sent.String()
	for i := range sources {
		list = append(list, f.message(ResponseEvent{Type: "response.output_text.annotation.added", AnnotationIndex: &i, Annotation: &sources[i]}))
	}

	part := ResponseText{"output_text", text, sources}
	list = append(list, f.message(ResponseEvent{Type: "response.output_text.done", Text: &text}), f.message(ResponseEvent{Type: "response.content_part.done", Part: &part}),
		f.item("response.output_item.done", ResponseItem{
			ID: itemID(messagePrefix, f.found), Type: itemMessage, Status: status, Role: roleAssistant, Content: &[]ResponseText{part},
		}))
	f.open = false
	f.items++
	return list
}

func (f *responseFrames) delta(_ run, delta contract.Delta) []event {
	if delta.Kind != contract.DeltaContent {
		return nil
	}
	return f.text(delta.Text)
}

// over lets the stream go on where the run waits for a tool that the client did not offer.
func (f *responseFrames) over(found run) bool {
	return !exchange.GoesOnByItself(found.turn) || len(f.calls(found)) > 0
}

// end returns the events that complete the stream.
func (f *responseFrames) end(found run, steps []exchange.Event) (list []event) {
	f.found = found
	whole := f.object(steps)

	if calls := f.calls(found); len(calls) > 0 {
		var before []ResponseItem
		if f.open {
			before = []ResponseItem{f.spoken(itemCompleted, []ResponseAnnotation{})}
			list = f.close(itemCompleted, []ResponseAnnotation{})
		}
		for _, call := range calls {
			list = append(list, f.call(call)...)
		}
		whole.Output = append(before, whole.Output...)
		return append(list, f.event(ResponseEvent{Type: "response.completed", Response: &whole}))
	}
	if failure := f.api.completionError(found.turn); failure != nil {
		return f.fail(failure.detail, &whole)
	}

	rest, one := found.lacks(f.api.said(found.turn))
	if !one {
		return f.fail(restarted(), &whole)
	}
	list = f.text(rest)
	sources := sourcesOf(f.sent.String(), found.turn)
	status := whole.Output[0].Status
	whole.Output = []ResponseItem{f.spoken(status, sources)} // what the client has
	list = append(list, f.close(status, sources)...)
	return append(list, f.event(ResponseEvent{Type: "response." + whole.Status, Response: &whole}))
}

// spoken is the message as far as it was sent.
func (f *responseFrames) spoken(status string, sources []ResponseAnnotation) ResponseItem {
	return ResponseItem{
		ID: itemID(messagePrefix, f.found), Type: itemMessage, Status: status, Role: roleAssistant, Content: &[]ResponseText{{"output_text", f.sent.String(), sources}},
	}
}

func (f *responseFrames) call(call CompletionToolCall) []event {
	item := callItem(call, itemCompleted)
	place := func(one ResponseEvent) event {
		one.ItemID, one.OutputIndex = item.ID, new(f.items)
		return f.event(one)
	}
	list := []event{
		f.item("response.output_item.added", callItem(call, itemInProgress)),
		place(ResponseEvent{Type: "response.function_call_arguments.delta", Delta: item.Arguments}),
		place(ResponseEvent{Type: "response.function_call_arguments.done", Name: item.Name, Arguments: item.Arguments}),
		f.item("response.output_item.done", item),
	}
	f.items++
	return list
}

// fail ends the stream with an error.
func (f *responseFrames) fail(detail OpenAIErrorDetail, whole *ResponseObject) []event {
	whole.Status, whole.Error, whole.Output = responseFailed, detail.ofResponse(), []ResponseItem{}
	return []event{f.event(ResponseEvent{Type: "response.failed", Response: whole})}
}

// broken tells a reader that is still there that the server has to stop: without it the answer would look whole.
func (f *responseFrames) broken(run, string) []event {
	return []event{f.event(ResponseEvent{Type: "error", Code: "stream_cut", Message: sayCut})}
}
