package e2e

import (
	"io"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// TestOpenAIClient talks to an agent with OpenAI's own SDK for JavaScript.
func TestOpenAIClient(t *testing.T) {
	model := startChatModel(t)
	s := start(t, model.agents())
	key := lastLine(s.inbox("tokens", "create", "app"))
	input, output := node(t, "openai/client.mjs", s.URL()+"/v1", key, "counter")
	type usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Total      int `json:"total_tokens"`
	}
	type refusal struct {
		Type, Code string
		Status     int
	}
	var seen struct {
		Models []string
		Model  string
		Whole  struct {
			Text, Finish, ID string
			Usage            usage
		}
		Stream struct {
			Text, Finish string
			Chunks       int
			Usage        usage
		}
		Helper, Address string
		Repeated        struct {
			Text string
			Sent int
		}
		Refused struct{ Key, Model, Failed, FailedStream, Two refusal }
	}
	readJSON(t, output, &seen)
	const said = "One, two, three."
	if strings.Join(seen.Models, " ") != "counter echo closed" || seen.Model != "counter" {
		t.Errorf("models %q, %q", seen.Models, seen.Model)
	}
	if seen.Whole.Text != said || seen.Whole.Finish != "stop" || (seen.Whole.Usage != usage{11, 4, 15}) || !strings.HasPrefix(seen.Whole.ID, "chatcmpl-") {
		t.Errorf("whole answer %+v", seen.Whole)
	}
	if seen.Stream.Text != said || seen.Stream.Finish != "stop" || (seen.Stream.Usage != usage{11, 4, 15}) || seen.Stream.Chunks < 3 {
		t.Errorf("streamed answer %+v", seen.Stream)
	}
	if seen.Repeated.Text != said || seen.Repeated.Sent != 2 || seen.Address != "counter" {
		t.Errorf("repeated %+v, address %q", seen.Repeated, seen.Address)
	}
	if seen.Helper != said {
		t.Errorf("the SDK's helper has %q", seen.Helper)
	}
	for what, test := range map[string]struct {
		got    refusal
		kind   string
		status int
		code   string
	}{
		"key": {seen.Refused.Key, "AuthenticationError", 401, "invalid_api_key"}, "model": {seen.Refused.Model, "NotFoundError", 404, "model_not_found"},
		"failed":      {seen.Refused.Failed, "InternalServerError", 500, "agent_failed"},
		"two answers": {seen.Refused.Two, "BadRequestError", 400, "malformed"}, "failed stream": {seen.Refused.FailedStream, "APIError", 0, "agent_failed"},
	} {
		if test.got.Type != test.kind || test.got.Status != test.status || test.got.Code != test.code {
			t.Errorf("%s: %+v", what, test.got)
		}
	}
	if asked := model.asked.Load(); asked != 7 { // whole, streamed, the helper, two failures, one that is repeated, one that is left
		t.Errorf("the model was asked %d times", asked)
	}
	model.release()
	if _, err := io.WriteString(input, "back\n"); err != nil {
		t.Fatal(err)
	}
	var back struct{ Text string }
	if readJSON(t, output, &back); back.Text != said || model.asked.Load() != 7 {
		t.Errorf("who comes back hears %q after %d questions to the model", back.Text, model.asked.Load())
	}
	// Each request brings its whole conversation, and nothing of it is told twice.
	model.mu.Lock()
	defer model.mu.Unlock()
	for _, conversation := range model.heard[:3] {
		for _, said := range []string{"first question", "first answer", "second question"} {
			if count := strings.Count(conversation, said); count != 1 {
				t.Errorf("the model hears %q %d times: %s", said, count, conversation)
			}
		}
	}
}

// TestOpenAIClientTools: the tool runner of OpenAI's SDK executes a tool for an agent.
func TestOpenAIClientTools(t *testing.T) {
	s := start(t, instance.Settings{Agents: shelf(startModel(t, looksUp), "1h", "") + "asker = true\n"})
	key := lastLine(s.inbox("tokens", "create", "app"))
	_, output := node(t, "openai/tools.mjs", s.URL()+"/v1", key, "memory")
	var seen struct {
		Whole, Streamed string
		Asked           []string
	}
	if readJSON(t, output, &seen); seen.Whole != "Well: Yes, there are three." || seen.Streamed != seen.Whole || strings.Join(seen.Asked, "+") != "milk+milk" {
		t.Errorf("the SDK saw %+v", seen)
	}
}
