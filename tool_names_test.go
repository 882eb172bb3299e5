package inbox_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestToolsOfTwoServersAreNeverTakenForEachOther: git-hub/list and git/hub-list are both callable, and the operator's rules, approvals and budgets
// for one of them leave the other alone.
func TestToolsOfTwoServersAreNeverTakenForEachOther(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	ran := map[string]int{}
	served := func(server, remote string) string {
		tools := mcp.NewServer(&mcp.Implementation{Name: server, Version: "1"}, nil)
		type page struct {
			N int `json:"n"`
		}
		mcp.AddTool(tools, &mcp.Tool{Name: remote, Description: server + "/" + remote}, func(context.Context, *mcp.CallToolRequest, page) (*mcp.CallToolResult, any, error) {
			mu.Lock()
			defer mu.Unlock()
			ran[server+"/"+remote]++
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "listed"}}}, nil, nil
		})
		web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, &mcp.StreamableHTTPOptions{Stateless: true}))
		t.Cleanup(web.Close)
		return fmt.Sprintf("[[agents.mcp]]\nname = %q\nurl = %q\n", server, web.URL)
	}
	const rule = "[[agents.rules]]\neffect = \"allow\"\npurposes = [%q]\n"
	servers := served("git-hub", "list") + served("git", "hub-list")
	opened := servers + fmt.Sprintf(rule, "tool:git-hub/list") + fmt.Sprintf(rule, "tool:git/hub-list")

	// The request says which tool the model calls, twice; it knows the tools by their descriptions.
	model := func(r modelRequest) turn {
		wanted := ""
		for _, message := range r.Messages {
			if message.Role == "user" {
				wanted = message.Content
			}
		}
		for _, one := range r.Tools {
			if strings.Contains(wanted, one.Function.Description) && len(r.heard()) < 2 && !r.concludes() {
				return calling(one.Function.Name, fmt.Sprintf(`{"n":%d}`, len(r.heard())))
			}
		}
		return says("done")
	}
	l := newLooped(t, map[string]script{
		"both":     {model: model, more: opened},
		"careful":  {model: model, more: opened, lines: "[agents.llm.actions]\npreview = [\"git-hub/list\"]"},
		"closed":   {model: model, more: servers + fmt.Sprintf(rule, "tool:git/hub-list")},
		"budgeted": {model: model, more: opened, lines: "[[agents.llm.budgets.tools]]\nname = \"git/hub-list\"\ncalls = 1"},
	})

	for _, test := range []struct {
		agent, tool string
		calls       int
		asks        bool
	}{
		{"both", "git-hub/list", 2, false}, {"both", "git/hub-list", 2, false},
		{"careful", "git/hub-list", 2, false}, {"careful", "git-hub/list", 0, true},
		{"closed", "git/hub-list", 2, false}, {"closed", "git-hub/list", 0, false},
		{"budgeted", "git-hub/list", 2, false}, {"budgeted", "git/hub-list", 1, false},
	} {
		mu.Lock()
		clear(ran)
		mu.Unlock()
		answer := l.ask(test.agent, "call "+test.tool)
		mu.Lock()
		if ran[test.tool] != test.calls || len(ran) > min(test.calls, 1) {
			t.Errorf("%s was to call %s %d times: %v", test.agent, test.tool, test.calls, ran)
		}
		mu.Unlock()
		if asks := answer["status"] == "approval_required"; asks != test.asks {
			t.Errorf("%s, %s: %v", test.agent, test.tool, answer)
		}
		if record := l.record(test.agent); test.asks && !strings.Contains(record, "git-hub/list") {
			t.Errorf("the operator does not read which tool needs approval: %s", record)
		}
	}
	if offered := l.questions("both")[0].offered(); !slices.Contains(offered, "git-hub__list") || !slices.Contains(offered, "git__hub-list") {
		t.Errorf("offered are %q", offered)
	}
}
