package peer

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// CallerOptions configure a Caller.
type CallerOptions struct {
	Token  string
	Client *http.Client // by which the server under test is reached; nil = as its addresses say
}

// Caller is a program that sends tasks by A2A 1.0 and messages by the chat, both with JSON-RPC, and leaves it to others to see what
// became of them.
type Caller struct {
	token  string
	client *http.Client
}

// NewCaller makes a caller. Close drops its connections.
func NewCaller(options CallerOptions) *Caller {
	if options.Client == nil {
		options.Client = newHTTPClient()
		options.Client.Timeout = time.Minute // the chat answers when the agent has
	}
	return &Caller{options.Token, options.Client}
}

// Close drops idle connections.
func (c *Caller) Close() { c.client.CloseIdleConnections() }

// contextOf is what is read of a task or a message of A2A.
type contextOf struct {
	ContextID string `json:"contextId"`
}

// Task sends a message to an A2A endpoint. An error says that it could not be offered.
func (c *Caller) Task(ctx context.Context, endpoint string, message Message) (Sent, error) {
	parts := []object{{"text": message.Text}}
	for _, file := range message.Files {
		parts = append(parts, object{"raw": base64.StdEncoding.EncodeToString(file.Content), "mediaType": file.MIME, "filename": file.Name})
	}
	id := newID()
	asked := object{"messageId": id, "role": "ROLE_USER", "parts": parts}
	if message.Thread != "" {
		asked["contextId"] = message.Thread
	}

	sent := Sent{ID: id, Object: id}
	answer, err := c.call(ctx, endpoint, "SendMessage", object{"message": asked, "configuration": object{"returnImmediately": true}}, message, &sent)
	if err != nil {
		return Sent{}, err
	}
	var result struct {
		Task    contextOf `json:"task"`
		Message contextOf `json:"message"`
	}
	_ = json.Unmarshal(answer, &result) // without a context the next message begins a conversation
	sent.Thread = result.Task.ContextID + result.Message.ContextID
	return sent, nil
}

// Chat says something to the chat of an agent and returns when the server answers, which is when the agent has, or soon. An error says that
// it could not be offered.
func (c *Caller) Chat(ctx context.Context, endpoint string, message Message) (Sent, error) {
	parts := []object{{"type": "text", "text": message.Text}}
	for _, file := range message.Files {
		parts = append(parts, object{"type": "file", "file": object{
			"bytes": base64.StdEncoding.EncodeToString(file.Content), "mimeType": file.MIME, "name": file.Name,
		}})
	}
	id := newID()
	params := object{"id": id, "message": object{"role": "user", "parts": parts}}
	if message.Thread != "" {
		params["sessionId"] = message.Thread
	}

	sent := Sent{ID: id, Object: id}
	answer, err := c.call(ctx, endpoint, "message/send", params, message, &sent)
	if err != nil {
		return Sent{}, err
	}
	var result struct {
		SessionID string `json:"sessionId"`
	}
	_ = json.Unmarshal(answer, &result) // as above
	sent.Thread = result.SessionID
	return sent, nil
}

// call does one JSON-RPC 2.0 request, notes what the server says and returns the result; nil = it has none.
func (c *Caller) call(ctx context.Context, endpoint, method string, params object, message Message, sent *Sent) (json.RawMessage, error) {
	if err := checkFault(message.Fault, CallerFaults()); err != nil {
		return nil, err
	}
	if message.Fault == FaultOversize {
		params["metadata"] = object{"padding": string(padding(message.Bytes))}
	}
	body, err := encode(object{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if message.Fault == FaultMalformed {
		body = body[:len(body)/2]
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("A2A-Version", "1.0")
	switch message.Fault {
	case FaultNoToken:
	case FaultWrongToken:
		request.Header.Set("Authorization", "Bearer "+newID()+newID())
	default:
		request.Header.Set("Authorization", "Bearer "+c.token)
	}

	response, err := c.client.Do(request)
	if message.Fault == FaultOversize && cutOff(err) {
		sent.Said = cutWords
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("send to %s: %w", endpoint, err)
	}
	answered, err := readBody(response)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", endpoint, err)
	}

	var envelope struct {
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	_ = json.Unmarshal(answered, &envelope) // what is not JSON-RPC has no result
	sent.Taken = response.StatusCode == http.StatusOK && len(envelope.Result) > 0 && len(envelope.Error) == 0
	shown := answered
	if sent.Taken {
		shown = nil
	}
	sent.Said = said("HTTP "+response.Status, shown)
	return envelope.Result, nil
}
