package console

import "inbox/exchange"

// Shapes are values of the types that calls of the operator API answer, by method and path, for the description of the
// API. Calls that are not among them answer nothing.
func Shapes() map[string]any {
	shapes := map[string]any{
		"GET /api/v1/held": heldList{}, "GET /api/v1/approvals": approvalList{}, "GET /api/v1/approvals/{approval}": exchange.Approval{},
		"POST /api/v1/approvals/{approval}/approve": exchange.Approval{}, "POST /api/v1/approvals/{approval}/deny": exchange.Approval{},
		"POST /api/v1/approvals/{approval}/edit": exchange.Approval{},
		"GET /api/v1/tool-requests":              toolRequestList{}, "GET /api/v1/tool-requests/{request}": exchange.ToolRequest{},
		"POST /api/v1/tool-requests/{request}/submit": map[string]any{}, "POST /api/v1/tool-requests/{request}/cancel": map[string]any{},
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
