package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// A2APeer speaks JSON-RPC A2A 1.0 to one agent with one bearer token.
type A2APeer struct {
	URL    string // https://host/a2a/agent
	Token  string
	Client *http.Client
}

// Task is the part of an A2A task that the programs look at.
type Task struct {
	ID        string `json:"id"`
	ContextID string `json:"contextId"`
	Status    struct {
		State   string      `json:"state"`
		Message *A2AMessage `json:"message"`
	} `json:"status"`
	History   []A2AMessage `json:"history"`
	Artifacts []struct {
		ID          string         `json:"artifactId"`
		Description string         `json:"description"`
		Metadata    map[string]any `json:"metadata"`
		Parts       []A2APart      `json:"parts"`
	} `json:"artifacts"`
}

// A2AMessage is one message of a task.
type A2AMessage struct {
	ID    string    `json:"messageId"`
	Role  string    `json:"role"`
	Parts []A2APart `json:"parts"`

	Metadata map[string]any `json:"metadata"`
}

// A2APart is a part that has text, a file in base64 or the address of one.
type A2APart struct {
	Text string `json:"text"`
	Raw  string `json:"raw"`
	URL  string `json:"url"`
}

// Answers returns the distinct ids of the agent's messages and of the artifacts.
func (t Task) Answers() []string {
	seen := map[string]bool{}
	var ids []string
	add := func(id string) {
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
	}

	for _, message := range t.History {
		if message.Role == "ROLE_AGENT" {
			add("message " + message.ID)
		}
	}

	if t.Status.Message != nil {
		add("message " + t.Status.Message.ID)
	}

	for _, artifact := range t.Artifacts {
		add("artifact " + artifact.ID)
	}

	return ids
}

// RPCError is a JSON-RPC error of the server.
type RPCError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// InternalError is the JSON-RPC code of a server that could not do its work.
const InternalError = -32603

func (e *RPCError) Error() string { return fmt.Sprintf("JSON-RPC error %d: %s", e.Code, e.Message) }

// StatusError is an HTTP answer that is no success.
type StatusError struct {
	Status int
	Body   string
}

func (e *StatusError) Error() string { return fmt.Sprintf("HTTP status %d: %s", e.Status, e.Body) }

// SendBody is the JSON-RPC request of one message.
func SendBody(messageID, text string, immediate bool) []byte {
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "SendMessage",
		"params": map[string]any{
			"message": map[string]any{
				"messageId": messageID, "role": "ROLE_USER", "parts": []map[string]string{{"text": text}},
			},
			"configuration": map[string]any{"returnImmediately": immediate},
		},
	})
	if err != nil {
		panic(err) // strings can always be written
	}
	return body
}

// Send sends a body made by SendBody and returns the task. The answer of an agent that speaks without a task is an error.
func (p A2APeer) Send(ctx context.Context, body []byte) (Task, error) {
	var result struct {
		Task *Task `json:"task"`
	}

	if err := p.call(ctx, body, &result); err != nil {
		return Task{}, err
	}
	if result.Task == nil {
		return Task{}, fmt.Errorf("send: the result has no task")
	}
	return *result.Task, nil
}

// Get asks for a task with its whole history.
func (p A2APeer) Get(ctx context.Context, id string) (Task, error) {
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": map[string]any{"id": id, "historyLength": 100},
	})
	if err != nil {
		return Task{}, err
	}
	var task Task
	return task, p.call(ctx, body, &task)
}

// Cancel cancels a task.
func (p A2APeer) Cancel(ctx context.Context, id string) error {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": map[string]any{"id": id}})
	if err != nil {
		return err
	}
	var task Task
	return p.call(ctx, body, &task)
}

func (p A2APeer) call(ctx context.Context, body []byte, result any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("A2A-Version", "1.0")
	request.Header.Set("Authorization", "Bearer "+p.Token)
	response, err := p.Client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()

	answer, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return &StatusError{Status: response.StatusCode, Body: string(answer)}
	}

	return decodeRPC(answer, result)
}

func decodeRPC(answer []byte, result any) error {
	var envelope struct {
		Result json.RawMessage `json:"result"`
		Error  *RPCError       `json:"error"`
	}

	if err := json.Unmarshal(answer, &envelope); err != nil {
		return fmt.Errorf("parse answer: %w", err)
	}
	if envelope.Error != nil {
		return envelope.Error
	}
	return json.Unmarshal(envelope.Result, result)
}
