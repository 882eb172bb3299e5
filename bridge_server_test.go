package inbox

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestBridgeOverTheWire(t *testing.T) {
	b := newBridged(t, "")
	relay, other := b.token("relay"), b.token("other")

	for _, token := range []string{"", "inbox_nonsense", "inbox_" + strings.Repeat("A", 43)} {
		b.call(token, http.MethodGet, "/v1/bridge/pending", nil, http.StatusUnauthorized)
		b.call(token, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x"}, http.StatusUnauthorized)
	}
	poor := b.token("poor", "ack")
	b.call(poor, http.MethodGet, "/v1/bridge/pending", nil, http.StatusForbidden)
	b.call(poor, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x"}, http.StatusForbidden)
	b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "nobody", "message": "x"}, http.StatusNotFound)
	b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": " "}, http.StatusBadRequest)
	b.call(relay, http.MethodPost, "/v1/bridge/send", []byte(`{"agent":`), http.StatusBadRequest)
	b.call(relay, http.MethodPost, "/v1/bridge/send", bytes.Repeat([]byte("x"), 1<<20+1), http.StatusRequestEntityTooLarge)

	b.pending(relay, 0)
	first := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "message_id": "m1", "wait": true}, http.StatusOK)
	if first["status"] != "completed" || !strings.Contains(fmt.Sprint(first["reply"]), "hello") {
		t.Fatalf("the run is %v", first)
	}
	session, queued := first["session_id"].(string), first["queue_id"].(string)
	again := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "hello", "message_id": "m1", "wait": true}, http.StatusOK)
	if !isTrue(again["duplicate"]) || again["run_id"] != first["run_id"] || again["session_id"] != session {
		t.Errorf("the repeat is %v", again)
	}
	item := b.pending(relay, 1)[0].(map[string]any)
	if item["queue_id"] != queued || item["session_id"] != session || item["content"] != first["reply"] || !isTrue(item["completed"]) {
		t.Errorf("the item is %v", item)
	}
	b.pending(other, 0)
	b.call(other, http.MethodGet, "/v1/bridge/items/"+queued, nil, http.StatusNotFound)
	b.call(other, http.MethodPost, "/v1/bridge/items/"+queued+"/ack", nil, http.StatusNotFound)
	if n := b.call(other, http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": []string{queued}}, http.StatusOK)["acked"]; n != 0.0 {
		t.Errorf("another client acknowledged %v", n)
	}
	b.call(relay, http.MethodPost, "/v1/bridge/ack", map[string]any{"client_id": "other", "queue_ids": []string{queued}}, http.StatusNotFound)
	for _, want := range []float64{1, 0} {
		if n := b.call(relay, http.MethodPost, "/v1/bridge/ack", map[string]any{"queue_ids": []string{queued}}, http.StatusOK)["acked"]; n != want {
			t.Errorf("acknowledged %v, want %v", n, want)
		}
	}
	b.pending(relay, 0)

	b.call(other, http.MethodPost, "/v1/bridge/send", map[string]any{"agent": "echo", "message": "x", "session_id": session}, http.StatusNotFound)
	b.call(other, http.MethodGet, "/v1/runs/"+first["run_id"].(string), nil, http.StatusNotFound)
	if run := b.call(relay, http.MethodGet, "/v1/runs/"+first["run_id"].(string), nil, http.StatusOK); run["status"] != "completed" || run["reply"] != first["reply"] {
		t.Errorf("the run is %v", run)
	}
	events := b.call(relay, http.MethodGet, "/v1/runs/"+first["run_id"].(string)+"/events?limit=1", nil, http.StatusOK)
	if list, _ := events["events"].([]any); len(list) != 1 || !isTrue(events["has_more"]) {
		t.Errorf("events %v", events)
	}
	// one outside conversation is one session
	for i := range 2 {
		run := b.call(relay, http.MethodPost, "/v1/bridge/send", map[string]any{
			"agent": "teller", "message": fmt.Sprint("part ", i), "wait": true,
			"client_context": map[string]any{"external_conversation_id": "C1", "external_message_id": fmt.Sprint("c", i), "sender_id": "U 1"},
		}, http.StatusOK)
		if i == 1 && !strings.Contains(fmt.Sprint(run["reply"]), "user=part 0|assistant=history:") {
			t.Errorf("the second message has the history %v", run["reply"])
		}
	}
	own := b.call(relay, http.MethodPost, "/v1/bridge/queue", map[string]any{"agent": "echo", "content": "note to self", "queue_id": "17"}, http.StatusCreated)
	if own["client_id"] != "relay" {
		t.Errorf("queued %v", own)
	}
	b.call(other, http.MethodPost, "/v1/bridge/queue", map[string]any{"agent": "echo", "content": "mine", "queue_id": "17"}, http.StatusBadRequest)
}
