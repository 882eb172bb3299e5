package pull

import (
	"net/http"

	"inbox/internal/openapi"
	"inbox/normalized"
)

// Operations describe the routes.
func Operations() []openapi.Operation {
	ended := []int{http.StatusConflict, http.StatusGone}
	list := []openapi.Operation{
		{
			Method: "POST", Path: "/v1/pull/{agent}/take", Summary: "Take the next messages of an agent",
			Query: []string{"wait"}, Also: []int{http.StatusNoContent}, Response: Request{},
		},
		{
			Method: "GET", Path: "/v1/pull/{agent}/events", Summary: "Hear of messages of an agent",
			Query: []string{"max:integer"}, Response: Request{}, Stream: true, Events: []openapi.Event{{Name: "turn", Summary: "a message that is leased to the program", Data: Request{}}},
		},
		{Method: "POST", Path: "/v1/pull/{agent}/{turn}/heartbeat", Summary: "Keep the lease of a message", Query: []string{"lease!"}, Errors: ended, Response: leaseAnswer{}},
		{
			Method: "POST", Path: "/v1/pull/{agent}/{turn}/deltas", Summary: "Send more of an answer: one delta, or one in each line (application/x-ndjson)",
			Query: []string{"lease!", "first:integer"}, Errors: ended, Request: normalized.Delta{Kind: normalized.DeltaText, Text: "Hello"}, Response: received{},
		},
		{
			Method: "POST", Path: "/v1/pull/{agent}/{turn}/answer", Summary: "Answer a message; without a body the deltas are the answer",
			Query: []string{"lease!"}, Errors: ended, Partial: true, Request: normalized.Response{InReplyTo: "m-1", Parts: []normalized.Part{normalized.Text("Hello")}}, Response: ending{State: answered},
		},
		{
			Method: "POST", Path: "/v1/pull/{agent}/{turn}/fail", Summary: "Give a message back",
			Query: []string{"lease!"}, Errors: ended, Request: failure{Retry: new(true), After: 5, Reason: "the disk is full"}, Response: ending{State: retried},
		},
	}
	for i := range list {
		list[i].Tag, list[i].Security = "pull", "agent"
	}
	return list
}
