package webhook

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// rememberer does its work once per key and answers every repeat with what it remembers. Answers to first attempts are
// lost on their way.
type rememberer struct {
	lose func(http.ResponseWriter)

	mu       sync.Mutex
	answers  map[string]string
	works    int
	attempts []int
}

func (p *rememberer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request Request
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if key == "" || key != request.Turn.IdempotencyKey {
		http.Error(w, "the signed key is another", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attempts = append(p.attempts, request.Turn.Attempt)
	if p.answers[key] == "" {
		p.works++
		p.answers[key] = `{"parts":[{"kind":"text","mime":"text/plain","content":"done"}]}`
		p.lose(w)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, p.answers[key])
}

func cutOff(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func cutInStream(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, delta(`{"kind":"text","text":"do"}`))
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func busy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusServiceUnavailable)
}

func TestRepeatsByKey(t *testing.T) {
	for name, lose := range map[string]func(http.ResponseWriter){"cut off": cutOff, "cut in the stream": cutInStream, "busy afterwards": busy} {
		t.Run(name, func(t *testing.T) {
			program := &rememberer{lose: lose, answers: map[string]string{}}
			agent := startAgent(t, program.ServeHTTP, nil)
			turn := agenttest.Turn("t", question())
			if _, err := attempt(t, agent, turn); err == nil || fault.Of(err).Permanent {
				t.Fatalf("the lost answer: %v", err)
			}
			turn.Attempt = 2
			deltas, err := attempt(t, agent, turn)
			if err != nil || len(folded(t, deltas).Parts) != 1 {
				t.Fatalf("the repeat: %v", err)
			}
			if program.works != 1 || len(program.attempts) != 2 || program.attempts[1] != 2 {
				t.Errorf("worked %d times in the attempts %v", program.works, program.attempts)
			}
			turn.Message.PolicyResolution = &policypart.Resolution{Kind: policypart.ConsentRequired, Outcome: policypart.OutcomeGranted}
			_, _ = attempt(t, agent, turn) // net/http itself repeats a request with a key when a kept connection was closed
			if program.works != 2 {
				t.Errorf("the turn that was taken up again is taken for a repeat: worked %d times", program.works)
			}
		})
	}
}

func attempt(t *testing.T, agent *Agent, turn agents.Turn) (deltas []normalized.Delta, err error) {
	t.Helper()
	for delta, err := range agent.Handle(t.Context(), turn) {
		if err != nil {
			return deltas, err
		}
		deltas = append(deltas, delta)
	}
	return deltas, nil
}

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
