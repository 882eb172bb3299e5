package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// cellar is an Archive in memory.
type cellar struct {
	kept   map[string][]envelope.Envelope
	broken error
}

func (s *cellar) Keep(_ context.Context, _ agents.Turn, id string, items []envelope.Envelope) error {
	if s.broken != nil {
		return s.broken
	}
	if s.kept == nil {
		s.kept = map[string][]envelope.Envelope{}
	}
	s.kept[id] = items
	return nil
}

// narrow is a model that refuses more than so many bytes, as providers do, and summarizes what it is given to summarize.
func narrow(room int, asked *[]Request, turns ...[]Delta) Provider {
	at := 0
	return modelFunc(func(_ context.Context, request Request, yield func(Delta) bool) error {
		size := 0
		for _, message := range request.Messages {
			for _, block := range message.Blocks {
				size += len(block.Text) + len(block.Arguments)
			}
		}
		if size > room {
			said := &refusal{status: http.StatusBadRequest, kind: "invalid_request_error", message: fmt.Sprintf("This model's maximum context length is %d tokens", room/4)}
			return said.fault(0)
		}
		*asked = append(*asked, request)
		next := says("SUMMARY")
		if request.System != howToSummarize {
			next = turns[min(at, len(turns)-1)]
			at++
		}
		for _, delta := range next {
			if !yield(delta) {
				return nil
			}
		}
		return nil
	})
}

func allOf(request Request) string {
	var text strings.Builder
	for _, message := range request.Messages {
		for _, block := range message.Blocks {
			text.WriteString(block.Kind + ":" + block.Text + string(block.Arguments) + "\n")
		}
	}
	return text.String()
}

// talked is a turn with a long conversation before it.
func talked(name string, messages, bytes int) agents.Turn {
	turn := question(name)
	turn.Memory = &memory{}
	turn.Message.History = nil
	for i := range messages {
		role, sender := normalized.RoleUser, turn.Message.Sender
		if i%2 == 1 {
			role, sender = normalized.RoleAssistant, normalized.Sender{Address: identity.Stated(turn.Message.Recipient)}
		}
		turn.Message.History = append(turn.Message.History, normalized.HistoricalMessage{
			ID: fmt.Sprintf("h%d", i), Role: role, Sender: sender, Parts: []normalized.Part{normalized.Text(fmt.Sprintf("turn %d %s", i, strings.Repeat("x", bytes)))},
		})
	}
	return turn
}

func compactions(steps []string) (rows []string) {
	for _, step := range steps {
		if strings.HasPrefix(step, exchange.EventCompacted) {
			rows = append(rows, step)
		}
	}
	return rows
}

func TestLongHistoryIsSummarized(t *testing.T) {
	for name, room := range map[string]int{"over the threshold": 1 << 20, "over what the model can read": 16 << 10} {
		t.Run(name, func(t *testing.T) {
			var asked []Request
			kept := &cellar{}
			threshold := 20 << 10
			if room < threshold {
				threshold = 64 << 10
			}
			agent := newAgent(t, Options{Provider: narrow(room, &asked, says("I remember.")), Compaction: &Compaction{Threshold: threshold, Keep: 4, Archive: kept}})
			turn := talked("long", 40, 1000)
			steps := timed(&turn)
			response, _, err := fold(t.Context(), t, agent, turn)
			if err != nil || texts(response) != "I remember." {
				t.Fatalf("%q %v", texts(response), err)
			}
			final := allOf(asked[len(asked)-1])
			if !strings.Contains(final, "SUMMARY") || strings.Contains(final, "turn 0 ") || !strings.Contains(final, "turn 39 ") || !strings.Contains(plain(final), "<request-CODE from=") {
				t.Errorf("the model reads %s", final)
			}
			if len(kept.kept) != 1 {
				t.Fatalf("%d archives were kept", len(kept.kept))
			}
			for id, items := range kept.kept {
				if rows := compactions(*steps); len(rows) != 1 || !strings.Contains(rows[0], `"status":"compacted","of":"history","messages":40`) || !strings.Contains(rows[0], id) {
					t.Errorf("the timeline says %v", rows)
				}
				if !strings.Contains(items[0].Text(), "turn 0 ") {
					t.Errorf("the archive begins with %s", items[0].Text())
				}
			}
		})
	}
}

