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
	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/normalized"
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

// passesOn asks another agent and tells what it said.
func passesOn(to string) func(message normalized.Message) normalized.Response {
	return func(message normalized.Message) normalized.Response {
		if trace := message.ReceivedTrace; trace != nil {
			return say("It says: " + textOf(trace.Parts))
		}
		return normalized.Response{Dispatch: []normalized.Dispatch{{
			To: to, Parts: []normalized.Part{normalized.Text("asked to help with: " + textOf(message.Parts))},
		}}}
	}
}

const calleeRules = `access = "rules"
[[agents.rules]]
effect = "allow"
issuer = %q
method = "urn:mentionable:auth:a2a-agent:v0.1"
`

func trustTable(issuer string, prefixes ...string) string {
	return fmt.Sprintf(`[[trust]]
issuer = %q
methods = ["urn:mentionable:auth:a2a-agent:v0.1", "urn:mentionable:auth:ap-http-signature:v0.1"]
assurance = ["agent", "address"]
subject_prefixes = ["%s"]
allow_delegated = true
`, issuer, strings.Join(prefixes, `", "`))
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := instance.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestAgentCallsAgentOnAnotherServer(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		community := startFediverse(t, 1)
		hostA, hostB := freeAddress(t), freeAddress(t)
		callee := startScripted(t, func(message normalized.Message) normalized.Response { return say("42, gladly") })
		rules := callee.table("worker", fmt.Sprintf(calleeRules, hostA))
		b := start(t, instance.Settings{
			HTTP: hostB, Agents: rules, More: trustTable(hostA, "http://"+hostA+"/", "https://"+hostA+"/", community.Origin+"/"),
		})
		token, err := b.Token(t.Context(), "a-server")
		if err != nil {
			t.Fatal(err)
		}
		caller := startScripted(t, passesOn("@worker@"+hostB))
		a := start(t, instance.Settings{
			Database: database, HTTP: hostA, Agents: caller.table("helper", ""), More: peerTable(hostB, token),
		})

		_, answer := community.ask(a, "helper", 0, "what is six times seven?")
		if !strings.Contains(answer, "It says: 42, gladly") {
			t.Errorf("the asker reads %s", answer)
		}
		asked := callee.last(t)
		place := slices.IndexFunc(asked.Sender.Identities, func(e identity.Evidence) bool { return e.Issuer == hostA && len(e.OnBehalfOf) > 0 })
		if place < 0 {
			t.Fatalf("B sees no evidence with issuer %s: %+v", hostA, asked.Sender.Identities)
		}
		if on := asked.Sender.Identities[place].OnBehalfOf; !slices.Contains(on, community.Persons[0].ID) {
			t.Errorf("B sees the call on behalf of %v; want %s", on, community.Persons[0].ID)
		}
		if chain := asked.RecipientCapabilities.AgentChain; chain == nil || chain.Hop != 1 {
			t.Errorf("B sees the chain %+v; want hop 1", chain)
		}

		b.stop()
		b.Settings.More = ""
		if err := b.Configure(); err != nil {
			t.Fatal(err)
		}
		b.start()
		before := len(callee.questions())
		_, answer = community.ask(a, "helper", 0, "and seven times eight?")
		if strings.Contains(answer, "42, gladly") || len(callee.questions()) != before {
			t.Errorf("without trust B still answers: %s", answer)
		}
		codes := auditCodes(t, b.Instance)
		for _, want := range []string{"evidence:untrusted_issuer", "access:no_rule"} {
			if !slices.Contains(codes, want) {
				t.Errorf("B has on record %v; want %s", codes, want)
			}
		}
	})
}

func peerTable(domain, token string) string {
	return fmt.Sprintf("[[peers]]\ndomain = %q\ntoken = %q\n", domain, token)
}

func TestHopCeilingStopsTheCircle(t *testing.T) {
	t.Parallel()
	hostA, hostB := freeAddress(t), freeAddress(t)
	first := startScripted(t, passesOn("@second@"+hostB))
	second := startScripted(t, passesOn("@first@"+hostA))
	const ceiling = "max_hops = 2"
	b := start(t, instance.Settings{HTTP: hostB, Agents: second.table("second", ceiling)})
	a := start(t, instance.Settings{HTTP: hostA, Agents: first.table("first", ceiling)})
	tokenA, err := a.Token(t.Context(), "b-server")
	if err != nil {
		t.Fatal(err)
	}
	tokenB, err := b.Token(t.Context(), "a-server")
	if err != nil {
		t.Fatal(err)
	}
	for s, more := range map[*server]string{a: peerTable(hostB, tokenB), b: peerTable(hostA, tokenA)} {
		s.stop()
		s.Settings.More = more
		if err := s.Configure(); err != nil {
			t.Fatal(err)
		}
		s.start()
	}
	peer := a.a2aPeer("first", "ann")
	task, err := peer.Send(t.Context(), load.SendBody("circle", "go round", false))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the circle ends", func() bool {
		if task, err = peer.Get(t.Context(), task.ID); err != nil {
			t.Fatal(err)
		}
		return task.Status.State == completed || task.Status.State == "TASK_STATE_FAILED"
	})
	var hops []int
	for _, message := range first.questions() {
		if chain := message.RecipientCapabilities.AgentChain; chain != nil {
			hops = append(hops, chain.Hop)
		}
	}
	if len(hops) == 0 || slices.Max(hops) != 2 {
		t.Errorf("the first agent was called at the hops %v; want 2 at most, and 2 reached", hops)
	}
	for _, message := range second.questions() {
		if chain := message.RecipientCapabilities.AgentChain; chain == nil || chain.Hop > 1 {
			t.Errorf("the second agent was called with the chain %+v; the ceiling is 2", chain)
		}
	}
	if codes := auditCodes(t, a.Instance); !slices.Contains(codes, "chain:stripped") {
		t.Errorf("A has on record %v; want chain:stripped", codes)
	}
}

//contract:shows message-38
func TestAgentsOfOneServerReachEachOther(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		host := freeAddress(t)
		worker := startScripted(t, func(normalized.Message) normalized.Response { return say("done by the neighbour") })
		helper := startScripted(t, passesOn("@worker@"+host))
		s := start(t, instance.Settings{Database: database, HTTP: host, Agents: helper.table("helper", "") + worker.table("worker", "")})
		peer := s.a2aPeer("helper", "ann")
		task, err := peer.Send(t.Context(), load.SendBody("local", "help", false))
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the task completes", func() bool {
			if task, err = peer.Get(t.Context(), task.ID); err != nil {
				t.Fatal(err)
			}
			return task.Status.State == completed
		})
		if text := texts(task); !strings.Contains(text, "It says: done by the neighbour") {
			t.Errorf("the task says %q", text)
		}
		asked := worker.last(t)
		if asked.Sender.Address.String() != "@helper@"+host || len(asked.Sender.Identities) == 0 {
			t.Errorf("the worker was asked by %s with %+v; want the neighbour with evidence", asked.Sender.Address.String(), asked.Sender.Identities)
		}
	})
}
