package e2e

import (
	"fmt"
	"strings"
	"testing"

	"inbox/e2e/instance"
)

// asksBoth asks an agent here and one elsewhere at once and says what they said.
func asksBoth(here, there string) func(request modelRequest) string {
	return func(request modelRequest) string {
		var results []string
		for _, message := range request.Messages {
			if strings.Contains(string(message), `"role":"tool"`) {
				results = append(results, string(message))
			}
		}
		all := strings.Join(results, " ")
		switch {
		case len(results) == 0:
			two := calling("call_1", "ask_agent", fmt.Sprintf(`{"agent":%q,"message":"rain here?"}`, here))
			other := strings.ReplaceAll(calling("call_2", "ask_agent", fmt.Sprintf(`{"agent":%q,"message":"rain there?"}`, there)), `"index":0,"id"`, `"index":1,"id"`)
			other = strings.ReplaceAll(other, `{"index":0,"function"`, `{"index":1,"function"`)
			first, second := strings.Split(two, "\n"), strings.Split(other, "\n")
			return strings.Join([]string{first[0], first[1], second[0], second[1], first[2]}, "\n")
		case strings.Contains(all, "rain here?") && strings.Contains(all, "rain there?") && strings.Contains(all, "text from outside"):
			return strings.Replace(saidHello, "from the model.", "they both answered.", 1)
		}
		return strings.Replace(saidHello, "from the model.", "something is missing.", 1)
	}
}

func TestModelAsksAgentsHereAndElsewhere(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		hostA, hostB := freeAddress(t), freeAddress(t)
		b := start(t, instance.Settings{HTTP: hostB, Agents: "[[agents]]\nname = \"echo\"\nkind = \"echo\"\nanswer_agents = true\nunverified = \"answer\"\n"})
		token, err := b.Token(t.Context(), "a-server")
		if err != nil {
			t.Fatal(err)
		}
		provider := startModel(t, asksBoth("@echo@"+hostA, "@echo@"+hostB))
		a := start(t, instance.Settings{Database: database, HTTP: hostA, More: peerTable(hostB, token), Agents: fmt.Sprintf(
			"[[agents]]\nname = \"memory\"\nkind = \"llm\"\n[agents.llm]\nbase_url = %q\nmodel = \"scripted\"\nagents = [%q, %q]\n"+
				"[[agents]]\nname = \"echo\"\nkind = \"echo\"\nanswer_agents = true\n",
			provider.URL, "@echo@"+hostA, "@echo@"+hostB)})
		peer := a.a2aPeer("memory", "ann")
		if text := answered(t, peer, "will it rain?"); !strings.Contains(text, "they both answered.") {
			t.Errorf("the model answered %q", text)
		}
		shown := a.inbox("show", "message-will it rain?")
		for _, want := range []string{"run.waits          dispatch for ask_agent, 2 calls", "dispatch.called", "dispatch.answered", "tool.called        ask_agent succeeded"} {
			if !strings.Contains(shown, want) {
				t.Errorf("the timeline lacks %q:\n%s", want, shown)
			}
		}
		provider.mu.Lock()
		defer provider.mu.Unlock()
		if len(provider.asked) != 2 {
			t.Errorf("the model was asked %d times; want 2", len(provider.asked))
		}
	})
}
