package contract

import (
	"fmt"
	"maps"
	"regexp"
	"strings"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/internal/clip"
)

// Methods of the JSON-RPC chat endpoint; the tasks methods are older names of the other two (agent runtime contract,
// section 6.5).
const (
	MethodSend           = "message/send"
	MethodStream         = "message/stream"
	MethodTasksSend      = "tasks/send"
	MethodTasksSubscribe = "tasks/sendSubscribe"
	methodDelta          = "message/delta"
	protocol             = "2.0"
)

// Codes of JSON-RPC 2.0, section 5.1.
const (
	ParseError     = -32700
	InvalidRequest = -32600
	MethodNotFound = -32601
	InvalidParams  = -32602
	InternalError  = -32603
)

// Request is a request that passed every check before the run.
type Request struct {
	ID     any // string or integer, nil for everything else
	Stream bool
	Input  Input
}

// RPCError refuses a request with one of the codes of JSON-RPC.
type RPCError struct {
	ID     any
	Number int
	Text   string
}

// Frame returns the error as a response.
func (e *RPCError) Frame() Frame { return ErrorFrame(e.ID, e.Number, e.Text) }

// ReadRequest reads the JSON text of a request of at most MaxInputBytes for the agent that the path names.
func ReadRequest(agent string, data []byte) (Request, *RPCError) {
	body, err := value.Decode(data, value.Limits{Bytes: MaxInputBytes, Depth: maxDepth})
	switch {
	case value.TooLarge(err):
		return Request{}, &RPCError{nil, InvalidRequest, "The request is too large or too deep."}
	case err != nil:
		return Request{}, &RPCError{nil, ParseError, "Request must be JSON."}
	}
	return CheckRequest(agent, value.Assoc(body))
}

// CheckRequest checks in the order of the contract: protocol, params, method. So an unknown method with bad params is
// refused for its params (agent runtime contract, section 6.5).
func CheckRequest(agent string, body map[string]any) (Request, *RPCError) {
	request := Request{ID: requestID(body["id"])}
	if body["jsonrpc"] != protocol {
		return Request{}, &RPCError{request.ID, InvalidRequest, "Request must be JSON-RPC 2.0."}
	}

	input, err := inputOf(Slug(agent), body)
	if err != nil {
		return Request{}, &RPCError{request.ID, InvalidParams, err.Error()}
	}

	request.Input = input
	switch method := value.Text(body["method"]); method {
	case MethodSend, MethodTasksSend:
	case MethodStream, MethodTasksSubscribe:
		request.Stream = true
	default:
		return Request{}, &RPCError{request.ID, MethodNotFound, `Unknown JSON-RPC method "` + method + `".`}
	}

	return request, nil
}

func requestID(id any) any {
	if _, is := id.(string); is {
		return id
	}
	if _, is := value.Integer(id); is {
		return id
	}
	return nil
}

var (
	unfit  = regexp.MustCompile(`[^a-z0-9_-]+`)
	dashes = regexp.MustCompile(`-{2,}`)
)

// Slug is the form of an agent's name in a path: small letters, digits, "_" and single "-", none at the ends.
func Slug(agent string) string {
	small := unfit.ReplaceAllString(value.Lower(value.Trim(agent)), "-")
	return strings.Trim(dashes.ReplaceAllString(small, "-"), "-")
}

const jsonRPCClient = "jsonrpc-chat"

// inputOf makes the chat input of a JSON-RPC body (agent runtime contract, section 6.5).
func inputOf(agent string, body map[string]any) (Input, error) {
	if agent == "" {
		return Input{}, refuse(CodeInvalidParams, "A non-empty agent id is required.")
	}

	params := value.Assoc(body["params"])
	parts := partsOf(params["message"])
	text := textOf(parts)
	pairs, err := pairsOf(parts)
	if err != nil {
		return Input{}, err
	}
	if text == "" && len(pairs) == 0 {
		return Input{}, refuse(CodeInvalidParams, "params.message must contain non-empty text or paired tool call/results."+untyped(parts))
	}

	input := Input{
		Agent: agent, Message: text, Continuations: pairs, History: historyOf(parts),
		SessionID: value.Scalar(params["sessionId"]), RunID: value.Scalar(params["id"]),
		Attachments: attachmentsOf(parts), ClientContext: contextOf(parts, params["metadata"]),
	}

	if said, is := body["tokenStreaming"]; is {
		streams := value.Truthy(said)
		input.TokenStreaming = &streams
	}

	return input, nil
}

func partsOf(message any) []map[string]any {
	var parts []map[string]any
	for _, part := range value.Elements(value.Assoc(message)["parts"]) {
		if object, is := value.Object(part); is {
			parts = append(parts, object)
		}
	}
	return parts
}

// kindOf returns the type of a part. Clients of A2A 0.3 name it kind.
func kindOf(part map[string]any) string {
	if kind, is := part["type"].(string); is {
		return kind
	}
	return value.Text(part["kind"])
}

// untyped says which part has no type that is read; "" when all have one.
func untyped(parts []map[string]any) string {
	for i, part := range parts {
		switch kindOf(part) {
		case partText, partFile, partData:
		default:
			return fmt.Sprintf(` Part %d has the type %q; want "text", "file" or "data".`, i+1, clip.Bytes(kindOf(part), maxShownType))
		}
	}
	return ""
}

// maxShownType bounds what a refusal repeats of a type, in bytes.
const maxShownType = 64

// Types of the parts of a message.
const (
	partText = "text"
	partFile = "file"
	partData = "data"
)

// dataOf returns the objects of the data parts.
func dataOf(parts []map[string]any) []map[string]any {
	var objects []map[string]any
	for _, part := range parts {
		if data, is := value.Object(part["data"]); is && kindOf(part) == partData {
			objects = append(objects, data)
		}
	}
	return objects
}

// textOf joins what the user sees as their message.
func textOf(parts []map[string]any) string {
	var text strings.Builder
	for _, part := range parts {
		if kindOf(part) == partText && part["contentType"] != "context" {
			text.WriteString(value.Scalar(part["text"]))
		}
	}
	return value.Trim(text.String())
}

func attachmentsOf(parts []map[string]any) []any {
	files := []any{}
	for _, part := range parts {
		if kindOf(part) == partFile {
			files = append(files, value.Clone(value.Assoc(part["file"])))
		}
	}
	return files
}

func historyOf(parts []map[string]any) []Line {
	roles := map[string]string{"user": "user", "agent": "assistant"}
	var lines []Line
	for _, data := range dataOf(parts) {
		role, text := roles[value.Text(data["role"])], value.Text(data["text"])
		if role != "" && value.Trim(text) != "" {
			lines = append(lines, Line{role, text})
		}
	}
	return lines
}

// contextOf merges the client contexts, later ones over earlier ones, and then says itself where the turn comes from.
func contextOf(parts []map[string]any, metadata any) map[string]any {
	merged := map[string]any{}
	for _, data := range dataOf(parts) {
		maps.Copy(merged, value.Assoc(data["clientContext"]))
	}

	visible := tool.PublicContext(merged)
	visible["source"], visible["client_name"] = SourceJSONRPC, jsonRPCClient

	if value.Container(metadata) {
		visible["metadata"] = value.Clone(metadata)
	}
	return visible
}
