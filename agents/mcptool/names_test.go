package mcptool

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox/agents/runtime/tool"
	"inbox/internal/await"
	"inbox/internal/safehttp"
)

// A server that removes a tool and offers another one under the same name does not get the calls that were meant for the first.
func TestCallOfADeclaredToolRunsNoOtherTool(t *testing.T) {
	var ran atomic.Int32
	server := mcp.NewServer(&mcp.Implementation{Name: "users", Version: "1"}, nil)
	offer := func(name string) {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			ran.Add(1)
			return &mcp.CallToolResult{}, nil, nil
		})
	}
	offer("getUser")
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(func() { web.CloseClientConnections(); web.Close() })

	options := quick(t)
	options.Client = safehttp.New(safehttp.Options{})
	source := start(t, options, Server{Name: "users", URL: web.URL, Timeout: 10 * time.Second})
	declaration, err := tool.NormalizeServer(source.Declarations(t.Context())[0])
	if err != nil || declaration.Name() != "users/get_user" {
		t.Fatalf("declared %v, %v", declaration.Object(), err)
	}

	meant := tool.Call{Name: "users/get_user", Declaration: declaration}
	if answer, err := source.Execute(t.Context(), meant); err != nil || !is(answer["success"]) || ran.Load() != 1 {
		t.Fatalf("the declared tool: %v, %v, ran %d times", answer, err, ran.Load())
	}

	offer("get_user")
	await.Until(t, "both are refused", func() bool { return source.Status()[0].Unusable == 2 && len(names(t, source)) == 0 })
	server.RemoveTools("getUser")
	await.Until(t, "the other tool has the name", func() bool { return slices.Equal(names(t, source), []string{"users/get_user"}) })
	answer, err := source.Execute(t.Context(), meant)
	if err != nil || answer["error_type"] != kindNotFound || ran.Load() != 1 {
		t.Errorf("the call of getUser: %v, %v, tools ran %d times", answer, err, ran.Load())
	}
}
