package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// A2AOptions configure an A2A. Token is required.
type A2AOptions struct {
	Token string // bearer token that the agent's operator gave out
	Name  string // how the peer is called in a Conversation; empty = a2a-peer
}

// A2A is another agent that sends tasks over A2A 1.0 with the JSON-RPC binding, and checks what it gets back.
type A2A struct {
	token, name string
	client      *http.Client
}

// NewA2A makes a client. Close drops its connections.
func NewA2A(options A2AOptions) (*A2A, error) {
	if options.Token == "" {
		return nil, errors.New("an A2A peer needs a bearer token")
	}
	client := newHTTPClient()
	client.Timeout = time.Minute // SendMessage blocks until the agent has answered
	return &A2A{token: options.Token, name: orDefault(options.Name, "a2a-peer"), client: client}, nil
}

// Close drops idle connections.
func (a *A2A) Close() error { a.client.CloseIdleConnections(); return nil }

// pollInterval is the pause between two looks at a task that was not ready when SendMessage returned.
const pollInterval = 100 * time.Millisecond

// Ask reads the agent card at cardURL, sends a task, waits until it is completed and checks it against what GetTask
// says, with and without the token.
func (a *A2A) Ask(ctx context.Context, cardURL, text string) (Conversation, error) {
	started := time.Now()
	card, endpoint, err := a.card(ctx, cardURL)
	if err != nil {
		return Conversation{}, fmt.Errorf("read agent card %s: %w", cardURL, err)
	}

	question := newID()
	task, err := a.sendMessage(ctx, endpoint, question, text)
	if err != nil {
		return Conversation{}, fmt.Errorf("send a task to %s: %w", endpoint, err)
	}
	if task, err = a.settle(ctx, endpoint, task, taskDocument.ended); err != nil {
		return Conversation{}, err
	}

	evidence, err := a.check(ctx, endpoint, task)
	if err != nil {
		return Conversation{}, err
	}

	return Conversation{
		Network: "A2A", From: a.name, To: card.Name, MessageID: question, Question: text, Answer: task.text(),
		Evidence: append([]string{"agent card names " + endpoint}, evidence...), Took: time.Since(started),
	}, nil
}

// settle looks at the task until it is done.
func (a *A2A) settle(ctx context.Context, endpoint string, task taskDocument, done func(taskDocument) bool) (taskDocument, error) {
	for !done(task) {
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}

		again, err := a.getTask(ctx, endpoint, task.ID)
		if ctx.Err() != nil {
			return task, fmt.Errorf("task %s is still %s: %w", task.ID, task.Status.State, context.Cause(ctx))
		}
		if err != nil {
			return task, fmt.Errorf("get the task back: %w", err)
		}
		task = again
	}
	return task, nil
}

// card returns the agent card and the JSON-RPC endpoint that it names, which must be on the card's own server: the
// token goes there.
func (a *A2A) card(ctx context.Context, cardURL string) (cardDocument, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, cardURL, nil)
	if err != nil {
		return cardDocument{}, "", err
	}

	response, err := a.client.Do(request)
	if err != nil {
		return cardDocument{}, "", err
	}

	body, err := readBody(response)
	if err != nil {
		return cardDocument{}, "", err
	}

	var card cardDocument
	if err := json.Unmarshal(body, &card); err != nil || response.StatusCode != http.StatusOK {
		return card, "", fmt.Errorf("got %s: %.200q", response.Status, body)
	}

	for _, offered := range card.SupportedInterfaces {
		if offered.ProtocolBinding == "JSONRPC" && offered.ProtocolVersion == "1.0" {
			if origin(offered.URL) != origin(cardURL) {
				return card, "", fmt.Errorf("the interface %q is on another server than the card", offered.URL)
			}
			return card, offered.URL, nil
		}
	}

	return card, "", errors.New("the card offers no JSONRPC interface of version 1.0")
}

