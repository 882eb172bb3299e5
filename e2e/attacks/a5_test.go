package attacks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// chat asks an agent as a guest, in a session of its own, and says how that ended. An IPv6 guest comes through the proxy.
func (w *world) chat(ctx context.Context, source, agent, text string) string {
	header := http.Header{}
	if strings.Contains(source, ":") {
		header.Set("X-Forwarded-For", source)
		source = proxyAddress
	}
	body := jsonOf(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": map[string]any{
		"message": map[string]any{"parts": []map[string]string{{"type": "text", "text": text}}},
	}})
	status, answer := w.call(ctx, w.client(source), http.MethodPost, "/v1/agent/"+agent, header, body)
	switch { // JSON-RPC says both with 200
	case strings.Contains(string(answer), text):
		return "an answer"
	case strings.Contains(string(answer), "Too many messages"):
		return "too many messages"
	}
	return status
}

// guest writes once and wants an answer.
func (a *watched) guest(source func(n int) string) sender {
	return func(ctx context.Context, n int) (time.Time, <-chan time.Time, error) {
		begun, answer := time.Now(), make(chan time.Time, 1)
		if said := a.chat(ctx, source(n), "open", fmt.Sprintf("an honest guest, %d", n)); said != "an answer" {
			return begun, nil, errors.New("a guest heard: " + said)
		}
		answer <- time.Now()
		return begun, answer, nil
	}
}

// manySessions: each chat session was a sender of its own, so that limits and budgets counted for nothing.
func (a *watched) manySessions() {
	result := a.attack("A5", "200 chat sessions of one address", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 200, 4, func(_, i int) { heard.add(a.chat(ctx, "62.7.1.7", "open", fmt.Sprintf("hello %d", i))) })
	}, a.newcomers(5, "chat", a.guest(func(n int) string { return fmt.Sprintf("62.8.%d.7", n) })))
	a.answered(result, 30, length)
}

// wanderingGuest: an owner of one /56 writes from a /64 of its own each time.
func (a *watched) wanderingGuest() {
	result := a.attack("A5", "250 chat sessions, each from another /64 of one /56", func(ctx context.Context, heard *answers) {
		a.spread(ctx, 250, 4, func(_, i int) {
			heard.add(a.chat(ctx, fmt.Sprintf("2001:db8:7:%x::7", 0x700+i), "open", fmt.Sprintf("hello %d", i)))
		})
	}, a.newcomers(5, "chat", a.guest(func(n int) string { return fmt.Sprintf("2001:db8:8:%x00::7", n+1) })))
	a.answered(result, 120, length)
}

// answered demands that no more than the limit of a minute was answered.
func (a *watched) answered(r *row, inMinute int, took time.Duration) {
	a.t.Helper()
	if most := inMinute * (2 + int(took/time.Minute)); r.answers.get("an answer") > most { // windows are those of the clock
		a.t.Errorf("A5: %d messages were answered, want at most %d", r.answers.get("an answer"), most)
	}
	a.heardOnly(r, "an answer", "too many messages")
	a.cheap(r, 30*time.Millisecond, 100<<20)
}
