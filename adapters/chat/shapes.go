package chat

import (
	"encoding/json"
	"net/http"

	"inbox/internal/openapi"
)

// rpcRequest and rpcResponse are JSON-RPC as the description of the API shows it.
type rpcRequest struct {
	JSONRPC        string    `json:"jsonrpc"` // 2.0
	ID             any       `json:"id"`      // string or integer
	Method         string    `json:"method"`  // message/send, tasks/send, message/stream, tasks/sendSubscribe
	Params         rpcParams `json:"params"`
	TokenStreaming *bool     `json:"tokenStreaming,omitempty"`
}

type rpcParams struct {
	ID        string         `json:"id,omitempty"`
	SessionID string         `json:"sessionId,omitempty"`
	Message   rpcMessage     `json:"message"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

type rpcMessage struct {
	Role      string    `json:"role"`
	Parts     []rpcPart `json:"parts"`
	MessageID string    `json:"messageId,omitempty"`
	Kind      string    `json:"kind,omitempty"`
}

type rpcPart struct {
	Type        string         `json:"type"` // text, file or data
	Text        string         `json:"text,omitempty"`
	ContentType string         `json:"contentType,omitempty"`
	File        map[string]any `json:"file,omitempty"`
	Data        map[string]any `json:"data,omitempty"`
}

type rpcResponse struct {
	JSONRPC string    `json:"jsonrpc"`
	ID      any       `json:"id"`
	Result  *rpcTask  `json:"result,omitempty"`
	Error   *rpcError `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

type rpcTask struct {
	ID        string         `json:"id"`
	SessionID string         `json:"sessionId,omitempty"`
	Status    rpcStatus      `json:"status"`
	Metadata  map[string]any `json:"metadata,omitempty"`
}

type rpcStatus struct {
	State   string     `json:"state"` // completed or input-required
	Message rpcMessage `json:"message"`
}

// responseEvents describes the events of a streamed response.
func responseEvents() (list []openapi.Event) {
	for _, one := range [][2]string{
		{"response.created", "the message is kept"}, {"response.in_progress", "the agent works"},
		{"response.output_item.added", "an item of the output begins: what the agent says, or a call of a tool of the client"},
		{"response.content_part.added", "the text of a message begins"}, {"response.output_text.delta", "more of the text"},
		{"response.output_text.annotation.added", "a source of the text"}, {"response.output_text.done", "the whole text"},
		{"response.content_part.done", "the text with its sources"}, {"response.function_call_arguments.delta", "the arguments of a call"},
		{"response.function_call_arguments.done", "the arguments once more"}, {"response.output_item.done", "the whole item"},
		{"response.completed", "the whole response"}, {"response.incomplete", "the same, of a model that reached its limit"},
		{"response.failed", "the response with its error"}, {"error", "the server ends the stream; the run goes on"},
	} {
		list = append(list, openapi.Event{Name: one[0], Summary: one[1], Data: ResponseEvent{}})
	}
	return list
}

// completionExample is what clients of OpenAI's form send.
func completionExample() CompletionRequest {
	return CompletionRequest{Model: "echo", Messages: []CompletionInput{{Role: roleUser, Content: json.RawMessage(`"Hello"`)}}}
}

// Operations describe the endpoints.
func Operations() []openapi.Operation {
	const tag, openAI = "chat", "openai"
	said := rpcParams{Message: rpcMessage{Role: roleUser, Parts: []rpcPart{{Type: "text", Text: "Hello"}}}}
	growing := []openapi.Event{
		{Name: "start", Summary: "the message is kept", Data: ChatStart{}}, {Name: "delta", Summary: "more of the answer", Data: ChatText{}},
		{Name: "tool", Summary: "the agent calls a tool, and then how that ended", Data: ChatTool{}}, {Name: "reply", Summary: "the whole answer", Data: ChatAnswer{}},
	}

	described := []openapi.Operation{
		{
			Method: "POST", Path: "/v1/agent/{agent}", Tag: tag, Summary: "JSON-RPC chat", Security: openapi.Optional, Headers: []string{"Last-Event-ID"},
			Request: rpcRequest{JSONRPC: "2.0", ID: 1, Method: "message/send", Params: said}, Response: rpcResponse{}, Stream: true,
			Events: []openapi.Event{{Summary: "notifications message/delta, and in the end the response", Data: rpcFrame{}}},
		},
		{
			Method: "POST", Path: "/v1/chat", Tag: tag, Summary: "Say something", Security: openapi.Optional, Request: ChatRequest{Agent: "echo", Message: "Hello"},
			Response: ChatAnswer{}, Also: []int{http.StatusAccepted}, Stream: true, Events: growing, Errors: []int{http.StatusNotFound, http.StatusConflict},
		},
		{
			Method: "POST", Path: "/api/v1/agents/{agent}/chat", Tag: "operator", Summary: "Talk to an agent as the operator", Security: "operator",
			Headers: []string{"Last-Event-ID"}, Request: OperatorChat{Message: "Hello", Continue: true},
			Response: ChatAnswer{}, Also: []int{http.StatusAccepted}, Stream: true, Events: growing, Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusGone},
		},
		{
			Method: "GET", Path: "/v1/chat", Tag: tag, Summary: "Read a session, or the rest of an answer", Security: openapi.Optional,
			Query: []string{"agent!", "wait"}, Headers: []string{sessionHeader, "Last-Event-ID"}, Response: ChatSession{}, Stream: true, Events: growing, Errors: []int{http.StatusNotFound},
		},
		{
			Method: "DELETE", Path: "/v1/chat", Tag: tag, Summary: "Delete a session with what was said in it", Security: openapi.Optional,
			Query: []string{"agent!"}, Headers: []string{sessionHeader}, Status: http.StatusNoContent, Errors: []int{http.StatusNotFound},
		},
		{
			Method: "POST", Path: "/v1/chat/stop", Tag: tag, Summary: "Stop a run", Security: openapi.Optional, Request: StopRequest{}, Response: ChatAnswer{},
			Errors: []int{http.StatusNotFound, http.StatusConflict},
		},
		{
			Method: "POST", Path: "/v1/chat/completions", Tag: openAI, Summary: "A chat completion of an agent", Security: openapi.Optional,
			Headers: []string{"Idempotency-Key"}, Request: completionExample(), Response: Completion{}, Stream: true, Error: OpenAIErrorBody{},
			Events: []openapi.Event{{Summary: "a chunk; the last event is [DONE]", Data: CompletionChunk{}}},
			Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusInternalServerError, http.StatusGatewayTimeout},
		},
		{
			Method: "POST", Path: "/v1/responses", Tag: openAI, Summary: "A response of an agent", Security: openapi.Optional,
			Headers: []string{"Idempotency-Key"}, Request: ResponseRequest{Model: "echo", Input: json.RawMessage(`"Hello"`)}, Response: ResponseObject{}, Stream: true,
			Error: OpenAIErrorBody{}, Events: responseEvents(),
			Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusInternalServerError, http.StatusGatewayTimeout},
		},
		{
			Method: "GET", Path: "/v1/responses/{response}", Tag: openAI, Summary: "One of your stored responses", Security: openapi.Optional, Response: ResponseObject{},
			Error: OpenAIErrorBody{}, Errors: []int{http.StatusNotFound},
		},
		{Method: "GET", Path: "/v1/models", Tag: openAI, Summary: "The agents as models", Security: openapi.Optional, Response: ModelList{}, Error: OpenAIErrorBody{}},
		{Method: "GET", Path: "/v1/models/{model}", Tag: openAI, Summary: "One agent as a model", Security: openapi.Optional, Response: Model{}, Error: OpenAIErrorBody{}},
	}

	for _, again := range described[:2] { // the same operations at the paths of the reference
		again.Path, again.Summary = referencePath+again.Path, again.Summary+", at the path of the reference runtime"
		described = append(described, again)
	}
	return described
}

// rpcFrame is one event of a stream of JSON-RPC chat.
type rpcFrame struct {
	rpcResponse

	Method string         `json:"method,omitempty"` // message/delta
	Params map[string]any `json:"params,omitempty"`
}
