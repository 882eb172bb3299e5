package inbox

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox/agents/mcptool"
	"inbox/internal/await"
	"inbox/internal/config"
	"inbox/internal/safehttp"
)

// logText is a log that can be read while it is written.
type logText struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (l *logText) Write(line []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(line)
}

func (l *logText) count(part string) int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return strings.Count(l.text.String(), part)
}

// TestServerWarnsOnceOfSettingsThatMatchNoTool: when the tools of a server are listed, each setting without a tool is logged, and not again with the next
// list.
func TestServerWarnsOnceOfSettingsThatMatchNoTool(t *testing.T) {
	t.Parallel()
	served := mcp.NewServer(&mcp.Implementation{Name: "notes", Version: "1"}, nil)
	offer := func(name string) {
		mcp.AddTool(served, &mcp.Tool{Name: name, Description: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	offer("add_note")
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return served }, nil))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })

	var log logText
	b := &builder{agentSet: &agentSet{
		trust: &trust{resources: &resources{logger: slog.New(slog.NewTextHandler(&log, nil)), client: safehttp.New(safehttp.Options{})}},
		tools: map[*mcptool.Source]struct{}{}, serving: true,
	}}
	entry := config.Agent{Name: "helper", Kind: "llm", MCP: []config.MCP{{Name: "notes", URL: web.URL, Preview: []string{"ad_note"}}}}
	entry.LLM.Actions.Preview = []string{"notes/addNote", "notes/add_note"}
	if _, err := b.newTools(&entry); err != nil {
		t.Fatal(err)
	}
	for _, commit := range b.commits {
		commit()
	}
	t.Cleanup(func() { b.held() })

	const setting, pattern = `setting=agents[helper].llm.actions.preview reason="\"notes/addNote\" matches no tool; settings take the name notes/add_note"`, `setting=preview pattern=ad_note`
	await.Until(t, "the log names both", func() bool { return log.count(setting) == 1 && log.count(pattern) == 1 })
	offer("other")
	await.Until(t, "there is another list", func() bool { return log.count("tools=2") == 1 && log.count(pattern) == 2 })
	if log.count("level=WARN") != 3 || log.count(setting) != 1 {
		t.Errorf("%d warnings, %d of the setting:\n%s", log.count("level=WARN"), log.count(setting), log.text.String())
	}
}
