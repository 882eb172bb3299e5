package attacks

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	connectorSecret = "the secret of a connector"
	connector       = `
[[connectors]]
name = "chat"
secret = "` + connectorSecret + `"
agents = ["echo"]
callback_url = "http://127.0.0.1:9/"
`
)

// metrics: a proxy that does not tell for whom it asks has a private address, which opened /metrics.
func (a *watched) metrics() {
	result := a.attack("A9", "/metrics from private addresses, and with an invented X-Forwarded-For", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 60, 3, func(worker, _ int) {
			source := []string{"10.0.0.5", "192.168.1.5", "62.14.1.7"}[worker]
			status, _ := a.call(ctx, a.client(source), http.MethodGet, "/metrics", http.Header{"X-Forwarded-For": {insideAddress}}, nil)
			heard.add(status)
			status, _ = a.call(ctx, a.client(source), http.MethodGet, "/metrics", nil, nil)
			heard.add(status)
		})
	})
	a.heardOnly(result, "403", "429")
	a.cheap(result, 20*time.Millisecond, 50<<20)
}

// borrowedName: a webhook carried an Authorization header of the caller's choice to any host, from our address.
func (a *watched) borrowedName() {
	token := a.token("borrows")
	var called, shown atomic.Int64
	a.neighbour("victim.example", http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		called.Add(1)
		if request.Header.Get("Authorization") != "" {
			shown.Add(1)
		}
		http.NotFound(writer, request)
	}))
	result := a.attack("A9", "20 webhooks with an Authorization header for a host that never asked", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 20, 2, func(_, i int) {
			body := jsonOf(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": map[string]any{
				"message": map[string]any{"messageId": fmt.Sprintf("hook-%d", i), "role": "ROLE_USER", "parts": []map[string]string{{"text": "hello"}}},
				"configuration": map[string]any{"taskPushNotificationConfig": map[string]any{
					"url": "https://victim.example/admin", "authentication": map[string]string{"scheme": "Basic", "credentials": "YWRtaW46YWRtaW4="},
				}},
			}})
			status, _ := a.call(ctx, a.client("203.0.113.110"), http.MethodPost, "/a2a/echo", http.Header{"Authorization": {"Bearer " + token}}, body)
			heard.add(status)
		})
	})
	if shown.Load() > 0 || called.Load() == 0 {
		a.t.Errorf("A9: the host was called %d times, and shown the header %d times; want it called without", called.Load(), shown.Load())
	}
	a.cheap(result, 50*time.Millisecond, 50<<20)
}

// capturedMessage: the signature of a connector held for ever.
func (a *watched) capturedMessage() {
	send := func(ctx context.Context, at time.Time, id string) string {
		body := jsonOf(map[string]any{
			"text": "hello " + id, "external_provider": "chat", "external_conversation_id": "room", "external_message_id": id, "sender_id": "ann",
		})
		stamp := strconv.FormatInt(at.Unix(), 10)
		mac := hmac.New(sha256.New, []byte(connectorSecret))
		mac.Write(append([]byte(stamp+"."), body...))
		status, _ := a.call(ctx, a.client("62.15.1.7"), http.MethodPost, "/v1/connectors/chat/messages",
			http.Header{"X-Inbox-Timestamp": {stamp}, "X-Inbox-Signature": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}}, body)
		return status
	}
	if status := send(a.t.Context(), time.Now(), "fresh"); status != "202" {
		a.t.Errorf("A9: a message of the connector is answered %s, want 202", status)
	}
	result := a.attack("A9", "50 captured requests of a connector, six minutes old", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 50, 2, func(_, i int) { heard.add(send(ctx, time.Now().Add(-6*time.Minute), fmt.Sprint("captured-", i))) })
	})
	a.heardOnly(result, "401")
	a.cheap(result, 20*time.Millisecond, 50<<20)
}
