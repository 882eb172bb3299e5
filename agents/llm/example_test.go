package llm_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"inbox/agents"
	"inbox/agents/llm"
	"inbox/agents/runtime/tool"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// clock is a source with one tool.
type clock struct{}

func (clock) Declarations(context.Context, agents.Turn) ([]tool.Entry, error) {
	return tool.Entries([]any{map[string]any{
		"name": "clock/now", "description": "Tells the time in a city.",
		"parameters": map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}},
	}}), nil
}

func (clock) Execute(_ context.Context, call tool.Call) (map[string]any, error) {
	return map[string]any{"success": true, "result": fmt.Sprintf("12:00 in %v", call.Parameters["city"])}, nil
}

// A stand-in for a local model server: it asks for the tool first and answers then.
func modelServer() *httptest.Server {
	answers := []string{
		`{"choices":[{"message":{"tool_calls":[{"id":"c1","function":{"name":"clock__now","arguments":"{\"city\":\"Oslo\"}"}}]},"finish_reason":"tool_calls"}]}`,
		`{"choices":[{"message":{"content":"It is **noon** in Oslo."},"finish_reason":"stop"}]}`,
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, answers[0])
		answers = answers[1:]
	}))
}

func Example() {
	server := modelServer()
	defer server.Close()
	client := safehttp.New(safehttp.Options{})
	defer client.Close()

	provider, err := llm.Connect(llm.Connection{API: llm.APIOpenAI, BaseURL: server.URL + "/v1", Client: client})
	if err != nil {
		panic(err)
	}
	agent, err := llm.New(llm.Options{
		Provider: provider, Model: "small", System: "You know the time.", Whole: true, Tools: []llm.Tools{clock{}},
	})
	if err != nil {
		panic(err)
	}

	fold := normalized.NewFold(normalized.DefaultLimits())
	turn := agents.Turn{ID: "turn 1", Attempt: 1, Agent: "helper", Permits: func(purpose string) bool { return purpose == "tool:clock/now" }}
	turn.Message.Recipient, turn.Message.Parts = "@helper@agents.example", []normalized.Part{normalized.Text("What time is it in Oslo?")}
	for delta, err := range agent.Handle(context.Background(), turn) {
		if err == nil {
			err = fold.Add(delta)
		}
		if err != nil {
			panic(err)
		}
	}
	response, err := fold.Response()
	if err != nil {
		panic(err)
	}
	for _, part := range response.Parts {
		if part.Kind == normalized.PartToolCall {
			fmt.Printf("%s(%s) = %s\n", part.Name, part.Args, part.Result)
			continue
		}
		fmt.Println(part.Content)
	}
	// Output:
	// clock/now({"city":"Oslo"}) = "12:00 in Oslo"
	// It is **noon** in Oslo.
}
