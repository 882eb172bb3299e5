package inboxtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// ConnectorSecret is the secret of every connector.
const ConnectorSecret = "a secret that only the tests know"

// NewWithTools makes a server with models that call client tools. "asks" calls "look" and "weigh", as far as it has no result,
// and takes the results from the asker; "keeps" calls "vault", which is for programs of the operator. Both then say
// what they heard, and the addresses of the pictures that they saw. Beside them are the agents "echo" and "pulled", the connector "slack" and the targets "local", which is echo, and "tools", which is keeps. It also counts how often a model was asked.
func NewWithTools(tb testing.TB, settings ...string) (server *Server, asked *atomic.Int32) {
	tb.Helper()
	asked = &atomic.Int32{}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var body struct {
			Model    string `json:"model"`
			Messages []struct {
				Role    string `json:"role"`
				Content any    `json:"content"`
			} `json:"messages"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			tb.Error(err)
		}
		var heard, seen []string
		for _, message := range body.Messages {
			if message.Role == "tool" {
				heard = append(heard, fmt.Sprint(message.Content))
			}
			pieces, _ := message.Content.([]any)
			for _, piece := range pieces {
				if picture, is := piece.(map[string]any)["image_url"].(map[string]any); is {
					seen = append(seen, fmt.Sprint(picture["url"]))
				}
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		delta, finish := map[string]any{"content": strings.Join(slices.Concat(heard, seen), ", ")}, "stop"
		if tools := strings.Fields(body.Model); len(heard) < len(tools) {
			calls := []any{}
			for i, tool := range tools[len(heard):] {
				calls = append(calls, map[string]any{"index": i, "id": fmt.Sprint("c", len(heard)+i), "type": "function", "function": map[string]any{"name": "client__" + tool, "arguments": `{"item":"milk"}`}})
			}
			delta, finish = map[string]any{"tool_calls": calls}, "tool_calls"
		}
		chunk, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}, "usage": map[string]any{"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}})
		_, _ = fmt.Fprintf(w, "data: %s\n\ndata: [DONE]\n\n", chunk)
	}))
	tb.Cleanup(model.Close)

	var tables strings.Builder
	for name, tools := range map[string]string{"asks": "look weigh", "keeps": "vault"} {
		fmt.Fprintf(&tables, "[[agents]]\nname = %q\nkind = \"llm\"\nunverified = \"answer\"\naccess = \"public\"\n[[agents.rules]]\neffect = \"allow\"\npurposes = [\"tool:client/look\", \"tool:client/weigh\", \"tool:client/vault\"]\n"+
			"[agents.llm]\nbase_url = %q\nmodel = %q\n", name, model.URL+"/v1", tools)
		for tool := range strings.FieldsSeq(tools) {
			fmt.Fprintf(&tables, "[[agents.client_tools]]\nname = %q\ndescription = \"d\"\nasker = %t\nparameters = '{\"type\":\"object\",\"properties\":{\"item\":{\"type\":\"string\"}}}'\n", tool, name == "asks")
		}
	}
	tables.WriteString("[[agents]]\nname = \"echo\"\nkind = \"echo\"\nunverified = \"answer\"\n[[agents]]\nname = \"pulled\"\nkind = \"pull\"\n[agents.pull]\nlease = \"30s\"\n" +
		"[[targets]]\nid = \"local\"\nagent = \"echo\"\n[[targets]]\nid = \"tools\"\nagent = \"keeps\"\n" +
		"[[connectors]]\nname = \"slack\"\nsecret = \"" + ConnectorSecret + "\"\nagents = [\"echo\"]\n")

	file := filepath.Join(tb.TempDir(), "inbox.toml")
	if err := os.WriteFile(file, []byte(tables.String()), 0o600); err != nil {
		tb.Fatal(err)
	}

	return New(tb, file, append([]string{"INBOX_FEDERATION_ALLOW_PRIVATE=true"}, settings...)...), asked
}
