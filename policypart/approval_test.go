package policypart

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestApproval(t *testing.T) {
	tests := map[string]struct {
		data string
		want Approval
	}{
		"whole": {
			`{"action_id":"a1","tool":"refund","summary":"Refund order 17","preview":{"amount":5},"apply_input":{"order":17}}`,
			Approval{"a1", "refund", "Refund order 17", json.RawMessage(`{"amount":5}`), json.RawMessage(`{"order":17}`)},
		},
		"in the words of audit events": {`{"action_id":"a1","tool_name":"refund"}`, Approval{ActionID: "a1", Tool: "refund", Summary: "May I?"}},
		"nulls":                        {`{"summary":" ","preview":null}`, Approval{Summary: "May I?"}},
		"another form":                 {`["refund"]`, Approval{Summary: "May I?"}},
		"nothing":                      {``, Approval{Summary: "May I?"}},
	}
	for name, test := range tests {
		part := Part{Kind: ConsentRequired, Code: CodeApproval, Message: "May I?"}
		if test.data != "" {
			part.Data = map[string]json.RawMessage{ApprovalKey: json.RawMessage(test.data)}
		}
		if diff := cmp.Diff(test.want, part.Approval()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestNeedsApproval(t *testing.T) {
	if !(Part{Kind: ConsentRequired, Code: CodeApproval}).NeedsApproval() {
		t.Error("approval:required of a consent is decided by its asker")
	}
	for _, part := range []Part{{Kind: ConsentRequired}, {Kind: PaymentRequired, Code: CodeApproval}, {Kind: ConsentRequired, Code: CodeApprovalReply}} {
		if part.NeedsApproval() {
			t.Errorf("%s %q is decided by an approver", part.Kind, part.Code)
		}
	}
}
