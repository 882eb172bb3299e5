package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/agents"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

func TestHopByThread(t *testing.T) {
	chain := func(hop, most int) *normalized.AgentChain { return &normalized.AgentChain{Hop: hop, MaxHops: most} }
	for name, test := range map[string]struct {
		hint, newest *normalized.AgentChain
		ceiling      int
		want         normalized.AgentChain
		exhausted    bool
	}{
		"first":                 {nil, nil, 4, *chainOf(1, 4), false},
		"second":                {nil, chain(1, 4), 4, *chainOf(2, 4), false},
		"last":                  {nil, chain(3, 4), 4, *chainOf(4, 4), false},
		"over":                  {nil, chain(4, 4), 4, *chainOf(4, 4), true},
		"ceiling came down":     {nil, chain(4, 9), 2, *chainOf(2, 2), true},
		"hint is further":       {chain(3, 4), chain(1, 4), 4, *chainOf(3, 4), false},
		"hint is behind":        {chain(1, 4), chain(2, 4), 4, *chainOf(3, 4), false},
		"hint is stricter":      {chain(1, 1), nil, 4, *chainOf(1, 1), false},
		"hint is used up":       {chain(2, 2), chain(2, 4), 4, *chainOf(2, 2), true},
		"hint wants a higher":   {chain(1, 99), nil, 4, *chainOf(1, 4), false},
		"hint is over our own":  {chain(6, 9), nil, 4, *chainOf(4, 4), true},
		"only hop of all":       {nil, nil, 1, *chainOf(1, 1), false},
		"only hop, second time": {nil, chain(1, 1), 1, *chainOf(1, 1), true},
	} {
		got, exhausted := byThread(test.hint, test.newest, test.ceiling)
		if *got != test.want || exhausted != test.exhausted {
			t.Errorf("%s: %+v %v", name, got, exhausted)
		}
	}
}

func TestNextHop(t *testing.T) {
	agent := agents.Entry{Settings: agents.Settings{MaxHops: 3}}
	for name, test := range map[string]struct {
		chain *normalized.AgentChain
		want  normalized.AgentChain
		ok    bool
	}{
		"question of a person":  {nil, normalized.AgentChain{Hop: 1, MaxHops: 3}, true},
		"in the middle":         {chainOf(1, 3), normalized.AgentChain{Hop: 2, MaxHops: 3}, true},
		"lower ceiling of them": {chainOf(1, 2), normalized.AgentChain{Hop: 2, MaxHops: 2, IsFinal: true}, true},
		"final":                 {chainOf(3, 3), normalized.AgentChain{}, false},
		"ceiling came down":     {chainOf(4, 9), normalized.AgentChain{}, false},
	} {
		var turn exchange.TurnRecord
		turn.Message.RecipientCapabilities.AgentChain = test.chain
		got, ok := nextHop(agent, turn)
		if ok != test.ok || ok && got != test.want {
			t.Errorf("%s: %+v %v", name, got, ok)
		}
	}
}

// TestTracesAlwaysFit: whatever other agents answer, the agent that asked gets a trace that keeps the contract.
func TestTracesAlwaysFit(t *testing.T) {
	limits := smallLimits()
	s := New(Options{Limits: limits})
	rapid.Check(t, func(t *rapid.T) {
		var calls []exchange.Dispatch
		for i := range rapid.IntRange(1, maxCalls).Draw(t, "calls") {
			d := exchange.Dispatch{ID: fmt.Sprint("id", i), To: "@b@b.test", ThreadID: "t", Number: i + 1, State: exchange.DispatchDone}
			answer := s.received(d, drawAnswer(t))
			if err := normalized.ValidateTrace(answer, limits); err != nil {
				t.Fatal(err)
			}
			d.Response = &answer
			calls = append(calls, d)
		}
		var turn exchange.TurnRecord
		turn.Message.ID, turn.Message.ThreadID = "m", "t"
		trace := traceOf(turn, calls, limits)
		if err := normalized.ValidateTrace(*trace, limits); err != nil {
			t.Fatal(err)
		}
		for _, d := range calls {
			if d.Response.Outcome() != normalized.StatusCompleted && trace.Outcome() == normalized.StatusCompleted {
				t.Fatal("an answer that is none became a success")
			}
		}
	})
}

// smallLimits are met by small answers.
func smallLimits() normalized.Limits {
	limits := normalized.DefaultLimits()
	limits.Trace, limits.Text, limits.TextPart, limits.ToolJSON = 8<<10, 32<<10, 16<<10, 4<<10
	return limits
}

