package demand

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// Codes of audit rows about approvals, and of the last word of one that was not given.
const (
	codeApprovalGranted = "approval:granted"
	codeApprovalDenied  = "approval:denied"
	codeApprovalExpired = "approval:expired"
)

// MethodOperator is the method of a decision that the operator took, by command or by the operator API.
const MethodOperator = "urn:mentionable:auth:operator:v0.1"

// deciderPage is who decided on the page: its address went to the approvers and to nobody else.
const deciderPage = "page of the approval"

// maxDraft bounds an answer that is held back, as JSON; maxQuestion what is kept of the question, in bytes.
const (
	maxDraft    = 1 << 20
	maxQuestion = 2 << 10
	maxReason   = 500
)

// Decider is who decides about an approval.
type Decider struct {
	Name     string               // for the record: "operator:<token>", or a principal
	Address  string               // of the approver, as the operator wrote it; empty for operators and the page
	Resolver *policypart.Resolver // the identity that proved the address of an approver; nil for operators and the page
}

// draft is an answer that is held back.
type draft struct {
	Response normalized.Response `json:"response"`
	Combined bool                `json:"combined,omitempty"` // the answers of other agents are in it
	EditedBy string              `json:"edited_by,omitempty"`
}

// decided is the value of policypart.ApprovalKey in a resolution.
type decided struct {
	ActionID  string `json:"action_id,omitempty"`
	Tool      string `json:"tool,omitempty"`
	Reply     bool   `json:"reply,omitempty"` // an answer was held back
	DecidedBy string `json:"decided_by,omitempty"`
	Reason    string `json:"reason,omitempty"`
}

func decidedOf(resolution *policypart.Resolution) (d decided) {
	if resolution != nil {
		_ = json.Unmarshal(resolution.Data[policypart.ApprovalKey], &d) // absent: nobody decided about an approval
	}
	return d
}

// approves reports whether a part is decided by somebody else than its asker.
func approves(part policypart.Part) bool {
	return part.NeedsApproval() || part.Kind == policypart.ConsentRequired && part.Code == policypart.CodeApprovalReply
}

// approval completes the demand of an approval.
func approval(issuance *policypart.Issuance, kept *notes, turn exchange.TurnRecord) {
	issuance.Purpose = policypart.PurposeApproval
	issuance.CodeHash = hashCode(codeOf(issuance.ID))
	kept.Question = beginning(normalized.PlainText(turn.Message.Parts), maxQuestion)
}

// Hold makes the demand for a finished answer that somebody has to let pass. Combined says that the answers of other
// agents are in it already. Errors are final faults: the answer is too large to be kept, or too many were held.
func (s *Service) Hold(turn exchange.TurnRecord, response normalized.Response, combined bool) (policypart.Issuance, error) {
	held := &draft{Response: response, Combined: combined}
	if body, err := json.Marshal(held); err != nil || len(body) > maxDraft {
		return policypart.Issuance{}, fault.GiveUp("the answer is too large to be held for approval (1 MiB)", err)
	}
	return s.issue(turn, policypart.Part{
		Kind: policypart.ConsentRequired, Code: policypart.CodeApprovalReply,
		Title: "An answer waits for approval", Message: "The answer is sent once somebody approves it.",
	}, held)
}

// verdict ends an approval.
func (s *Service) verdict(i policypart.Issuance, grant bool, by Decider, reason string) Ending {
	asked := i.Part.Approval()
	record := decided{ActionID: asked.ActionID, Tool: asked.Tool, Reply: replies(i), DecidedBy: cmp.Or(by.Address, by.Name), Reason: reason}
	what := deed{outcome: policypart.OutcomeGranted, by: s.resolverOf(by), data: withData(nil, policypart.ApprovalKey, record)}
	code := codeApprovalGranted
	if !grant {
		what.outcome, code = policypart.OutcomeDenied, codeApprovalDenied
	}
	ending := Ending{Issuance: s.endedApproval(i, what), From: []string{policypart.StatusIssued}, Resume: grant}
	ending.Audit = []exchange.AuditRecord{s.approvalRecord(i, code, by.Name, about(i)+" "+what.outcome+" by "+by.Name)}
	if !grant {
		ending.Response, ending.State = lastWord(ending.Issuance), exchange.StateRefused
	}
	return ending
}

// endedApproval leaves the notes to the store: the answer that is sent is the one of the moment of the decision.
func (s *Service) endedApproval(i policypart.Issuance, what deed) policypart.Issuance {
	i = ended(i, what, s.now())
	i.Notes = nil
	return i
}

