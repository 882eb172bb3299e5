package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"inbox/e2e/instance"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/normalized"
)

// asksOne asks one agent and says what it said.
func asksOne(address string) func(request modelRequest) string {
	return func(request modelRequest) string {
		for _, message := range request.Messages {
			if strings.Contains(string(message), `"role":"tool"`) && strings.Contains(string(message), "it will rain") {
				return strings.Replace(saidHello, "from the model.", "take an umbrella.", 1)
			}
		}
		return calling("call_1", "ask_agent", fmt.Sprintf(`{"agent":%q,"message":"rain?"}`, address))
	}
}

// TestQuestionToAnotherAgentOutlivesACrash: the server dies while another agent thinks about its question. That agent is
// asked once, the person is answered once, and the timeline has each step with what it cost.
func TestQuestionToAnotherAgentOutlivesACrash(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		thinking, held := make(chan struct{}, 4), make(chan struct{})
		release := sync.OnceFunc(func() { close(held) })
		worker := startScripted(t, func(normalized.Message) normalized.Response {
			thinking <- struct{}{}
			<-held
			return say("it will rain")
		})
		t.Cleanup(release) // the worker's server waits for it
		hostA, hostB := freeAddress(t), freeAddress(t)
		b := start(t, instance.Settings{HTTP: hostB, Agents: worker.table("worker", "answer_agents = true")})
		token, err := b.Token(t.Context(), "a-server")
		if err != nil {
			t.Fatal(err)
		}
		provider := startModel(t, asksOne("@worker@"+hostB))
		a := start(t, instance.Settings{Database: database, HTTP: hostA, Lease: "1s", More: peerTable(hostB, token), Agents: fmt.Sprintf(
			"[[agents]]\nname = \"memory\"\nkind = \"llm\"\n[agents.llm]\nbase_url = %q\nmodel = \"scripted\"\nagents = [%q]\n"+
				"[agents.llm.price]\ninput = 1\noutput = 10\ncurrency = \"USD\"\n", provider.URL, "@worker@"+hostB)})
		community := startFediverse(t, 1)
		mention, status := community.knock(a, hostA, "memory", 0, "will it rain?")
		if status != http.StatusAccepted {
			t.Fatalf("answered %d", status)
		}
		await.Receive(t, thinking, "the other agent to be asked")
		a.killed()
		eventually(t, "the question is taken up again", func() bool {
			found, err := a.Column(t.Context(), "SELECT id FROM jobs WHERE attempt > 1")
			return err == nil && len(found) > 0
		})
		a.killed()
		release()
		if answer := community.reply(mention); !strings.Contains(answer, "take an umbrella.") {
			t.Errorf("the answer is %s", answer)
		}
		community.quiet(a)
		if n := len(worker.questions()); n != 1 {
			t.Errorf("the other agent was asked %d times; want once", n)
		}
		if found := states(t, b.Instance); !slices.Equal(found, []string{exchange.StateAnswered}) {
			t.Errorf("the other server has the turns %v; want one", found)
		}
		provider.mu.Lock()
		calls := len(provider.asked)
		provider.mu.Unlock()
		if calls != 2 {
			t.Errorf("the model was called %d times; want 2", calls)
		}
		a.checkSteps(a.turnOf(mention.ActivityID))
	})
}

// checkSteps wants each step of a question to another agent with its cost, printed and from the API.
func (s *server) checkSteps(turn string) {
	s.t.Helper()
	shown := s.inbox("show", turn)
	rest := shown
	for _, want := range []string{
		"Spent     2 model calls, 1 tool call, 18 tokens in, 8 out, 0.000098 USD", "turn.running",
		"model.called       call 1 of scripted, ", "9 tokens in, 4 out, 0.000049 USD, stop tool_calls", "run.waits          dispatch for ask_agent",
		"turn.waiting", "dispatch.called", "dispatch.answered", "tool.called        ask_agent succeeded, ",
		"model.called       call 2 of scripted, ", "0.000049 USD, stop end", "turn.answered",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			s.t.Fatalf("the timeline lacks %q after what came before:\n%s", want, shown)
		}
		rest = after
	}
	var answer struct {
		Spent  exchange.Spent
		Events []exchange.Event
	}
	status, body := s.api(http.MethodGet, "/turns/"+turn, s.adminToken())
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK {
		s.t.Fatalf("the API answers %d %s: %v", status, body, err)
	}
	if sum := answer.Spent; sum.ModelCalls != 2 || sum.ToolCalls != 1 || sum.Input != 18 || sum.Output != 8 || sum.Cost != 0.000098 || sum.Currency != "USD" {
		s.t.Errorf("the API says that the turn took %+v", sum)
	}
	var steps []string
	for _, event := range answer.Events {
		switch event.Kind {
		case "model.called", "tool.called", "run.waits":
			steps = append(steps, event.Kind)
		}
		if event.Kind == "model.called" && !strings.Contains(string(event.Body), `0.000049`) {
			s.t.Errorf("a call of the model costs %s", event.Body)
		}
	}
	if want := []string{"model.called", "run.waits", "tool.called", "model.called"}; !slices.Equal(steps, want) {
		s.t.Errorf("the API gives the steps %v; want %v", steps, want)
	}
}
