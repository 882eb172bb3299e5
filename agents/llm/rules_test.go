package llm

import (
	"strings"
	"testing"

	"inbox/agents/runtime/tool"
)

func TestRulesHoldTheModelToAnOrder(t *testing.T) {
	entries := []tool.Entry{declare("shop/search", nil), declare("shop/check", nil), declare("shop/open", nil)}
	check := Rule{ID: "check", AfterTool: "shop/search", LimitedTools: []string{"shop/open"}, MaxCalls: 1, RequireOneOf: []string{"shop/check"}}
	for name, test := range map[string]struct {
		rule   Rule
		tools  []tool.Entry
		turns  [][]Delta
		called string
		models string
	}{
		"a call that is not the turn's": {check, entries, [][]Delta{
			calls("shop__search", `{}`), calls("shop__open", `{"q":"1"}`, "shop__open", `{"q":"2"}`), calls("shop__check", `{}`), says("done"),
		}, "shop/search shop/open shop/check", "4"},
		"an end that is too early": {check, entries, [][]Delta{
			calls("shop__search", `{}`), says("done"), calls("shop__check", `{}`), says("done"),
		}, "shop/search shop/check", "4"},
		"tools must be used": {Rule{ID: "use", RequireToolUse: true, MinToolCalls: 1}, entries, [][]Delta{
			says("done"), calls("shop__check", `{}`), says("done"),
		}, "shop/check", "3"},
		"a tool that nobody has": {check, entries[:1], [][]Delta{calls("shop__search", `{}`), says("done")}, "shop/search", "2"},
		"only calls are held": {Rule{
			AfterTool: "shop/search", LimitedTools: check.LimitedTools, MaxCalls: 1, RequireOneOf: check.RequireOneOf, FreeCompletion: true,
		}, entries, [][]Delta{calls("shop__search", `{}`), says("done")}, "shop/search", "2"},
	} {
		tools := &toolbox{entries: test.tools}
		agent := newAgent(t, Options{Provider: scripted(test.turns...), Tools: []Tools{tools}, Rules: []Rule{test.rule}})
		response, _, err := fold(t.Context(), t, agent, question("ruled"))
		if err != nil || texts(response) != "done" || response.Metadata["model_calls"] != test.models || strings.Join(tools.called, " ") != test.called {
			t.Errorf("%s: %s called, %v, %s, %v", name, tools.called, response.Metadata, texts(response), err)
		}
	}
}