func (s *Service) expireApproval(i policypart.Issuance) Ending {
	what := deed{outcome: policypart.OutcomeExpired, data: withData(nil, policypart.ApprovalKey, decided{Reply: replies(i)})}
	ending := Ending{
		Issuance: s.endedApproval(i, what), From: []string{policypart.StatusIssued, policypart.StatusClaimed}, State: exchange.StateRefused,
		Audit: []exchange.AuditRecord{s.approvalRecord(i, codeApprovalExpired, "", about(i)+" expired: nobody decided")},
	}
	ending.Response = lastWord(ending.Issuance)
	return ending
}

// LastWord returns the ending of an approval that was denied where nobody could write to its asker.
func (s *Service) LastWord(i policypart.Issuance) (Ending, bool) {
	if i.Purpose != policypart.PurposeApproval || i.Status != policypart.StatusDenied {
		return Ending{}, false
	}
	return Ending{Issuance: i, Response: lastWord(i), State: exchange.StateRefused}, true
}

// lastWord is what the asker hears of an approval that was not given. An answer that was held back is just not sent,
// unless whoever decided gave a reason.
func lastWord(i policypart.Issuance) *normalized.Response {
	d := decidedOf(i.Resolution)
	switch {
	case i.Status == policypart.StatusExpired && d.Reply:
		return refused(i, codeApprovalExpired, "The answer to your message was not released in time. Send your message again if you still need one.")
	case i.Status == policypart.StatusExpired:
		return refused(i, codeApprovalExpired, "This needs an approval that nobody gave in time, so nothing was done. Send your message again to start over.")
	case d.Reply && d.Reason == "":
		return &normalized.Response{InReplyTo: i.MessageID, ThreadID: i.ThreadID, Status: normalized.StatusCompleted, Silent: true}
	case d.Reply:
		return refused(i, codeApprovalDenied, d.Reason)
	case d.Reason == "":
		return refused(i, codeApprovalDenied, "This needs an approval, and it was not given, so nothing was done.")
	}
	return refused(i, codeApprovalDenied, "This needs an approval, and it was not given, so nothing was done. The reason: "+d.Reason)
}

func (s *Service) approvalRecord(i policypart.Issuance, code, by, detail string) exchange.AuditRecord {
	record := s.record(i, code, detail)
	record.Principal = by
	return record
}

// about names an approval for the record.
func about(i policypart.Issuance) string {
	if replies(i) {
		return "approval of the answer"
	}
	if tool := i.Part.Approval().Tool; tool != "" {
		return "approval of " + tool
	}
	return "approval of an action"
}

// replies reports whether an answer is held back.
func replies(i policypart.Issuance) bool { return i.Part.Code == policypart.CodeApprovalReply }

func (s *Service) resolverOf(by Decider) *policypart.Resolver {
	if by.Resolver != nil || by.Name == deciderPage {
		return by.Resolver
	}
	return &policypart.Resolver{Issuer: hostOf(s.options.BaseURL), Subject: by.Name, Method: MethodOperator}
}

func hostOf(base *url.URL) string {
	if base == nil {
		return ""
	}
	return base.Host
}

// approvalFault says to an approver why nothing can be decided.
func approvalFault(i policypart.Issuance, refusal *policypart.Refusal) error {
	switch refusal.Code {
	case policypart.CodeExpired:
		return fault.Wrap(fault.Gone, "this approval has expired", refusal)
	case policypart.CodeUsed:
		return fault.Wrap(fault.Conflict, "this was decided before: "+outcomeOf(i), refusal)
	}
	return asFault(refusal)
}

// outcomeOf tells how an approval ended, in words.
func outcomeOf(i policypart.Issuance) string {
	words := map[string]string{
		policypart.StatusResolved: "approved", policypart.StatusDenied: "denied", policypart.StatusExpired: "it expired",
		policypart.StatusDropped: "nobody waits for it any more",
	}[i.Status]
	if by := decidedOf(i.Resolution).DecidedBy; by != "" && words != "" {
		words += " by " + by
	}
	if words == "" {
		return "at this moment by somebody else"
	}
	return words
}

var errReason = errors.New("the reason must be text of at most 500 bytes")

// reasonText cleans what the asker is to be told.
func reasonText(text string) (string, error) {
	text = strings.TrimSpace(text)
	if len(text) > maxReason || !utf8.ValidString(text) {
		return "", fault.Wrap(fault.Malformed, errReason.Error(), errReason)
	}
	return text, nil
}

// beginning returns the first bytes of a text, cut between two characters.
func beginning(text string, limit int) string {
	text = strings.TrimSpace(text)
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}
