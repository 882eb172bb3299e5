package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/normalized"
)

func TestApprovalIsShownInFull(t *testing.T) {
	action := exchange.Approval{
		ID: "019a", Code: "7k3mq2", Kind: exchange.ApprovalAction, Status: exchange.ApprovalDenied, Agent: "shop", Asker: "@ann@x.test",
		Principal: "inbox.test mailto:ann@x.test", Via: "email", Question: "please\nrefund \x1b[31mit", Tool: "refund", Summary: "Refund order 17",
		Preview: json.RawMessage(`{"order":17}`), DecidedBy: "operator:laptop", Reason: "Too late.", IssuedAt: time.Unix(1, 0), ExpiresAt: time.Unix(2, 0),
	}
	var out bytes.Buffer
	showApproval(&out, action)
	for _, want := range []string{
		"code        7k3mq2\n", "status      denied\n", "decided by  operator:laptop\n", "reason      Too late.\n", "  | please\n  | refund [31mit\n",
		"The agent wants to:\n  | Refund order 17\n", "Preview:\n  | {\n  |   \"order\": 17\n  | }\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	reply := exchange.Approval{ID: "019b", Kind: exchange.ApprovalReply, EditedBy: "operator:laptop", Draft: &normalized.Response{Cc: []string{"@bob@x.test"}, Parts: []normalized.Part{
		normalized.Text("We open at nine."), {Kind: normalized.PartFile, Name: "map.png"},
	}}}
	out.Reset()
	showApproval(&out, reply)
	if !strings.Contains(out.String(), "The answer:\n  | We open at nine.\n  | \n  | Attachment: map.png\nalso to     @bob@x.test\nedited by   operator:laptop\n") {
		t.Errorf("shown:\n%s", out.String())
	}
}
