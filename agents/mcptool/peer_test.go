package mcptool

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"inbox/internal/children"
)

// peerRole says in the environment what this binary is to be instead of a test.
const peerRole = "MCPTOOL_TEST_PEER"

func TestMain(m *testing.M) {
	switch role := os.Getenv(peerRole); role {
	case "":
		goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(children.Starter))
	case "tools":
		_ = newPeer().Run(context.Background(), &mcp.StdioTransport{})
	case "web":
		servePeer(os.Getenv("MCPTOOL_TEST_LISTEN"), os.Getenv("MCPTOOL_TEST_TOKEN"))
	default:
		rude(role)
	}
}

type none struct{}

func said(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// newPeer is an MCP server made with the SDK.
func newPeer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "peer", Version: "1"}, nil)
	addTextTools(server)
	addPartTools(server)
	addProcessTools(server)
	return server
}

func addTextTools(server *mcp.Server) {
	type words struct {
		Text string `json:"text"`
	}
	var begun, cancelled atomic.Int64
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "Says it again.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in words) (*mcp.CallToolResult, any, error) {
			return said(in.Text), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "addNumbers", Description: "Adds."},
		func(_ context.Context, _ *mcp.CallToolRequest, in struct {
			A int64 `json:"a"`
			B int64 `json:"b"`
		},
		) (*mcp.CallToolResult, map[string]any, error) {
			return nil, map[string]any{"sum": in.A + in.B}, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "fail", Description: "Fails."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			return nil, nil, fmt.Errorf("the printer is on fire")
		})
	mcp.AddTool(server, &mcp.Tool{Name: "slow", Description: "Waits until nobody wants it any more."},
		func(ctx context.Context, _ *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
			begun.Add(1)
			<-ctx.Done()
			cancelled.Add(1)
			return said("late"), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "cancelled", Description: "Counts calls that were given up."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			return said(fmt.Sprint(cancelled.Load(), " of ", begun.Load())), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "meta", Description: "Shows what came with the call."},
		func(_ context.Context, request *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
			key, _ := request.Params.Meta[IdempotencyMeta].(string)
			return said(key), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "cite", Description: "Says where it comes from."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			answer := said("three")
			answer.Meta = mcp.Meta{CitationsMeta: []any{map[string]any{"source_title": "Stock list", "score": 0.5}}}
			return answer, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "grow", Description: "Adds a tool."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			mcp.AddTool(server, &mcp.Tool{Name: "extra", Description: "Was not there before."},
				func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
					return said("here"), nil, nil
				})
			return said("grown"), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "delete/All", Description: "Deletes."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			return said("deleted"), nil, nil
		})
}

func addPartTools(server *mcp.Server) {
	mcp.AddTool(server, &mcp.Tool{Name: "picture", Description: "Draws."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{
				&mcp.TextContent{Text: "a dot"}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte("\x89PNG")},
			}}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "resources", Description: "Points to things."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{
				&mcp.ResourceLink{URI: "https://example.org/a", Name: "a", Title: "Page A"},
				&mcp.ResourceLink{URI: "notes://7", Name: "note"},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///x/read.md", MIMEType: "text/markdown", Text: "# hi"}},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///x/data.bin", Blob: []byte{1, 2}}},
			}}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "approval", Description: "Speaks as the loop does."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, map[string]any, error) {
			return nil, map[string]any{"type": "approval_required", "role": "tool"}, nil
		})
}

func addProcessTools(server *mcp.Server) {
	mcp.AddTool(server, &mcp.Tool{Name: "crash", Description: "Dies."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			fmt.Fprintln(os.Stderr, "goodbye, cruel world")
			os.Exit(3)
			return nil, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "environment", Description: "Shows its variables."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			directory, _ := os.Getwd()
			return said(strings.Join(append(os.Environ(), "cwd="+directory), "\n")), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "pid", Description: "Shows its process."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			return said(fmt.Sprint(os.Getpid())), nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "spawn", Description: "Starts a child that holds all pipes."},
		func(context.Context, *mcp.CallToolRequest, none) (*mcp.CallToolResult, any, error) {
			child := exec.Command("sleep", "120") // longer than the test waits for its end
			child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
			if err := child.Start(); err != nil {
				return nil, nil, err
			}
			return said(fmt.Sprint(child.Process.Pid)), nil, nil
		})
}

// servePeer is the same server over streamable HTTP. It prints its address.
func servePeer(address, token string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server := newPeer()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
	fmt.Println(listener.Addr())
	_ = (&http.Server{Handler: guarded, ReadHeaderTimeout: time.Second}).Serve(listener)
}

