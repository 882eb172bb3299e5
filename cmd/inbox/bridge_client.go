package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"inbox/internal/clock"
)

const (
	longPoll  = 25 * time.Second
	sendTries = 30 // with restWait between: a server that starts again is back by then
	restWait  = time.Second
)

// errUnreachable is every failure after which the same request may succeed.
var errUnreachable = errors.New("the server cannot be reached")

// errNoItem is that of an item which is not in the queue.
var errNoItem = errors.New("the item is not in the queue")

// rest waits before another try; false = the program ends.
func rest(ctx context.Context) bool {
	return clock.Sleep(ctx, restWait) == nil
}

// bridgeClient speaks the bridge protocol of a server (docs/bridges.md).
type bridgeClient struct {
	base, token string
	http        *http.Client
}

func newBridgeClient(base, token string) *bridgeClient {
	return &bridgeClient{strings.TrimSuffix(base, "/"), token, &http.Client{}}
}

// bridgeRun is a run as far as a terminal needs it.
type bridgeRun struct {
	ID      string `json:"run_id"`
	Session string `json:"session_id"`
	Status  string `json:"status"`
	Queue   string `json:"queue_id"`
}

type queueItem struct {
	ID      string `json:"queue_id"`
	Content string `json:"content"`
	raw     json.RawMessage
}

type spokenMessage struct{ Role, Content string }

type sessionRow struct {
	ID    string `json:"session_id"`
	Agent string `json:"agent"`
	Title string `json:"title"`
}

// do sends a request and returns the answer of a success.
func (c *bridgeClient) do(ctx context.Context, method, path string, body any, accept, after string) (*http.Response, error) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}

	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(encoded))
	if err != nil {
		return nil, err
	}

	request.Header.Set("Authorization", "Bearer "+c.token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", accept)

	if after != "" {
		request.Header.Set("Last-Event-ID", after)
	}

	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w (is it %s? --server or INBOX_SERVER says where): %w", errUnreachable, c.base, err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	return nil, refusal(response)
}

// refusedRequest is what the server says about a request that it does not do.
type refusedRequest struct{ code, message string }

func (r *refusedRequest) Error() string { return r.message }

func refusal(response *http.Response) error {
	var told struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}

	_ = json.NewDecoder(io.LimitReader(response.Body, 64<<10)).Decode(&told)
	if told.Error.Message == "" {
		told.Error.Message = response.Status
	}
	if response.StatusCode == http.StatusNotFound && strings.Contains(response.Request.URL.Path, "/v1/bridge/items/") {
		return errNoItem
	}
	if response.StatusCode/100 == 5 || response.StatusCode == http.StatusTooManyRequests {
		return fmt.Errorf("%w: %s", errUnreachable, told.Error.Message)
	}

	return &refusedRequest{told.Error.Code, told.Error.Message}
}

func (c *bridgeClient) call(ctx context.Context, method, path string, body, answer any) error {
	response, err := c.do(ctx, method, path, body, "application/json", "")
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	return nil
}

func (c *bridgeClient) pending(ctx context.Context, session string, wait time.Duration) ([]queueItem, error) {
	query := url.Values{}
	if session != "" {
		query.Set("session_id", session)
	}
	if wait > 0 {
		query.Set("wait", wait.String())
	}

	var answer struct{ Items []json.RawMessage }
	if err := c.call(ctx, http.MethodGet, "/v1/bridge/pending?"+query.Encode(), nil, &answer); err != nil {
		return nil, err
	}

	items := make([]queueItem, 0, len(answer.Items))
	for _, raw := range answer.Items {
		item := queueItem{raw: raw}
		if err := json.Unmarshal(raw, &item); err != nil {
			return nil, err
		}
		items = append(items, item)
	}

	return items, nil
}

