package pipeline_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/history"
	"inbox/normalized"
)

// brings adds to a message what its sender says was said before it.
func brings(t *testing.T, in exchange.Inbound, earlier ...exchange.Earlier) exchange.Inbound {
	t.Helper()
	route, err := json.Marshal(map[string]any{exchange.RouteHistory: earlier})
	if err != nil {
		t.Fatal(err)
	}
	in.Route = route
	return in
}

// TestSenderBringsTheBeginningOfAThread: what the first message of a thread brings is in every history of the thread as if it had been said here,
// and is trimmed like it. It stays in the row of its message: nothing else is stored, and no one is asked for more.
func TestSenderBringsTheBeginningOfAThread(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		w := &witness{seen: map[string]string{}}
		e := start(t, url, w.agent, agents.Settings{History: history.Policy{KeepHead: 2, Window: 4, Slide: 2}})
		whole := []string{"one", "two", "three", "four"}
		first := brings(t, from("ana", "m0", "thread"),
			exchange.Earlier{Role: normalized.RoleUser, Text: "one"}, exchange.Earlier{Role: normalized.RoleAssistant, Text: "two"},
			exchange.Earlier{Role: normalized.RoleUser, Parts: parts("three")}, exchange.Earlier{Role: normalized.RoleAssistant, Text: "four"},
		)
		for i := range 6 {
			in := first
			if i > 0 {
				in = from("ana", fmt.Sprintf("m%d", i), "thread")
			}
			got, want := w.ask(t, e, in), whole
			if n := len(whole); n > 6 {
				want = slices.Concat(whole[:2], whole[n-4:])
			}
			if got != strings.Join(want, " | ") {
				t.Errorf("message %d saw %q, want %q", i, got, want)
			}
			said := normalized.PlainText(in.Message.Parts)
			whole = append(whole, said, "re: "+said)
		}

		if other := w.ask(t, e, from("ana", "m9", "another thread")); other != "" {
			t.Errorf("another thread saw %q", other)
		}
		if count, err := e.store.State().Count(t.Context(), "pipeline.ancestors"); err != nil || count != 0 {
			t.Errorf("%d documents, %v", count, err)
		}
	})
}
