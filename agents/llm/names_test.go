package llm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"inbox/agents/runtime/tool"
	"inbox/exchange/exchangetest"
	"inbox/normalized"
)

// calling is a model that calls tools one after the other, by the names that it was told for them, and then says "done". It leaves out those
// that it was not told of.
func calling(told *[]Tool, canonical ...string) Provider {
	asked := 0
	return modelFunc(func(_ context.Context, request Request, yield func(Delta) bool) error {
		*told = request.Tools
		next := says("done")
		for asked < len(canonical) && !request.NoTools {
			at := slices.IndexFunc(request.Tools, func(one Tool) bool { return one.Description == "does "+canonical[asked] })
			asked++
			if at >= 0 {
				next = calls(request.Tools[at].Name, fmt.Sprintf(`{"q":"%d"}`, asked))
				break
			}
		}
		for _, delta := range next {
			yield(delta)
		}
		return nil
	})
}

// colliding are pairs of tools that differ less than providers can tell, or for which the name of the agent runtime contract is the same.
var colliding = [][2]string{
	{"git-hub/list", "git/hub-list"},
	{"git-hub/list", "git-hub_list"},
	{"git/hub-list", "git-hub_list"},
	{"a__b/c", "a/b__c"},
	{"a_/b", "a/b_"},
	{"srv/" + strings.Repeat("long", 16), "srv/" + strings.Repeat("long", 15) + "lone"},
	{"srv/" + strings.Repeat("l", 61), "srv/" + strings.Repeat("l", 62)},
}

// Both tools are called by the names that the model was told, in whatever order they are declared, and with or without the other one.
func TestToolsWhoseNamesCollideAreBothCallable(t *testing.T) {
	for _, pair := range colliding {
		names := map[string]string{}
		for _, order := range [][]string{{pair[0], pair[1]}, {pair[1], pair[0]}, {pair[0]}, {pair[1]}} {
			for _, called := range order {
				tools := &toolbox{}
				for _, name := range order {
					tools.entries = append(tools.entries, declare(name, nil))
				}
				var told []Tool
				agent := newAgent(t, Options{Provider: calling(&told, called), Tools: []Tools{tools}})
				if response, _, err := fold(t.Context(), t, agent, question("names")); err != nil || texts(response) != "done" {
					t.Fatalf("%s: %q, %v", called, texts(response), err)
				}
				if !slices.Equal(tools.called, []string{called}) {
					t.Errorf("the model meant %s and called %q", called, tools.called)
				}
				for _, one := range told {
					name := strings.TrimPrefix(one.Description, "does ")
					if before, known := names[name]; known && before != one.Name {
						t.Errorf("%s is %s and %s", name, before, one.Name)
					}
					names[name] = one.Name
				}
			}
		}
		if strings.EqualFold(names[pair[0]], names[pair[1]]) {
			t.Errorf("%q are both %s", pair, names[pair[0]])
		}
	}
}

func TestNamesForModels(t *testing.T) {
	for canonical, want := range map[string]string{
		"find": "find", "notes/add_note": "notes__add_note", "git-hub/list": "git-hub__list", "git/hub-list": "git__hub-list",
		"git__hub": "git__hub__0bc5112364d7c",
	} {
		if got := ToolName(canonical); got != want {
			t.Errorf("%s is %s, want %s", canonical, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.StringMatching(`[ab_-]{0,3}[a/_-]{0,4}[ab0_-]{1,3}`), rapid.StringMatching(`[a-z][a-z_]{30,80}`), rapid.String())
		one, other := name.Draw(t, "one"), name.Draw(t, "other")
		if !providerName.MatchString(ToolName(one)) {
			t.Fatalf("%q is %q, which providers refuse", one, ToolName(one))
		}
		if one != other && strings.EqualFold(ToolName(one), ToolName(other)) {
			t.Fatalf("%q and %q are both %q", one, other, ToolName(one))
		}
	})
}

// A limit for one tool never applies to another one whose name looks alike, and always to its own, by whichever of its names the model calls it.
func TestLimitsApplyToTheToolThatTheyName(t *testing.T) {
	for _, pair := range colliding {
		for _, limited := range pair {
			for limit, options := range map[string]Options{
				"budget":   {Budgets: Budgets{Tools: map[string]int{limited: 1}}},
				"rule":     {Rules: []Rule{{AfterTool: "begin", LimitedTools: []string{limited}, MaxCalls: 1, RequireOneOf: []string{"end"}, FreeCompletion: true}}},
				"deny":     {Actions: Actions{Tools: map[string]string{limited: tool.ActionForbidden}}},
				"approval": {Actions: Actions{Tools: map[string]string{limited: tool.ActionPreview}}},
				"hidden":   {ToolPolicy: map[string]any{"mode": "deny", "tools": []any{limited}}},
				"access":   {},
			} {
				for _, called := range pair {
					tools := &toolbox{entries: []tool.Entry{declare(pair[0], nil), declare(pair[1], nil), declare("begin", nil), declare("end", nil)}}
					var told []Tool
					options := options
					options.Provider, options.Tools = calling(&told, "begin", called, called, called), []Tools{tools}
					options.Approvals = ByDemand{Tools: options.Tools, Claims: exchangetest.NewDocuments()}
					turn := question("limits")
					turn.Memory = &memory{}
					if limit == "access" {
						turn.Permits = func(purpose string) bool { return purpose != tool.Purpose(limited) }
					}
					response, _, err := fold(t.Context(), t, newAgent(t, options), turn)
					if err != nil {
						t.Fatalf("%s for %s, %s called: %v", limit, limited, called, err)
					}

					want, ran := 3, 0
					if called == limited {
						want = map[string]int{"budget": 1, "rule": 1}[limit]
					}
					for _, name := range tools.called {
						if name == called {
							ran++
						}
					}
					if ran != want {
						t.Errorf("%s for %s: %s ran %d times, want %d", limit, limited, called, ran, want)
					}
					if asks := response.Policy() != nil; asks != (limit == "approval" && called == limited) {
						t.Errorf("approval for %s: %s asks: %t", limited, called, asks)
					}
				}
			}
		}
	}
}

