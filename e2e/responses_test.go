package e2e

import (
	"slices"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// TestResponsesOfSDKs: SDKs that use OpenAI's responses by default talk to an agent with nothing set but the address and the key.
func TestResponsesOfSDKs(t *testing.T) {
	t.Parallel()
	model := startChatModel(t)
	s := start(t, model.agents())
	key := lastLine(s.inbox("tokens", "create", "app"))
	_, output := node(t, "openai/responses.mjs", s.URL()+"/v1", key, "counter")

	type refusal struct {
		Status     int
		Type, Code string
	}
	var seen struct {
		Whole struct {
			Text, Status, Ticket, Stored, StoredTicket string
			Usage                                      int
		}
		Second struct {
			Text     string
			Previous bool
		}
		Events   []string
		Numbered bool
		Streamed struct {
			Text, Status string
			Usage        int
		}
		Refused        struct{ Failed, Unknown, Stream refusal }
		Agents, Vercel []string
		Finish         []any
	}
	readJSON(t, output, &seen)

	const said = "One, two, three."
	if whole := seen.Whole; whole.Text != said || whole.Status != "completed" || whole.Usage != 15 || whole.Ticket != "7" || whole.Stored != said || whole.StoredTicket != "7" {
		t.Errorf("whole: %+v", whole)
	}
	if seen.Second.Text != said || !seen.Second.Previous {
		t.Errorf("second: %+v", seen.Second)
	}
	events := []string{
		"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
		"response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed",
	}
	if !slices.Equal(seen.Events, events) || !seen.Numbered || seen.Streamed.Text != said || seen.Streamed.Status != "completed" || seen.Streamed.Usage != 15 {
		t.Errorf("streamed: %q %v %+v", seen.Events, seen.Numbered, seen.Streamed)
	}
	if r := seen.Refused; r.Failed != (refusal{500, "", "model:rejected"}) || r.Unknown != (refusal{400, "", "previous_response_not_found"}) || r.Stream != (refusal{0, "response.failed", "model:rejected"}) {
		t.Errorf("refused: %+v", r)
	}
	if !slices.Equal(seen.Agents, slices.Repeat([]string{said}, 5)) {
		t.Errorf("the Agents SDK saw %q", seen.Agents)
	}
	if !slices.Equal(seen.Vercel, slices.Repeat([]string{said}, 3)) || !slices.Equal(seen.Finish, []any{"stop", "stop", "stop", 15.0}) {
		t.Errorf("the AI SDK saw %q %v", seen.Vercel, seen.Finish)
	}

	// A conversation reaches the model once, whether the server keeps it, the client sends it, or refers to it.
	model.mu.Lock()
	defer model.mu.Unlock()
	for last, before := range map[string][]string{
		"second question": {"Be brief.", "first question", said}, "agents again": {"Be brief.", "agents question", said},
		"agents chained": {"agents question", said}, "vercel again": {"vercel question", said},
	} {
		at := slices.IndexFunc(model.heard, func(heard string) bool { return strings.Contains(heard, last) })
		if at < 0 {
			t.Errorf("the model never heard %q", last)
			continue
		}
		for _, words := range before {
			if count := strings.Count(model.heard[at], words); count != 1 && words != "Be brief." || count == 0 {
				t.Errorf("before %q the model hears %q %d times: %s", last, words, count, model.heard[at])
			}
		}
	}
}

// TestResponsesOfSDKsWithTools: the same SDKs execute a tool for an agent.
func TestResponsesOfSDKsWithTools(t *testing.T) {
	t.Parallel()
	s := start(t, instance.Settings{Agents: shelf(startModel(t, looksUp), "1h", "") + "asker = true\n"})
	key := lastLine(s.inbox("tokens", "create", "app"))
	_, output := node(t, "openai/responsetools.mjs", s.URL()+"/v1", key, "memory")
	var seen struct{ OpenAI, Agents, Vercel, Asked []string }
	readJSON(t, output, &seen)

	want := slices.Repeat([]string{"Well: Yes, there are three."}, 2)
	for name, got := range map[string][]string{"OpenAI's SDK": seen.OpenAI, "the Agents SDK": seen.Agents, "the AI SDK": seen.Vercel} {
		if !slices.Equal(got, want) {
			t.Errorf("%s saw %q", name, got)
		}
	}
	if !slices.Equal(seen.Asked, slices.Repeat([]string{"milk"}, 6)) {
		t.Errorf("executed: %q", seen.Asked)
	}
}
