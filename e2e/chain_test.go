package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/identity"
	"inbox/normalized"
)

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
		if asked.Sender.Address != "@helper@"+host || len(asked.Sender.Identities) == 0 {
			t.Errorf("the worker was asked by %s with %+v; want the neighbour with evidence", asked.Sender.Address, asked.Sender.Identities)
		}
	})
}