func TestBudgetCountsEveryNameOfATool(t *testing.T) {
	tools := &toolbox{entries: []tool.Entry{declare("notes/add", nil)}}
	agent := newAgent(t, Options{
		Provider: scripted(calls("notes/add", `{"q":"1"}`), calls("notes/add", `{"q":"2"}`), says("done")), Tools: []Tools{tools},
		Budgets: Budgets{Tools: map[string]int{"notes/add": 1}},
	})
	if response, _, err := fold(t.Context(), t, agent, question("canonical")); err != nil || tools.count() != 1 || response.Metadata["budget"] != "tool_calls_notes__add" {
		t.Errorf("ran %d times, %v, %v", tools.count(), response.Metadata, err)
	}
}

// Tools of several sources that nothing tells apart are refused by an error that names both, in whatever order the sources come.
func TestToolsThatNothingTellsApartAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		one, other []tool.Entry
		offered    string
		reason     string
	}{
		"one name in two sources": {
			[]tool.Entry{declare("notes/add", map[string]any{"source": "server"})}, []tool.Entry{declare("notes/add", map[string]any{"source": "program"})},
			"[]", "notes/add of server and notes/add of program have the same name",
		},
		"a built-in tool and one of the agent": {
			[]tool.Entry{declare(AskTool, map[string]any{"source": "program"})}, []tool.Entry{declare(AskTool, map[string]any{"source": "host"})},
			"[]", AskTool + " of program and " + AskTool + " of host have the same name",
		},
		"a name that another tool has for models": {
			[]tool.Entry{declare("notes/add", nil)}, []tool.Entry{declare("notes__add", nil)},
			"[notes__add]", "models use the name notes__add for notes/add",
		},
	} {
		for _, reversed := range []bool{false, true} {
			sources := []Tools{&toolbox{entries: test.one}, &toolbox{entries: test.other}}
			if reversed {
				slices.Reverse(sources)
			}
			var told []Tool
			turn := question("twice")
			rows := steps(&turn)
			if _, _, err := fold(t.Context(), t, newAgent(t, Options{Provider: calling(&told), Tools: sources}), turn); err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, one := range told {
				names = append(names, one.Name)
				if one.Description != "does notes/add" {
					t.Errorf("%s: the model is told of %q", name, one.Description)
				}
			}
			if fmt.Sprint(names) != test.offered || !strings.Contains(rows(), test.reason) {
				t.Errorf("%s, reversed %t: told %v, want %s\n%s", name, reversed, names, test.offered, rows())
			}
		}
	}
}

// An approved call runs the tool that its approver was shown, also when another one has its name by then, or another source.
func TestApprovedCallRunsNoOtherTool(t *testing.T) {
	server := func(remote string) []tool.Entry {
		return []tool.Entry{declare("users/get_user", map[string]any{"mcp": map[string]any{"server": "users", "tool": remote}})}
	}
	for name, test := range map[string]struct {
		change func(tools, other *toolbox)
		runs   int
	}{
		"the same tool":    {func(*toolbox, *toolbox) {}, 1},
		"another tool":     {func(tools, _ *toolbox) { tools.entries = server("get_user") }, 0},
		"a second source":  {func(_, other *toolbox) { other.entries = server("getUser") }, 0},
		"no tool any more": {func(tools, _ *toolbox) { tools.entries = nil }, 0},
	} {
		tools, other := &toolbox{entries: server("getUser")}, &toolbox{}
		sources := []Tools{tools, other}
		var told []Tool
		agent := newAgent(t, Options{
			Provider: calling(&told, "users/get_user"), Tools: sources, Approvals: ByDemand{Tools: sources, Claims: exchangetest.NewDocuments()},
			Actions: Actions{Tools: map[string]string{"users/get_user": tool.ActionPreview}},
		})
		turn := question("approved")
		turn.Memory = &memory{}
		response, _, err := fold(t.Context(), t, agent, turn)
		if err != nil || response.Policy() == nil {
			t.Fatalf("%s: %+v, %v", name, response, err)
		}
		if shown := response.Policy().Approval().Tool; shown != "users/get_user" {
			t.Errorf("%s: the approver is shown %q", name, shown)
		}
		turn.Message.PolicyResolution = approves(response)
		test.change(tools, other)
		if response, _, err = fold(t.Context(), t, agent, turn); err != nil || response.Outcome() != normalized.StatusCompleted {
			t.Fatalf("%s: %+v, %v", name, response, err)
		}
		if ran := tools.count() + other.count(); ran != test.runs {
			t.Errorf("%s: %d calls, want %d", name, ran, test.runs)
		}
	}
}
