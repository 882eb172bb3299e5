package console

import "inbox/exchange"

// reasonBody says why.
type reasonBody struct {
	Reason string `json:"reason,omitempty"`
}

// textBody is the new text of an answer that is held back.
type textBody struct {
	Text string `json:"text"`
}

// answerBody is the new text of an answer that left.
type answerBody struct {
	Text string `json:"text"`
	MIME string `json:"mime,omitempty"`
}

// entryBody is an entry for a list; effect is for blocks.
type entryBody struct {
	Target string `json:"target"`
	Effect string `json:"effect,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Requests are values of the types that calls of the operator API read, by method and path. Calls that are not among them
// read no JSON, but for the results of tools.
func Requests() map[string]any {
	reason, entry := reasonBody{"not our subject"}, entryBody{Target: "spam.example", Effect: "refuse", Reason: "spam"}
	return map[string]any{
		"POST /api/v1/held/{turn}/drop": reason, "POST /api/v1/approvals/{approval}/deny": reason,
		"POST /api/v1/approvals/{approval}/edit": textBody{"Hello"}, "PUT /api/v1/replies/{reply}": answerBody{Text: "Hello", MIME: "text/markdown"},
		"POST /api/v1/blocks": entry, "POST /api/v1/allows": entryBody{Target: "friends.example"},
	}
}

// Shapes are values of the types that calls of the operator API answer, by method and path, for the description of the
// API. Calls that are not among them answer nothing.
func Shapes() map[string]any {
	shapes := map[string]any{
		"GET /api/v1/held": heldList{}, "GET /api/v1/approvals": approvalList{}, "GET /api/v1/approvals/{approval}": exchange.Approval{},
		"POST /api/v1/approvals/{approval}/approve": exchange.Approval{}, "POST /api/v1/approvals/{approval}/deny": exchange.Approval{},
		"POST /api/v1/approvals/{approval}/edit": exchange.Approval{},
		"GET /api/v1/tool-requests":              toolRequestList{}, "GET /api/v1/tool-requests/{request}": exchange.ToolRequest{},
		"GET /api/v1/turns/{turn}": turnView{}, "GET /api/v1/people": peopleList{}, "GET /api/v1/audit": auditList{},
		"GET /api/v1/mail/suppressed": suppressionList{}, "GET /api/v1/reports": auditList{},
	}
	for _, list := range []string{"blocks", "allows", "stops"} {
		shapes["GET /api/v1/"+list] = entryList{}
		if list != "stops" {
			shapes["POST /api/v1/"+list] = exchange.ListEntry{}
			shapes["POST /api/v1/"+list+"/import"] = exchange.ImportResult{}
		}
	}
	return shapes
}
