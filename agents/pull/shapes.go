package pull

import "inbox/normalized"

// Shapes are values of the types that the routes read and write, by method and path, for the description of the API. Of two
// the first is the request.
func Shapes() map[string][2]any {
	work := "POST /v1/pull/{agent}/{turn}/"
	return map[string][2]any{
		"POST /v1/pull/{agent}/take":  {nil, Request{}},
		"GET /v1/pull/{agent}/events": {nil, Request{}},
		work + "heartbeat":            {nil, leaseAnswer{}},
		work + "deltas":               {normalized.Delta{Kind: normalized.DeltaText, Text: "Hello"}, received{}},
		work + "answer":               {normalized.Response{InReplyTo: "m-1", Parts: []normalized.Part{normalized.Text("Hello")}}, ending{State: answered}},
		work + "fail":                 {failure{Retry: new(true), After: 5, Reason: "the disk is full"}, ending{State: retried}},
	}
}
