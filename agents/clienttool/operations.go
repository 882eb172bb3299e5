package clienttool

import (
	"net/http"

	"inbox/internal/openapi"
)

// Operations describe the routes.
func Operations() []openapi.Operation {
	waiting := []string{"limit:integer", "after", "before", "tool_name", "run_id", "wait"}
	taken := []int{http.StatusConflict}
	list := []openapi.Operation{
		{Method: "GET", Path: "/v1/tools/{agent}/policy", Summary: "Which of an agent's tools a delegated runtime may have", Response: PolicyView{}},
		{Method: "GET", Path: "/v1/tools/{agent}/requests", Summary: "Calls of an agent's tools that wait", Query: waiting, Response: RequestList{}},
		{
			Method: "GET", Path: "/v1/tools/{agent}/requests/events", Summary: "Hear of calls of an agent's tools",
			Query: waiting, Response: RequestView{}, Stream: true, Events: []openapi.Event{
				{Name: "request", Summary: "a call that waits", Data: RequestView{}}, {Name: "ended", Summary: "it waits no more", Data: RequestEnded{}},
			},
		},
		{Method: "GET", Path: "/v1/tools/{agent}/requests/{request}", Summary: "One call of a tool", Response: RequestAnswer{}},
		{
			Method: "POST", Path: "/v1/tools/{agent}/requests/{request}/submit", Summary: "Give the result of a call",
			Request: ResultBody{Success: new(true), Result: map[string]any{"in_stock": 3}}, Response: Ended{}, Errors: taken,
		},
		{Method: "POST", Path: "/v1/tools/{agent}/requests/{request}/timeout", Summary: "Say that a call takes too long", Response: Ended{}, Errors: taken},
		{Method: "POST", Path: "/v1/tools/{agent}/requests/{request}/cancel", Summary: "End a call without result", Response: Ended{}, Errors: taken},
	}

	for i := range list {
		list[i].Tag, list[i].Security = "tools", "tools"
	}

	return list
}
