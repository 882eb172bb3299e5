package console

import (
	"encoding/json"

	"inbox/policypart"
)

// shortDetails is how long details may be that are shown at once, in bytes.
const shortDetails = 2000

// templateOf returns which page shows the demand: an approver reads something else than the asker of a demand.
func templateOf(d Demand) string {
	if d.Purpose == policypart.PurposeApproval {
		return "policy_approval.html"
	}
	return "policy.html"
}

// Details is what would be done, as text.
func (v policyPage) Details() string {
	if len(v.Preview) == 0 {
		return ""
	}
	var text string
	if json.Unmarshal(v.Preview, &text) == nil {
		return text
	}
	return indented(v.Preview)
}

// Short reports whether the details are shown without a click.
func (v policyPage) Short() bool { return len(v.Preview) <= shortDetails }

// approvalOutcome returns the words for an approval that cannot be decided any more.
func approvalOutcome(d Demand) (state, detail string) {
	switch {
	case d.Outcome == policypart.OutcomeGranted && d.Draft != "":
		return "Approved", "The answer is sent. You can close this page."
	case d.Outcome == policypart.OutcomeGranted:
		return "Approved", "The agent goes on. You can close this page."
	case d.Outcome == policypart.OutcomeDenied:
		return "Denied", "Nothing is done or sent. You can close this page."
	case d.Status == policypart.StatusExpired:
		return "This approval has expired", "Nobody decided in time, so nothing was done. Whoever asked is told so."
	case d.Status == policypart.StatusDropped:
		return "Nobody waits for this any more", "Whoever asked wrote again in the meantime, or took the message back."
	}
	return "This was decided already", "An approval is decided once."
}
