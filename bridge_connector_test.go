package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"inbox/internal/await"
	"inbox/internal/webhooksignature"
)

func (b *bridged) relayed(connector, id, text, wait string, want int) map[string]any {
	b.Helper()
	body, err := json.Marshal(map[string]any{
		"text": text, "external_provider": "slack", "external_conversation_id": "C1", "external_message_id": id, "sender_id": "T1/U1", "room_kind": "channel",
	})
	if err != nil {
		b.Fatal(err)
	}
	header := http.Header{"Content-Type": {"application/json"}, "X-Inbox-Signature": {webhooksignature.Sign(connectorSecret, body)}}
	return b.request(http.MethodPost, "/v1/connectors/"+connector+"/messages"+wait, header, body, want)
}

func TestConnectorOverTheWire(t *testing.T) {
	b := newBridged(t, "")
	wrong := http.Header{"X-Inbox-Signature": {"sha256=" + strings.Repeat("0", 64)}}
	for _, path := range []string{"/v1/connectors/slack/messages", "/v1/connectors/unknown/messages"} {
		b.request(http.MethodPost, path, wrong, []byte(`{"text":"x"}`), http.StatusUnauthorized)
		b.request(http.MethodPost, path, http.Header{}, []byte(`{"text":"x","evidence":[]}`), http.StatusUnauthorized)
	}
	for i := range 20 {
		taken := b.relayed("slack", "m1", "hello there", "", map[bool]int{true: http.StatusAccepted, false: http.StatusOK}[i == 0])
		if taken["reply"] != nil || i > 0 && !isTrue(taken["duplicate"]) {
			t.Errorf("copy %d: %v", i, taken)
		}
		if i == 0 {
			answer := await.Receive(t, b.calls, "the callback")
			if content := fmt.Sprint(answer.body["content"]); !strings.Contains(content, "hello there") || answer.header.Get("X-Inbox-Delivery") == "" {
				t.Errorf("the callback got %v", answer.body)
			}
			about, _ := answer.body["metadata"].(map[string]any)
			if about["external_message_id"] != "m1" || about["external_conversation_id"] != "C1" {
				t.Errorf("the answer is about %v", about)
			}
			b.settledRun(taken)
		}
	}
	b.relayed("slack", "m2", "once again", "", http.StatusAccepted)
	var attempts []string
	for range 2 {
		attempts = append(attempts, await.Receive(t, b.calls, "both attempts of the callback").header.Get("X-Inbox-Attempt"))
	}
	if attempts[0] != "1" || attempts[1] != "2" {
		t.Errorf("attempts %v", attempts)
	}
	select {
	case extra := <-b.calls:
		t.Errorf("one call too many: %v", extra.body)
	default:
	}
	if taken := b.relayed("plain", "m1", "waited for", "?wait=20s", http.StatusOK); !strings.Contains(fmt.Sprint(taken["reply"]), "waited for") {
		t.Errorf("who waits gets %v", taken)
	}
	self, _ := json.Marshal(map[string]any{"text": "mine", "from_self": true})
	header := http.Header{"X-Hub-Signature-256": {webhooksignature.Sign(connectorSecret, self)}}
	if skipped := b.request(http.MethodPost, "/v1/connectors/slack/messages", header, self, http.StatusOK); skipped["status"] != "skipped" {
		t.Errorf("a message of its own: %v", skipped)
	}
}

// TestCapturedConnectorRequest: a signature with a time is worth nothing five minutes later, and cannot be stripped of it.
func TestCapturedConnectorRequest(t *testing.T) {
	b := newBridged(t, "")
	body := []byte(`{"text":"pay","external_provider":"slack","external_conversation_id":"C1","sender_id":"T1/U1"}`)
	signed := func(at time.Time) http.Header {
		stamp := strconv.FormatInt(at.Unix(), 10)
		return http.Header{"X-Inbox-Timestamp": {stamp}, "X-Inbox-Signature": {webhooksignature.Sign(connectorSecret, []byte(stamp+"."+string(body)))}}
	}
	const path = "/v1/connectors/plain/messages?wait=20s"
	b.request(http.MethodPost, path, signed(time.Now()), body, http.StatusOK)

	b.request(http.MethodPost, path, signed(time.Now().Add(-6*time.Minute)), body, http.StatusUnauthorized)
	b.request(http.MethodPost, path, signed(time.Now().Add(6*time.Minute)), body, http.StatusUnauthorized)
	stripped := signed(time.Now())
	stripped.Del("X-Inbox-Timestamp")
	b.request(http.MethodPost, path, stripped, body, http.StatusUnauthorized)
	other := signed(time.Now())
	other.Set("X-Inbox-Timestamp", strconv.FormatInt(time.Now().Unix()+1, 10))
	b.request(http.MethodPost, path, other, body, http.StatusUnauthorized)

	// Connectors that sign no time are taken unless the operator requires one (require_timestamp).
	timeless := http.Header{"X-Inbox-Signature": {webhooksignature.Sign(connectorSecret, body)}}
	b.request(http.MethodPost, path, timeless, body, http.StatusOK)
}

// settledRun waits until the turn of an answer ended, so that copies find it so.
func (b *bridged) settledRun(taken map[string]any) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
	defer cancel()
	if _, err := b.server.pipeline.Wait(ctx, taken["run_id"].(string)); err != nil {
		b.Fatal(err)
	}
}
