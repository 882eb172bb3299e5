package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

func TestApprovalIsShownInFull(t *testing.T) {
	action := exchange.Approval{
		ID: "019a", Code: "7k3mq2", Kind: exchange.ApprovalAction, Status: exchange.ApprovalDenied, Agent: "shop", Asker: "@ann@x.test",
		Principal: "inbox.test mailto:ann@x.test", Via: "email", Question: "please\nrefund \x1b[31mit", Tool: "refund", Summary: "Refund order 17",
		Preview: json.RawMessage(`{"order":17}`), Hosts: []string{"пример.рф is xn--e1afmkfd.xn--p1ai"}, DecidedBy: "operator:laptop", Reason: "Too late.", IssuedAt: time.Unix(1, 0), ExpiresAt: time.Unix(2, 0),
	}
	var out bytes.Buffer
	showApproval(&out, action)
	for _, want := range []string{
		"code        7k3mq2\n", "status      denied\n", "decided by  operator:laptop\n", "reason      Too late.\n", "  | please\n  | refund [31mit\n",
		"Preview:\n  | {\n  |   \"order\": 17\n  | }\n", "xn--e1afmkfd.xn--p1ai\n\nThe agent says:\n  | Refund order 17\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out.String())
		}
	}
	reply := exchange.Approval{
		ID: "019b", Kind: exchange.ApprovalReply, EditedBy: "operator:laptop", Draft: &normalized.Response{},
		DraftText: "[also to @bob@x.test]\nWe open at nine.\n\nAttachment: map.png (image/png, 3 bytes)",
	}
	out.Reset()
	showApproval(&out, reply)
	if !strings.Contains(out.String(), "The answer:\n  | [also to @bob@x.test]\n  | We open at nine.\n  | \n  | Attachment: map.png (image/png, 3 bytes)\nedited by   operator:laptop\n") {
		t.Errorf("shown:\n%s", out.String())
	}
}

// TestApprovalsArePrintedBeforeTheyAreApproved: a person at a terminal reads the approval and says yes; a script is not asked.
func TestApprovalsArePrintedBeforeTheyAreApproved(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "": false, "approve\n": false} {
		cmd := newApprovalsApprove()
		var asked bytes.Buffer
		cmd.SetIn(strings.NewReader(answer))
		cmd.SetErr(&asked)
		if got := agrees(cmd, "Approve?"); got != want || asked.String() != "Approve? [y/N] " {
			t.Errorf("%q agrees: %v, asked %q", answer, got, asked.String())
		}
	}

	read := exchange.Approval{ID: "019a", Kind: exchange.ApprovalAction, Status: exchange.ApprovalOpen, Preview: json.RawMessage(`{"to":"ann"}`)}
	for _, yes := range []bool{true, false} {
		cmd := newApprovalsApprove()
		var shown bytes.Buffer
		cmd.SetIn(strings.NewReader("n\n")) // no terminal
		cmd.SetErr(&shown)
		if err := confirmApproval(cmd, read, yes); err != nil || !strings.Contains(shown.String(), `"to": "ann"`) {
			t.Errorf("--yes %v: %v, shown %q", yes, err, shown.String())
		}
	}
}

// TestRefusalsAreSaidWithoutTheRecord: the code and the reason of a refusal are for the audit.
func TestRefusalsAreSaidWithoutTheRecord(t *testing.T) {
	refusal := &policypart.Refusal{Code: policypart.CodeTerms, Reason: "it was changed after it was shown, tried by operator:command"}
	err := fmt.Errorf("019a: %w", fault.Wrap(fault.Conflict, "this was changed; look at it again", refusal))
	if got := errorText(err); got != "019a: this was changed; look at it again" {
		t.Errorf("says %q", got)
	}
	err = fault.Wrap(fault.Unavailable, "the database does not answer", errors.New("connection refused"))
	if got := errorText(err); got != err.Error() {
		t.Errorf("leaves out a cause that the operator needs: %q", got)
	}
}