func drawAnswer(t *rapid.T) normalized.Response {
	r := normalized.Response{Status: rapid.SampledFrom([]string{
		"", normalized.StatusCompleted, normalized.StatusFailed, normalized.StatusInputRequired, "odd",
	}).Draw(t, "status")}
	for range rapid.IntRange(0, 70).Draw(t, "parts") {
		size := rapid.SampledFrom([]int{1, 100, 300, 2 << 10, 20 << 10}).Draw(t, "size")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			r.Parts = append(r.Parts, normalized.Part{
				Kind: normalized.PartToolCall, ID: "1", Name: "n", Result: []byte(`"` + strings.Repeat("x", size) + `"`),
			})
		case 1:
			r.Parts = append(r.Parts, normalized.Text(strings.Repeat("ä\n", size/3)))
		default:
			r.Parts = append(r.Parts, normalized.Text(strings.Repeat("x", size)))
		}
	}
	if rapid.Bool().Draw(t, "demands") {
		kind := rapid.SampledFrom([]string{policypart.ConsentRequired, policypart.Forbidden, "captcha"}).Draw(t, "policy")
		r.Parts = append(r.Parts, normalized.Part{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: kind, Message: "m"}})
	}
	if rapid.Bool().Draw(t, "error") {
		r.Error = &normalized.ResponseError{Code: "x", Message: strings.Repeat("no ", rapid.IntRange(0, 3<<10).Draw(t, "words"))}
	}
	return r
}

// TestCombinedAnswersAlwaysFit: an answer with what others added is an answer like any other.
func TestCombinedAnswersAlwaysFit(t *testing.T) {
	s := New(Options{Limits: smallLimits()})
	rapid.Check(t, func(t *rapid.T) {
		var turn exchange.TurnRecord
		turn.Message.ID, turn.Message.ThreadID = "m", "t"
		turn.Message.RecipientCapabilities.MentionRelay.Kind = normalized.RelayNone
		draft := normalized.Response{Parts: []normalized.Part{normalized.Text("draft")}}.Answering(turn.Message)
		var calls []exchange.Dispatch
		for i := range rapid.IntRange(1, maxCalls).Draw(t, "calls") {
			d := exchange.Dispatch{ID: fmt.Sprint("id", i), To: "@b@b.test", Number: i + 1, Combine: true}
			if rapid.Bool().Draw(t, "answered") {
				answer := s.received(d, drawAnswer(t))
				d.Response = &answer
			}
			calls = append(calls, d)
		}
		joined := s.joined(turn, draft, calls)
		if err := normalized.ValidateResponse(joined, turn.Message, smallLimits()); err != nil {
			t.Fatal(err)
		}
		if joined.Policy() != nil || joined.Parts[0].Content != "draft" {
			t.Fatalf("%+v", joined.Parts[0])
		}
	})
}

func TestConversationsOfDispatchesAreApart(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range [][4]string{
		{"a", "bc", "d", "ann"}, {"ab", "c", "d", "ann"}, {"a", "b", "cd", "ann"}, {"a", "1:b", "d", "ann"}, {"a", "bc", "@d", "ann"}, {"a", "bc", "d", "bob"},
	} {
		id := conversationWith(c[2], exchange.TurnRecord{Agent: c[0], ThreadID: c[1], Principal: c[3]}).ID()
		if seen[id] || !exchange.IsConversationID(id) {
			t.Errorf("%v: %s", c, id)
		}
		seen[id] = true
	}

	open := exchange.TurnRecord{Agent: "a", ThreadID: "bc", Principal: "ann", Audience: exchange.Audience{Open: true}}
	shared := conversationWith("d", open).ID()
	open.Principal = "bob"
	if got := conversationWith("d", open).ID(); got != shared || seen[got] {
		t.Errorf("a conversation that is open to everyone has %s and %s", shared, got)
	}
}

func FuzzMentions(f *testing.F) {
	for _, seed := range []string{"hi @a@b.test!", "@@a@b", "@x@a@b", "@a@a@a@a@a", "a@b.test", "@é@b", "@a@b:80:90", strings.Repeat("@a", 50), "@-@-"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all := func(string) bool { return true }
		got, removed := withoutMentions(text, all)
		if mention.MatchString(got) {
			t.Fatalf("%q still mentions somebody: %q", text, got)
		}
		if len(got) > len(text) || len(removed) == 0 && got != text {
			t.Fatalf("%q became %q", text, got)
		}
		if same, none := withoutMentions(text, func(string) bool { return false }); same != text || none != nil {
			t.Fatalf("strangers were taken out of %q", text)
		}
	})
}