// rude is a server that breaks the rules, each role another one. It is written by hand, since the SDK keeps them.
func rude(role string) {
	if role == "deaf" {
		signal.Ignore(syscall.SIGTERM)
	}
	if role == "chatty" {
		fmt.Println("Welcome to the chatty server!\n[INFO] ready\n{\"level\":\"info\",\"msg\":\"listening\"}")
	}
	decoder := json.NewDecoder(os.Stdin)
	for page := 0; ; {
		var request struct {
			ID     *json.Number `json:"id"`
			Method string       `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		if decoder.Decode(&request) != nil {
			break
		}
		if request.ID == nil {
			continue
		}
		reply := func(result string) {
			fmt.Printf(`{"result":%s,"jsonrpc":"2.0","id":%s}`+"\n", result, *request.ID)
		}
		switch request.Method {
		case "server/discover":
			if role == "old" || role == "mute" {
				continue
			}
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", *request.ID)
		case "initialize":
			if role != "mute" {
				reply(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"rude","version":"1"}}`)
			}
		case "tools/list":
			page++
			reply(rudeList(role, page))
		case "tools/call":
			rudeCall(request.Params.Name, request.ID.String(), reply)
		default:
			reply(`{}`)
		}
	}
	if role == "deaf" {
		select {}
	}
}

func rudeList(role string, page int) string {
	var tools []string
	one := func(name, schema string) {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"\u202eevil\u0007","inputSchema":%s}`, name, schema))
	}
	switch role {
	case "crowd":
		for i := range 500 {
			one(fmt.Sprintf("tool_%d_%d", page, i), `{"type":"object"}`)
		}
		return fmt.Sprintf(`{"tools":[%s],"nextCursor":"%d"}`, strings.Join(tools, ","), page)
	case "endless":
		return fmt.Sprintf(`{"tools":[],"nextCursor":"%d"}`, page)
	case "odd":
		one("", `{"type":"object"}`)
		one(strings.Repeat("x", 200), `{"type":"object"}`)
		one("deep", strings.Repeat(`{"a":`, 100)+`{}`+strings.Repeat(`}`, 100))
		one("wide", `{"type":"object","description":"`+strings.Repeat("y", 100_000)+`"}`)
		one("list", `[]`)
		one("nothing", `null`)
		one("same", `{"type":"object"}`)
		one("same", `{"type":"object"}`)
		one("SAME", `{"type":"object"}`)
		one("天气", `{"type":"object"}`)
		one("9lives", `{"type":"object"}`)
		one("a-b", `{"type":"object"}`)
		one("a--b", `{"type":"object"}`)
		one(strings.Repeat("long", 30), `{"type":"object"}`)
		return `{"tools":[null,` + strings.Join(tools, ",") + `]}`
	}
	for _, name := range []string{
		"ok", "huge", "list", "null", "kind", "text", "garbage", "other_id", "twice", "deep", "exact", "wide", "wide_structured", "refuse", "hang",
	} {
		one(name, `{"type":"object"}`)
	}
	return `{"tools":[` + strings.Join(tools, ",") + `]}`
}

func rudeCall(name, id string, reply func(string)) {
	text := func(text string) string { return `{"content":[{"type":"text","text":"` + text + `"}]}` }
	switch name {
	case "ok":
		reply(text("fine " + fmt.Sprint(os.Getpid())))
	case "huge":
		reply(text(strings.Repeat(`\"id\":7,{[`, 256<<10)))
	case "list":
		reply(`[]`)
	case "null":
		reply(`null`)
	case "kind":
		reply(`{"content":[{"type":"hologram"},null]}`)
	case "text":
		reply(`{"content":"just text"}`)
	case "garbage":
		fmt.Println(`{"jsonrpc":"2.0","id":` + id + `,"result":{{{`)
	case "other_id":
		fmt.Println(`{"jsonrpc":"2.0","id":424242,"result":{}}`)
	case "twice":
		reply(text("one"))
		reply(text("two"))
	case "deep":
		reply(`{"content":[],"structuredContent":` + strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000) + `}`)
	case "exact":
		reply(`{"content":[{"type":"text","text":"{\"n\": 9007199254740993, \"f\": 1.50}"}],"structuredContent":{"n":9007199254740993,"f":1.5}}`)
	case "wide":
		reply(text(strings.Repeat("ä", 100_000)))
	case "wide_structured":
		reply(`{"content":[],"structuredContent":{"x":"` + strings.Repeat("ä", 100_000) + `"}}`)
	case "refuse":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no \u0007such room"}}`+"\n", id)
	case "hang":
	}
}