// A run with many large results goes on, also after a crash, and never loses its request or its budgets.
func TestLongRunIsSummarized(t *testing.T) {
	var asked []Request
	tools := &toolbox{entries: []tool.Entry{declare("find", nil)}}
	tools.run = func(context.Context, tool.Call) (map[string]any, error) {
		if tools.count() == 7 {
			return nil, errors.New("crash")
		}
		return map[string]any{"success": true, "result": strings.Repeat("y", 6000)}, nil
	}
	var turns [][]Delta
	for i := range 10 {
		turns = append(turns, calls("find", fmt.Sprintf(`{"q":"%d"}`, i)))
		turns[i][0].ID = fmt.Sprintf("call_%d", i)
	}
	agent := newAgent(t, Options{
		Provider: narrow(24<<10, &asked, append(turns, says("Found."))...), Tools: []Tools{tools}, MaxTurns: 20,
		Compaction: &Compaction{Threshold: 16 << 10, Keep: 4, Archive: &cellar{}},
	})
	turn := question("steps")
	turn.Message.History = nil
	turn.Memory = &memory{}
	steps := timed(&turn)
	response, _, err := fold(t.Context(), t, agent, turn)
	if err != nil || texts(response) != "Found." || tools.count() != 10 {
		t.Fatalf("%q %v after %d calls", texts(response), err, tools.count())
	}
	if rows := compactions(*steps); len(rows) == 0 || !strings.Contains(rows[0], `"of":"steps"`) {
		t.Errorf("the timeline says %v", rows)
	}
	for i := range asked {
		if asked[i].System != howToSummarize && !strings.Contains(plain(allOf(asked[i])), "<request-CODE from=") {
			t.Errorf("question %d lost the request", i)
		}
	}
	models := len(asked)
	var again []Request
	other := newAgent(t, Options{
		Provider: narrow(24<<10, &again, says("Still there.")), Tools: []Tools{tools}, MaxTurns: 20,
		Compaction: &Compaction{Threshold: 16 << 10, Keep: 4, Archive: &cellar{}},
	})
	response, _, err = fold(t.Context(), t, other, turn) // the process died before the answer was stored
	if err != nil || texts(response) != "Still there." || tools.count() != 10 {
		t.Fatalf("%q %v after %d calls", texts(response), err, tools.count())
	}
	if len(again) != 1 || !strings.Contains(allOf(again[0]), "SUMMARY") {
		t.Errorf("the second run asked %d times (the first %d): %s", len(again), models, allOf(again[0]))
	}
}

// TestMessagesWithAPictureAreSummarized asks that summaries and archives contain the words of a message with a picture, and that a message
// that is not summarized keeps its picture, also in the next run of the turn.
func TestMessagesWithAPictureAreSummarized(t *testing.T) {
	var asked []Request
	kept, files := &cellar{}, &grown{files: shelf{}}
	tools := &toolbox{entries: []tool.Entry{declare("pay", map[string]any{"action_policy": "preview"})}}
	decides := &owner{}
	agent := newAgent(t, Options{
		Provider: narrow(1<<20, &asked, calls("pay", "{}"), says("Paid.")), Tools: []Tools{tools}, Approvals: decides, Files: files.files,
		Compaction: &Compaction{Threshold: 20 << 10, Keep: 4, Archive: kept},
	})
	turn := talked("pictures", 40, 1000)
	for _, at := range []int{0, 38} {
		history := &turn.Message.History[at]
		history.Parts = append(history.Parts, files.stored("a.png", "image/png", append(tinyPNG(t), byte(at))))
	}
	check := func(final Request) {
		t.Helper()
		pictures := 0
		for _, message := range final.Messages {
			words := ""
			for _, block := range message.Blocks {
				words += block.Text
				if block.Kind == BlockImage {
					pictures++
					if !strings.Contains(words, "turn 38 ") {
						t.Errorf("the picture is after %.300q", words)
					}
				}
			}
		}
		if pictures != 1 || !strings.Contains(allOf(final), "SUMMARY") || strings.Contains(allOf(final), "turn 0 ") {
			t.Errorf("%d pictures in %.500s", pictures, allOf(final))
		}
	}

	if response, _, err := fold(t.Context(), t, agent, turn); err != nil || response.Policy() == nil {
		t.Fatalf("%+v, %v", response, err)
	}
	if !strings.Contains(allOf(asked[0]), "turn 0 ") || len(kept.kept) != 1 {
		t.Errorf("what is summarized begins with %.300s", allOf(asked[0]))
	}
	for _, items := range kept.kept {
		if archived := value.EncodeText(envelope.Values(items[:1])); !strings.Contains(archived, "turn 0 ") {
			t.Errorf("the archive begins with %.300s", archived)
		}
	}
	check(asked[len(asked)-1])

	count := len(asked)
	decides.verdict = map[string]any{"success": true, "result": "paid"}
	if response, _, err := fold(t.Context(), t, agent, turn); err != nil || texts(response) != "Paid." || len(asked) != count+1 {
		t.Fatalf("%q, %v, asked %d times", texts(response), err, len(asked)-count)
	}
	check(asked[count])
}

