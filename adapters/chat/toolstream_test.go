package chat_test

import (
	"bufio"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"
	"testing"

	"inbox/agents"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/normalized"
)

// TestCallsReachTheStreamAsTheyBegin: a reader of the JSON-RPC stream has the name and the arguments of each call, with its id and its place,
// before the tool has answered, and hears of the outcome once.
//
//contract:shows channels-25
func TestCallsReachTheStreamAsTheyBegin(t *testing.T) {
	t.Parallel()
	server := inboxtest.New(t, "")
	seen := make(chan struct{})
	agent := agents.Func(func(ctx context.Context, _ agents.Turn) iter.Seq2[normalized.Delta, error] {
		return func(yield func(normalized.Delta, error) bool) {
			first := normalized.Part{Kind: normalized.PartToolCall, ID: "call-a", Name: "shop/find", Args: json.RawMessage(`{"item":"milk"}`)}
			second := normalized.Part{Kind: normalized.PartToolCall, ID: "call-b", Name: "shop/price", Args: json.RawMessage(`{"sku":7}`)}
			for _, part := range []normalized.Part{first, second} {
				yield(normalized.Delta{Kind: normalized.DeltaToolCallStart, Part: &part}, nil)
			}
			select {
			case <-seen:
			case <-ctx.Done():
				return
			}
			first.Result, second.Result = json.RawMessage(`{"sku":7}`), json.RawMessage(`{"price":2}`)
			for _, part := range []normalized.Part{first, second} {
				yield(normalized.Delta{Kind: normalized.DeltaToolCallEnd, Part: &part}, nil)
			}
			yield(normalized.Delta{Kind: normalized.DeltaText, Text: "Milk is two."}, nil)
		}
	})
	settings := agents.Settings{Unverified: agents.UnverifiedAnswer, ShowTools: agents.ShowToolsFull}
	if err := server.Register(exchange.AgentProfile{Name: "caller", DisplayName: "caller"}, agent, settings); err != nil {
		t.Fatal(err)
	}
	s := withAgents(server)

	response := s.Open(http.MethodPost, "/v1/agent/caller", "", rpcBody("message/stream", "", "", "what is milk?"))
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	var heard strings.Builder
	read := func(until string) {
		t.Helper()
		for lines.Scan() {
			heard.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), until) {
				return
			}
		}
		t.Fatalf("the stream ended without %s:\n%s", until, heard.String())
	}
	read(`{\"sku\":7}`)
	for _, want := range []string{
		`"deltaType":"tool_name"`, `"toolCallName":"shop/find"`, `"toolCallId":"call-a"`, `"toolCallIndex":0`, `"deltaType":"tool_argument"`, `{\"item\":\"milk\"}`,
		`"toolCallName":"shop/price"`, `"toolCallId":"call-b"`, `"toolCallIndex":1`,
	} {
		if !strings.Contains(heard.String(), want) {
			t.Errorf("before the tools answered the stream lacks %s:\n%s", want, heard.String())
		}
	}
	close(seen)
	read(`"state":"completed"`)
	if names := strings.Count(heard.String(), `"deltaType":"tool_name"`); names != 2 {
		t.Errorf("the stream names %d calls of two:\n%s", names, heard.String())
	}
}
