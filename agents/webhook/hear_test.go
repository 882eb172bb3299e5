package webhook

import (
	"io"
	"net/http"
	"testing"
	"time"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/fault"
)

var _ agents.Listener = (*Agent)(nil)

func TestHear(t *testing.T) {
	var status int
	var body, key, signature string
	agent := startAgent(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body, key, signature = string(text), r.Header.Get("Idempotency-Key"), r.Header.Get(SignatureHeader)
		w.WriteHeader(status)
	}, func(o *Options) { o.Events = true })
	event := exchange.AgentEvent{
		ID: "e1", Kind: exchange.EventDeliveryBounced, Agent: "echo", TurnID: "t1", MessageID: "m1", ThreadID: "th", Recipient: "ann@peer.test",
		Reason: "bounced: 5.1.1", At: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
	}
	for _, test := range []struct {
		status           int
		taken, permanent bool
	}{{200, true, false}, {204, true, false}, {404, false, true}, {429, false, false}, {503, false, false}} {
		status = test.status
		err := agent.Hear(t.Context(), event)
		if (err == nil) != test.taken || err != nil && fault.Of(err).Permanent != test.permanent {
			t.Errorf("%d: %v", test.status, err)
		}
	}
	const want = `{"event":{"id":"e1","kind":"delivery.bounced","agent":"echo","turn_id":"t1","message_id":"m1","thread_id":"th",` +
		`"recipient":"ann@peer.test","reason":"bounced: 5.1.1","at":"2026-11-21T12:00:00Z"}}`
	if body != want || key != "e1" || signature == "" || !agent.Hears() {
		t.Errorf("%s under key %s, signature %q", body, key, signature)
	}
}