func TestSummaryOfHistoryIsRemembered(t *testing.T) {
	var asked []Request
	tools := &toolbox{entries: []tool.Entry{declare("pay", map[string]any{"action_policy": "preview"})}}
	decides := &owner{}
	agent := newAgent(t, Options{
		Provider: narrow(1<<20, &asked, calls("pay", "{}"), says("Paid.")), Tools: []Tools{tools}, Approvals: decides,
		Compaction: &Compaction{Threshold: 20 << 10, Keep: 4, Archive: &cellar{}},
	})
	turn := talked("remembered", 40, 1000)
	if response, _, err := fold(t.Context(), t, agent, turn); err != nil || response.Policy() == nil {
		t.Fatalf("%+v %v", response, err)
	}
	decides.verdict = map[string]any{"success": true, "result": "paid"}
	if response, _, err := fold(t.Context(), t, agent, turn); err != nil || texts(response) != "Paid." {
		t.Fatalf("%q %v", texts(response), err)
	}
	summaries := 0
	for i := range asked {
		if asked[i].System == howToSummarize {
			summaries++
		}
	}
	perRun := slices.IndexFunc(asked, func(request Request) bool { return request.System != howToSummarize })
	if summaries != perRun {
		t.Errorf("the history was summarized %d times in calls; the first run needed %d", summaries, perRun)
	}
	if !strings.Contains(allOf(asked[len(asked)-1]), "SUMMARY") {
		t.Error("the second run does not know the summary")
	}
}

func TestWhatCannotBeSummarized(t *testing.T) {
	t.Run("an archive that is down keeps the conversation", func(t *testing.T) {
		var asked []Request
		agent := newAgent(t, Options{Provider: narrow(1<<20, &asked, says("ok")), Compaction: &Compaction{Threshold: 20 << 10, Keep: 4, Archive: &cellar{broken: errors.New("down")}}})
		turn := talked("down", 40, 1000)
		steps := timed(&turn)
		if response, _, err := fold(t.Context(), t, agent, turn); err != nil || texts(response) != "ok" {
			t.Fatalf("%q %v", texts(response), err)
		}
		if final := allOf(asked[len(asked)-1]); !strings.Contains(final, "turn 0 ") {
			t.Error("messages were dropped that nobody kept")
		}
		if rows := compactions(*steps); len(rows) != 1 || !strings.Contains(rows[0], `"status":"failed"`) {
			t.Errorf("the timeline says %v", rows)
		}
	})
	t.Run("too much to read is put away", func(t *testing.T) {
		var asked []Request
		kept := &cellar{}
		agent := newAgent(t, Options{Provider: narrow(1<<20, &asked, says("ok")), Compaction: &Compaction{Threshold: 20 << 10, Keep: 4, ArchiveOver: 30 << 10, Archive: kept}})
		turn := talked("much", 40, 1000)
		steps := timed(&turn)
		if response, _, err := fold(t.Context(), t, agent, turn); err != nil || texts(response) != "ok" {
			t.Fatalf("%q %v", texts(response), err)
		}
		if len(asked) != 1 || !strings.Contains(allOf(asked[0]), archivePrefix) || len(kept.kept) != 1 {
			t.Errorf("asked %d times, kept %d", len(asked), len(kept.kept))
		}
		if rows := compactions(*steps); len(rows) != 1 || !strings.Contains(rows[0], `"status":"archived"`) {
			t.Errorf("the timeline says %v", rows)
		}
	})
	t.Run("a request that is too long alone fails as before", func(t *testing.T) {
		var asked []Request
		agent := newAgent(t, Options{Provider: narrow(2000, &asked, says("ok")), Compaction: &Compaction{Threshold: 20 << 10, Keep: 4, Archive: &cellar{}}})
		turn := talked("request", 0, 0)
		turn.Message.Parts = []normalized.Part{normalized.Text(strings.Repeat("z", 5000))}
		if _, _, err := fold(t.Context(), t, agent, turn); err == nil || !strings.Contains(err.Error(), "maximum context length") {
			t.Errorf("the failure is %v", err)
		}
	})
	t.Run("without compaction a long conversation fails", func(t *testing.T) {
		var asked []Request
		turn := talked("none", 40, 1000)
		if _, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: narrow(16<<10, &asked, says("ok"))}), turn); err == nil {
			t.Error("no failure: the test does not test")
		}
	})
}

func TestTooLong(t *testing.T) {
	for message, want := range map[string]bool{
		"This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.": true,
		"prompt is too long: 212345 tokens > 200000 maximum":                                                  true,
		"the request exceeds the available context size. try increasing the context size":                     true,
		"Input is too long for requested model.":                                                              true,
		"invalid api key":                                                                                     false,
		"max_tokens is too large":                                                                             false,
	} {
		if got := tooLong((&refusal{status: 400, message: message}).fault(0)); got != want {
			t.Errorf("%q: %v", message, got)
		}
	}
	if !tooLong((&refusal{status: 400, kind: "context_length_exceeded"}).fault(0)) || tooLong(errors.New("context length")) || tooLong(nil) {
		t.Error("kinds, other errors and none")
	}
}