// ack is repeated: an item that was shown must not be shown again.
func (c *bridgeClient) ack(ctx context.Context, id string) error {
	return again(ctx, func() error {
		return c.call(ctx, http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": []string{id}}, &struct{}{})
	})
}

// again repeats what failed because the server was not there.
func again(ctx context.Context, work func() error) (err error) {
	for range sendTries {
		if err = work(); !errors.Is(err, errUnreachable) || !rest(ctx) {
			return err
		}
	}
	return err
}

func (c *bridgeClient) sessions(ctx context.Context, agent string, most int) ([]sessionRow, error) {
	query := url.Values{"agent": {agent}, "limit": {strconv.Itoa(most)}}
	var answer struct{ Sessions []sessionRow }
	err := c.call(ctx, http.MethodGet, "/v1/sessions?"+query.Encode(), nil, &answer)
	return answer.Sessions, err
}

func (c *bridgeClient) newest(ctx context.Context, agent string) (string, error) {
	sessions, err := c.sessions(ctx, agent, 1)
	if err != nil || len(sessions) == 0 {
		return "", err
	}
	return sessions[0].ID, nil
}

func (c *bridgeClient) messages(ctx context.Context, session string, most int) ([]spokenMessage, error) {
	var answer struct{ Messages []spokenMessage }
	err := c.call(ctx, http.MethodGet, "/v1/sessions/"+url.PathEscape(session)+"/messages?limit="+strconv.Itoa(most), nil, &answer)
	return answer.Messages, err
}

// stop ends the newest run of a session.
func (c *bridgeClient) stop(ctx context.Context, session string) error {
	if session == "" {
		return errors.New("there is no conversation yet")
	}

	var found struct {
		Run string `json:"last_run_id"`
	}

	if err := c.call(ctx, http.MethodGet, "/v1/sessions/"+url.PathEscape(session), nil, &found); err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, "/v1/runs/"+url.PathEscape(found.Run)+"/cancel", nil, &struct{}{})
}

// send hands in a message and follows its run to the end. The message has an id of ours, so that it can be sent again when
// it is unknown whether it arrived; a stream that broke goes on behind its last event.
func (c *bridgeClient) send(ctx context.Context, agent, session, message string, told func(name, text string)) (bridgeRun, error) {
	body := map[string]any{"agent": agent, "session_id": session, "message": message, "message_id": uuid.NewString()}
	var run bridgeRun
	last, done := "", false
	err := again(ctx, func() error {
		var response *http.Response
		var err error
		if run.ID == "" {
			response, err = c.do(ctx, http.MethodPost, "/v1/bridge/send", body, "text/event-stream", "")
		} else {
			response, err = c.do(ctx, http.MethodGet, "/v1/runs/"+url.PathEscape(run.ID)+"/events", nil, "text/event-stream", last)
		}
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()

		err = readEvents(response.Body, func(name, id string, data []byte) {
			if id != "" {
				last = id
			}
			switch name {
			case "accepted", "done":
				_ = json.Unmarshal(data, &run)
				done = name == "done"
			case "delta", "restarted":
				var grown struct {
					Text string `json:"text"`
				}
				_ = json.Unmarshal(data, &grown)
				told(name, grown.Text)
			}
		})

		if !done {
			return fmt.Errorf("%w: the stream broke: %w", errUnreachable, errors.Join(err, io.ErrUnexpectedEOF))
		}

		return nil
	})

	return run, err
}

// readEvents reads server-sent events (HTML standard, section 9.2).
func readEvents(from io.Reader, event func(name, id string, data []byte)) error {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 16<<20)
	name, id := "", ""
	var data []byte
	for scanner.Scan() {
		field, value, _ := strings.Cut(scanner.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case scanner.Text() == "":
			if data != nil {
				event(name, id, data)
			}
			name, id, data = "", "", nil
		case field == "event":
			name = value
		case field == "id":
			id = value
		case field == "data":
			data = append(data, value...)
		}
	}

	return scanner.Err()
}

// await fetches the item of a run that has ended; it is queued a moment after the end. It is asked for by its id: many older
// items may wait before it. The long poll between only wakes.
func (c *bridgeClient) await(ctx context.Context, run bridgeRun) (item queueItem, err error) {
	for range sendTries {
		item, err = c.item(ctx, run.Queue)
		if err == nil || errors.Is(err, errUnreachable) && !rest(ctx) || !errors.Is(err, errUnreachable) && !errors.Is(err, errNoItem) {
			return item, err
		}
		if items, err := c.pending(ctx, run.Session, longPoll); (err != nil || len(items) > 0) && !rest(ctx) {
			return item, ctx.Err()
		}
	}
	return item, errors.New("the answer is not in the queue yet; inbox bridge --resume shows it")
}

func (c *bridgeClient) item(ctx context.Context, id string) (item queueItem, err error) {
	if err := c.call(ctx, http.MethodGet, "/v1/bridge/items/"+url.PathEscape(id), nil, &item.raw); err != nil {
		return item, err
	}
	return item, json.Unmarshal(item.raw, &item)
}
