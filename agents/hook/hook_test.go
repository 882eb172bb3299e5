package hook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inbox/agents/hook"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/internal/webhooksignature"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a secret of the operator"

// program is a hook that answers with one function and keeps what it was sent.
type program struct {
	*hook.Hook

	mu     sync.Mutex
	bodies []string
}

func start(t *testing.T, timeout time.Duration, answer func(w http.ResponseWriter, attempt int)) *program {
	t.Helper()
	p := &program{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !webhooksignature.Verify(secret, body, r.Header.Get(webhooksignature.Header), webhooksignature.Form{}) {
			t.Errorf("the signature %q is not that of the body", r.Header.Get(webhooksignature.Header))
		}
		p.mu.Lock()
		p.bodies = append(p.bodies, string(body))
		attempt := len(p.bodies)
		p.mu.Unlock()
		answer(w, attempt)
	}))
	t.Cleanup(server.Close)

	client := safehttp.New(safehttp.Options{})
	t.Cleanup(client.Close)
	made, err := hook.New(hook.Options{URL: server.URL, Secret: secret, Client: client, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.Close)
	p.Hook = made
	return p
}

func (p *program) sent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.bodies...)
}

func says(status int, body string) func(http.ResponseWriter, int) {
	return func(w http.ResponseWriter, _ int) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestAsk(t *testing.T) {
	for name, test := range map[string]struct {
		answer   func(http.ResponseWriter, int)
		requests int
		failure  string // empty = an answer
	}{
		"an object":  {says(200, `{"action":"proceed"}`), 1, ""},
		"no content": {says(204, ""), 1, "instead of 200"},
		"no JSON":    {says(200, "proceed"), 1, "not JSON"},
		"a list":     {says(200, `["proceed"]`), 1, "not a JSON object"},
		"too deep":   {says(200, strings.Repeat(`{"a":`, 70)+"1"+strings.Repeat("}", 70)), 1, "not JSON"},
		"too large":  {says(200, `{"a":"`+strings.Repeat("x", hook.MaxAnswerBytes)+`"}`), 1, "over 1 MiB"},
		"a refusal":  {says(401, "{}"), 1, "401"},
		"a redirect": {says(302, "{}"), 1, "302"},
		"down":       {says(503, "{}"), 3, "503"},
		"down for a while": {func(w http.ResponseWriter, attempt int) {
			says(map[bool]int{true: 200, false: 429}[attempt == 3], "{}")(w, attempt)
		}, 3, ""},
	} {
		p := start(t, time.Minute, test.answer)
		answer, err := p.Ask(t.Context(), hook.Question{Hook: hook.KindCall, ID: "q1"})
		if failed := test.failure != ""; failed != (err != nil) || failed && !strings.Contains(err.Error(), test.failure) || !failed && answer == nil {
			t.Errorf("%s: %v %v", name, answer, err)
		}
		if sent := p.sent(); len(sent) != test.requests || sent[0] != sent[len(sent)-1] {
			t.Errorf("%s: %d requests; want %d equal ones", name, len(sent), test.requests)
		}
	}
}

func TestAskEndsWithItsTime(t *testing.T) {
	over := make(chan struct{})
	p := start(t, 50*time.Millisecond, func(http.ResponseWriter, int) { <-over })
	_, err := p.Ask(t.Context(), hook.Question{Hook: hook.KindCall})
	close(over)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a program that says nothing: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	client := safehttp.New(safehttp.Options{})
	t.Cleanup(client.Close)
	for name, options := range map[string]hook.Options{
		"no address":    {Secret: "s", Client: client},
		"a user":        {URL: "https://u:p@h/", Secret: "s", Client: client},
		"no secret":     {URL: "https://h/", Client: client},
		"one secret":    {URL: "https://h/", Secret: "s", PreviousSecret: "s", Client: client},
		"no client":     {URL: "https://h/", Secret: "s"},
		"negative time": {URL: "https://h/", Secret: "s", Client: client, Timeout: -1},
	} {
		if _, err := hook.New(options); !fault.Is(err, fault.Malformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// numbers reads what a program was sent: the sequence of events, repeats left out, and a violation when a repeat differs.
func numbers(t *testing.T, bodies []string) string {
	t.Helper()
	seen, order := map[int64]string{}, []string{}
	for _, body := range bodies {
		var told hook.Events
		if err := json.Unmarshal([]byte(body), &told); err != nil {
			t.Fatal(err)
		}
		for _, event := range told.Events {
			encoded, _ := json.Marshal(event)
			before, again := seen[event.Sequence]
			if again && before != string(encoded) {
				t.Errorf("event %d came as %s and as %s", event.Sequence, before, encoded)
			}
			if !again {
				order = append(order, fmt.Sprintf("%d:%s", event.Sequence, event.Type))
			}
			seen[event.Sequence] = string(encoded)
		}
	}
	return strings.Join(order, " ")
}

func TestOutboxTellsInOrder(t *testing.T) {
	p := start(t, time.Minute, func(w http.ResponseWriter, attempt int) {
		says(map[bool]int{true: 500, false: 204}[attempt == 1], "")(w, attempt)
	})
	outbox := p.NewOutbox(hook.Run{ID: "r", Attempt: 1}, hook.Principal{})
	outbox.Add("a", map[string]any{"n": 1})
	outbox.Add("b", map[string]any{"text": strings.Repeat("x", 9<<10), "tool_name": "t"})
	outbox.Keep()
	outbox.Kept()
	outbox.Add("c", nil)
	outbox.Keep()
	outbox.Kept()
	outbox.Add("never kept", nil)
	if left, err := outbox.Close(t.Context()); left != 0 || err != nil {
		t.Errorf("%d events are left: %v", left, err)
	}
	sent := p.sent()
	if got := numbers(t, sent); got != "1:a 2:b 3:c" {
		t.Errorf("the observer heard %s", got)
	}
	if !strings.Contains(sent[0], `"omitted_bytes":9`) || !strings.Contains(sent[0], `"tool_name":"t"`) {
		t.Errorf("a large payload is told as %s", sent[0])
	}
}

func TestOutboxGoesOnAfterACrash(t *testing.T) {
	hold := make(chan struct{})
	down := start(t, 100*time.Millisecond, func(w http.ResponseWriter, _ int) { <-hold })
	first := down.NewOutbox(hook.Run{ID: "r", Attempt: 1}, hook.Principal{})
	first.Add("a", map[string]any{"n": 1, "at": "<&>"})
	first.Add("b", nil)
	kept := first.Keep()
	first.Kept()
	await.Until(t, "the observer is told", func() bool { return len(down.sent()) > 0 })
	if left, err := first.Close(t.Context()); left != 2 || err == nil {
		t.Errorf("%d events are left, %v; want 2 and a reason", left, err)
	}
	close(hold)

	up := start(t, time.Minute, says(200, ""))
	encoded, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	var read hook.State
	if err := json.Unmarshal(encoded, &read); err != nil {
		t.Fatal(err)
	}
	second := up.NewOutbox(hook.Run{ID: "r", Attempt: 2}, hook.Principal{})
	second.Add("c", nil)
	second.Resume(read)
	second.Keep()
	second.Kept()
	if left, err := second.Close(t.Context()); left != 0 {
		t.Errorf("%d events are left: %v", left, err)
	}
	if got := numbers(t, append(down.sent(), up.sent()...)); got != "1:a 2:b 3:c" {
		t.Errorf("the observer heard %s", got)
	}
}

func TestOutboxIsBounded(t *testing.T) {
	p := start(t, time.Minute, says(200, ""))
	outbox := p.NewOutbox(hook.Run{ID: "r"}, hook.Principal{})
	for range hook.MaxWaiting + 5 {
		outbox.Add("e", nil)
	}
	if state := outbox.Keep(); len(state.Waiting) != hook.MaxWaiting || state.Sequence != hook.MaxWaiting+5 {
		t.Errorf("%d events wait, the last number is %d", len(state.Waiting), state.Sequence)
	}
	outbox.Kept()
	if left, err := outbox.Close(t.Context()); left != 0 {
		t.Errorf("%d events are left: %v", left, err)
	}
	if sent := p.sent(); len(sent) != hook.MaxWaiting/100 {
		t.Errorf("%d requests", len(sent))
	}
	wide := p.NewOutbox(hook.Run{ID: "w"}, hook.Principal{})
	for range 100 {
		wide.Add("e", map[string]any{"text": strings.Repeat("x", 8000)})
	}
	size := 0
	for _, event := range wide.Keep().Waiting {
		size += len(event.Payload)
	}
	if size > hook.MaxWaitingBytes || size < hook.MaxWaitingBytes/2 {
		t.Errorf("%d bytes wait", size)
	}
}