func (a *A2A) sendMessage(ctx context.Context, endpoint, id, text string) (taskDocument, error) {
	var result struct {
		Task    *taskDocument    `json:"task"`
		Message *messageDocument `json:"message"`
	}

	err := a.call(ctx, endpoint, a.token, "SendMessage", object{"message": object{
		"messageId": id, "role": "ROLE_USER", "parts": []object{{"text": text}},
	}}, &result)
	switch {
	case err != nil:
		return taskDocument{}, err
	case result.Task == nil && result.Message == nil, result.Task != nil && result.Message != nil:
		return taskDocument{}, errors.New("the result must be either a task or a message")
	case result.Task == nil:
		return taskDocument{Status: taskStatus{State: stateCompleted, Message: result.Message}}, nil
	case result.Task.ID == "" || result.Task.ContextID == "":
		return taskDocument{}, errors.New("the task has no id or no contextId")
	}

	return *result.Task, nil
}

func (a *A2A) getTask(ctx context.Context, endpoint, id string) (taskDocument, error) {
	var task taskDocument
	if err := a.call(ctx, endpoint, a.token, "GetTask", object{"id": id}, &task); err != nil {
		return task, err
	}
	if task.ID != id {
		return task, fmt.Errorf("asked for the task %s, got %s", id, task.ID)
	}
	return task, nil
}

// check demands a completed task with text, that GetTask says the same, and that no one without a token sees it.
func (a *A2A) check(ctx context.Context, endpoint string, task taskDocument) ([]string, error) {
	if task.Status.State != stateCompleted || task.text() == "" {
		return nil, fmt.Errorf("the task ended %s with the text %q", task.Status.State, task.text())
	}
	if task.ID == "" {
		return []string{"answered as a message, without a task"}, nil
	}

	again, err := a.getTask(ctx, endpoint, task.ID)
	if err != nil {
		return nil, fmt.Errorf("get the task back: %w", err)
	}
	if again.Status.State != task.Status.State || again.text() != task.text() {
		return nil, fmt.Errorf("SendMessage and GetTask disagree about the task %s", task.ID)
	}

	var refused *statusError
	if err := a.call(ctx, endpoint, "", "GetTask", object{"id": task.ID}, nil); !errors.As(err, &refused) ||
		refused.status != http.StatusUnauthorized || !strings.HasPrefix(refused.challenge, "Bearer") {
		return nil, fmt.Errorf("without a token want 401 and WWW-Authenticate: Bearer, got: %w", orNoError(err))
	}

	return []string{
		"task " + task.ID + " is completed, and GetTask returns the same",
		"without the bearer token the task cannot be seen (401)",
	}, nil
}

func orNoError(err error) error {
	if err == nil {
		return errors.New("the task")
	}
	return err
}

// statusError is an answer with another status than 200.
type statusError struct {
	status    int
	challenge string
	body      []byte
}

func (s *statusError) Error() string {
	return fmt.Sprintf("HTTP status %d, WWW-Authenticate %q: %.200q", s.status, s.challenge, s.body)
}

// call does one JSON-RPC 2.0 request of A2A 1.0.
func (a *A2A) call(ctx context.Context, endpoint, token, method string, params, result any) error {
	id := newID()
	body, err := json.Marshal(object{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return err
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}

	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("A2A-Version", "1.0")

	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}

	response, err := a.client.Do(request)
	if err != nil {
		return err
	}

	answered, err := readBody(response)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return &statusError{response.StatusCode, response.Header.Get("WWW-Authenticate"), answered}
	}

	return readResult(answered, id, result)
}

func readResult(body []byte, id string, result any) error {
	var envelope struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      string          `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   *struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}

	if err := json.Unmarshal(body, &envelope); err != nil {
		return fmt.Errorf("the answer is not JSON-RPC: %.200q", body)
	}

	switch {
	case envelope.JSONRPC != "2.0" || envelope.ID != id:
		return fmt.Errorf("the answer belongs to another request: %.200q", body)
	case envelope.Error != nil:
		return fmt.Errorf("JSON-RPC error %d: %s", envelope.Error.Code, envelope.Error.Message)
	case result == nil:
		return nil
	}

	return json.Unmarshal(envelope.Result, result)
}
