package pipeline_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/internal/telemetry"
	"inbox/normalized"
)

// logLines keeps the lines of a log.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logLines) all(t *testing.T) (lines []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		attributes := map[string]any{}
		if err := json.Unmarshal([]byte(line), &attributes); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, attributes)
	}
	return lines
}

// steps waits for so many lines and returns their texts.
func (l *logLines) steps(t *testing.T, want int) (texts []string) {
	t.Helper()
	await.Until(t, "the lines of the log", func() bool { return len(l.all(t)) >= want })
	for _, line := range l.all(t) {
		texts = append(texts, line["msg"].(string))
	}
	return texts
}

// fails is an agent that never answers.
func fails(context.Context, agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(yield func(normalized.Delta, error) bool) {
		yield(normalized.Delta{}, fault.GiveUp("the agent is out of order", nil))
	}
}

// TestEachStepIsOneLine: the log of one message has one line for each of its steps, in their order, and no word of it.
func TestEachStepIsOneLine(t *testing.T) {
	tests := map[string]struct {
		agent  agents.Func
		refuse func(exchange.Delivery) error
		want   []string
	}{
		"answered": {repeats, nil, []string{"message accepted", "run begins", "message answered", "answer delivered"}},
		"delivered at the second attempt": {repeats, func(d exchange.Delivery) error {
			if d.Attempt == 1 {
				return errors.New("451 come again")
			}
			return nil
		}, []string{"message accepted", "run begins", "message answered", "delivery will be repeated", "answer delivered"}},
		"not delivered": {repeats, func(exchange.Delivery) error { return fault.GiveUp("550 no such user", nil) },
			[]string{"message accepted", "run begins", "message answered", "delivery is dead"}},
		"failed": {fails, nil, []string{"message accepted", "run begins", "turn failed", "answer delivered"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachDatabase(t, func(t *testing.T, url string) {
				var lines logLines
				log, err := telemetry.NewLogger(&lines, "info", "json")
				if err != nil {
					t.Fatal(err)
				}
				e := startSeen(t, url, test.agent, agents.Settings{}, log, nil)
				e.peer.refuse = test.refuse
				in := message("m1")
				in.Message.ID = strings.Repeat("long", 200) + "@peer.test"
				receipt := e.receive(t, in)
				steps := lines.steps(t, len(test.want))
				if steps[0] == "run begins" { // a worker found its job before the one that stored it had said so
					steps[0], steps[1] = steps[1], steps[0]
				}
				if diff := cmp.Diff(test.want, steps); diff != "" {
					t.Error(diff)
				}

				for _, line := range lines.all(t) {
					if _, is := line["ms"].(float64); !is || line["turn"] != receipt.TurnID || line["agent"] != "echo" || line["channel"] != "email" {
						t.Errorf("a line without its message: %v", line)
					}
					if id := line["message_id"].(string); len(id) != 256 || !strings.HasPrefix(in.Message.ID, id) {
						t.Errorf("message_id %q", id)
					}
					if sender := line["sender"].(string); !strings.HasSuffix(sender, "mailto:ana@peer.test") {
						t.Errorf("sender %q", sender)
					}
					if strings.HasPrefix(line["msg"].(string), "deliver") && line["destination"] != "peer.test" {
						t.Errorf("a delivery without its destination: %v", line)
					}
				}
				if text := lines.text.String(); strings.Contains(text, "hello") {
					t.Errorf("the log has words of the message: %s", text)
				}
			})
		})
	}
}
