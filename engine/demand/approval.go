package demand

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/markup"
	"inbox/normalized"
	"inbox/policypart"
)

// Codes of audit rows about approvals, and of the final notice of one that was denied or expired.
const (
	codeApprovalGranted = "approval:granted"
	codeApprovalDenied  = "approval:denied"
	codeApprovalExpired = "approval:expired"
)

// deciderPage is the decider of a click on the page: its address went to the approvers alone.
const deciderPage = "page of the approval"

// maxDraft bounds an answer that is held back, as JSON; maxQuestion what is kept of the question, in bytes.
const (
	maxDraft    = 1 << 20
	maxQuestion = 2 << 10
	maxReason   = 500
	maxEarlier  = 50 // codes of earlier texts of an answer that are kept
)

// approvals meets demands that an approver or the operator decides instead of the asker.
type approvals struct {
	store   Store
	demands *registry
	secrets *secrets
	audit   *auditTrail
	now     func() time.Time
}

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
	Shown     string `json:"shown,omitempty"` // digest of what was approved
}

func decidedOf(resolution *policypart.Resolution) (d decided) {
	if resolution != nil {
		_ = json.Unmarshal(resolution.Data[policypart.ApprovalKey], &d) // absent: no approval was decided
	}
	return d
}

// approves reports whether a part is decided by an approver and not by its asker.
func approves(part policypart.Part) bool {
	return part.NeedsApproval() || part.Kind == policypart.ConsentRequired && part.Code == policypart.CodeApprovalReply
}

// approval completes the demand of an approval.
func approval(issuance *policypart.Issuance, kept *notes, turn exchange.TurnRecord) {
	issuance.Purpose = policypart.PurposeApproval
	kept.Code = newCode()
	issuance.CodeHash = hashCode(kept.Code)
	kept.Question = beginning(markup.PlainText(turn.Message.Parts), maxQuestion)
	kept.Message = digestOfMessage(turn.Message)
}

// verdict returns the ending of an approval that was decided.
func (a *approvals) verdict(i policypart.Issuance, grant bool, by Decider, reason string) Ending {
	now := a.now()
	asked := i.Part.Approval()
	record := decided{ActionID: asked.ActionID, Tool: asked.Tool, Reply: replies(i), DecidedBy: cmp.Or(by.Address, by.Name), Reason: reason, Shown: shownOf(i)}
	what := deed{outcome: policypart.OutcomeGranted, by: a.resolverOf(by), data: withData(nil, policypart.ApprovalKey, record)}
	code := codeApprovalGranted
	if !grant {
		what.outcome, code = policypart.OutcomeDenied, codeApprovalDenied
	}

	ending := Ending{Issuance: endedApproval(i, what, now), From: []string{policypart.StatusIssued}, Resume: grant}
	ending.Audit = []exchange.AuditRecord{approvalRow(i, code, by.Name, about(i)+" "+what.outcome+" by "+by.Name, now)}

	if !grant {
		ending.Response, ending.State = lastWord(ending.Issuance), exchange.StateRefused
	}

	return ending
}

// endedApproval leaves the notes to the store: the answer that is sent is the one of the moment of the decision.
func endedApproval(i policypart.Issuance, what deed, now time.Time) policypart.Issuance {
	i = ended(i, what, now)
	i.Notes = nil
	return i
}

func expiredApproval(i policypart.Issuance, now time.Time) Ending {
	what := deed{outcome: policypart.OutcomeExpired, data: withData(nil, policypart.ApprovalKey, decided{Reply: replies(i)})}
	ending := Ending{
		Issuance: endedApproval(i, what, now), From: []string{policypart.StatusIssued, policypart.StatusClaimed}, State: exchange.StateRefused,
		Audit: []exchange.AuditRecord{approvalRow(i, codeApprovalExpired, "", about(i)+" expired: no one decided", now)},
	}
	ending.Response = lastWord(ending.Issuance)
	return ending
}

// LastWord returns the ending of an approval that was denied where its asker could not be written to.
func (a *approvals) LastWord(i policypart.Issuance) (Ending, bool) {
	if i.Purpose != policypart.PurposeApproval || i.Status != policypart.StatusDenied {
		return Ending{}, false
	}
	return Ending{Issuance: i, Response: lastWord(i), State: exchange.StateRefused}, true
}

// lastWord is the final notice to the asker of an approval that was denied or expired. An answer that was held back is
// just not sent, unless the decider wrote a reason.
func lastWord(i policypart.Issuance) *normalized.Response {
	d := decidedOf(i.Resolution)
	switch {
	case i.Status == policypart.StatusExpired && d.Reply:
		return refused(i, codeApprovalExpired, "The answer to your message was not released in time. Send your message again if you still need one.")
	case i.Status == policypart.StatusExpired:
		return refused(i, codeApprovalExpired, "This needs an approval that was not given in time, so nothing was done. Send your message again to start over.")
	case d.Reply && d.Reason == "":
		return &normalized.Response{InReplyTo: i.MessageID, ThreadID: i.ThreadID, Status: normalized.StatusCompleted, Silent: true}
	case d.Reply:
		return refused(i, codeApprovalDenied, d.Reason)
	case d.Reason == "":
		return refused(i, codeApprovalDenied, "This needs an approval, and it was not given, so nothing was done.")
	}

	return refused(i, codeApprovalDenied, "This needs an approval, and it was not given, so nothing was done. The reason: "+d.Reason)
}

func approvalRow(i policypart.Issuance, code, by, detail string, now time.Time) exchange.AuditRecord {
	record := auditRow(i, code, detail, now)
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

func (a *approvals) resolverOf(by Decider) *policypart.Resolver {
	if by.Resolver != nil || by.Name == deciderPage {
		return by.Resolver
	}
	return &policypart.Resolver{Issuer: hostOf(a.secrets.base), Subject: by.Name, Method: policypart.MethodOperator}
}

func hostOf(base *url.URL) string {
	if base == nil {
		return ""
	}
	return base.Host
}

// approvalFault returns a refusal with the text for an approver.
func approvalFault(i policypart.Issuance, refusal *policypart.Refusal) error {
	if refusal.Withdrawn {
		return asFault(refusal)
	}
	switch refusal.Code {
	case policypart.CodeExpired:
		return fault.Wrap(fault.Gone, "this approval has expired", refusal)
	case policypart.CodeUsed:
		return fault.Wrap(fault.Conflict, "this was decided before: "+outcomeOf(i), refusal)
	case policypart.CodeProof:
		return fault.Wrap(fault.Forbidden, "this is not the code of this approval; it is in the message that has the link to this page", refusal)
	case policypart.CodeTerms:
		return fault.Wrap(fault.Conflict, "this was changed after you read it, so nothing was decided; look at it again", refusal)
	}
	return asFault(refusal)
}

// outcomeOf returns how an approval ended, in words.
func outcomeOf(i policypart.Issuance) string {
	words := map[string]string{
		policypart.StatusResolved: "approved", policypart.StatusDenied: "denied", policypart.StatusExpired: "it expired",
		policypart.StatusDropped: "it is no longer needed",
	}[i.Status]

	if by := decidedOf(i.Resolution).DecidedBy; by != "" && words != "" {
		words += " by " + by
	}
	if words == "" {
		return "at this moment by another person"
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
	return clip.Marked(strings.TrimSpace(text), limit, "…")
}

// Approvals lists what waits for the decision of an approver or the operator, newest first; with filter.All also what
// was decided.
func (a *approvals) Approvals(ctx context.Context, filter exchange.ApprovalFilter) ([]exchange.Approval, error) {
	found, err := a.store.Approvals(ctx, filter)
	list := make([]exchange.Approval, 0, len(found))
	for _, issuance := range found {
		list = append(list, listed(issuance, a.now()))
	}
	return list, err
}

// Approval returns one approval by its id or code. fault.NotFound when there is none.
func (a *approvals) Approval(ctx context.Context, id string) (exchange.Approval, error) {
	issuance, err := a.find(ctx, id)
	if err != nil {
		return exchange.Approval{}, err
	}
	return listed(issuance, a.now()), nil
}

// Approvable returns an approval that is to be read before it is approved, with the error that Approve would return about its id: a person
// reads nothing, and is asked nothing, for an approval that cannot be given.
func (a *approvals) Approvable(ctx context.Context, id, by string) (exchange.Approval, error) {
	issuance, err := a.open(ctx, id, by)
	if err == nil && namedBefore(issuance, id) {
		err = a.audit.refuse(ctx, issuance, changedSince(by))
	}
	if issuance.ID == "" {
		return exchange.Approval{}, err
	}
	return listed(issuance, a.now()), err
}

// namedBefore reports whether the id is a code from before an edit.
func namedBefore(i policypart.Issuance, id string) bool {
	return isCode(id) && hashCode(plainCode(id)) != i.CodeHash
}

// Approve lets the turn go on: its agent runs again with the grant, or the answer that was held back is sent. By is for
// the record, such as "operator:<name of the token>". Shown is the digest of what they read (exchange.Approval.Digest). It may be
// empty where the id names one text: a code does, and the id of an approval that was never edited. fault.NotFound, Gone (expired),
// Malformed (shown is no digest) or Conflict (decided before, or changed since it was read, or named by a code from before an edit); beside
// an error about an approval that exists its present state is returned.
func (a *approvals) Approve(ctx context.Context, id, shown, by string) (exchange.Approval, error) {
	return a.decide(ctx, id, by, true, func(i policypart.Issuance) error {
		kept := notesOf(i)
		edited := kept.Draft != nil && kept.Draft.EditedBy != ""
		switch {
		case shown != "" && !policypart.IsDigest(shown):
			return fault.InField("digest", "must be the 64 hexadecimal digits of the approval that you read; see: inbox approvals show "+id)
		case shown != "" && shown != shownOf(i), namedBefore(i, id), shown == "" && !isCode(id) && edited:
			return a.audit.refuse(ctx, i, changedSince(by))
		}
		return nil
	}, "")
}

// Deny ends the turn. The asker of an action is told so, with the reason if there is one; an answer that was held back is
// not sent, and only a reason is told. Errors are those of Approve, and Malformed for a reason over 500 bytes.
func (a *approvals) Deny(ctx context.Context, id, by, reason string) (exchange.Approval, error) {
	reason, err := reasonText(reason)
	if err != nil {
		return exchange.Approval{}, err
	}
	return a.decide(ctx, id, by, false, nil, reason)
}

// decide settles an approval. Check may refuse it as it stands now; nil = it is decided whatever it says.
func (a *approvals) decide(
	ctx context.Context, id, by string, grant bool, check func(policypart.Issuance) error, reason string,
) (exchange.Approval, error) {
	issuance, err := a.open(ctx, id, by)
	if err == nil && check != nil {
		err = check(issuance)
	}
	if err == nil {
		err = a.demands.settle(ctx, a.verdict(issuance, grant, Decider{Name: by}, reason))
	}
	return a.current(ctx, issuance), err
}

// EditReply replaces the text of an answer that is held back; files and recipients stay. The approval stays open. It returns the
// approval as this edit left it, whose digest approves this text and not that of someone who was faster. Errors
// are those of Approve, and Malformed for an approval of an action, or a text that is empty or too long; beside an error the
// present state is returned.
func (a *approvals) EditReply(ctx context.Context, id, by, text string) (exchange.Approval, error) {
	issuance, err := a.open(ctx, id, by)
	if err == nil {
		err = a.editReply(ctx, &issuance, by, text)
	}
	if err != nil {
		return a.current(ctx, issuance), err
	}
	return listed(issuance, a.now()), nil
}

// editReply stores the text, and leaves the approval as it is then.
func (a *approvals) editReply(ctx context.Context, i *policypart.Issuance, by, text string) error {
	kept := notesOf(*i)
	text = strings.TrimSpace(text)
	limit := normalized.DefaultLimits().TextPart
	switch {
	case kept.Draft == nil:
		return fault.New(fault.Malformed, "this approval is about an action: it has no text that could be changed")
	case text == "" || len(text) > limit || !utf8.ValidString(text):
		return fault.InField("text", fmt.Sprintf("must be text of 1 to %d bytes", limit))
	}

	kept.Draft.Response.Parts = reworded(kept.Draft.Response.Parts, text)
	kept.Draft.EditedBy = by
	kept.Earlier = append(kept.Earlier, i.CodeHash)
	kept.Earlier = kept.Earlier[max(0, len(kept.Earlier)-maxEarlier):]
	kept.Code = newCode()
	noteTelling(*i, &kept)
	noted, err := a.store.ReviseDemand(ctx, i.ID, i.CodeHash, hashCode(kept.Code), kept.raw())
	switch {
	case err != nil:
		return fault.Wrap(fault.Unavailable, "the text cannot be stored now; try again", err)
	case !noted:
		return a.audit.refuse(ctx, *i, a.demands.lost(ctx, *i))
	}

	i.CodeHash, i.Notes, i.UpdatedAt = hashCode(kept.Code), kept.raw(), a.now()
	return nil
}

// reworded puts the text in the place of all texts. It keeps the form of the first one, unless that was HTML, which is not
// written by hand.
func reworded(parts []normalized.Part, text string) []normalized.Part {
	isText := func(part normalized.Part) bool { return part.Kind == normalized.PartText }
	place := max(0, slices.IndexFunc(parts, isText))
	fresh := normalized.Text(text)
	if place < len(parts) && isText(parts[place]) && parts[place].MIME == normalized.MIMEMarkdown {
		fresh = normalized.Markdown(text)
	}

	rest := slices.Clone(parts)
	before := slices.DeleteFunc(slices.Clone(rest[:place]), isText)
	after := slices.DeleteFunc(rest[place:], isText)
	return slices.Concat(before, []normalized.Part{fresh}, after)
}

// find finds one by id or code; codes from before an edit still name an open one.
func (a *approvals) find(ctx context.Context, id string) (issuance policypart.Issuance, err error) {
	found := true
	if isCode(id) {
		issuance, found, err = a.byCode(ctx, hashCode(plainCode(id)))
	} else {
		issuance, err = a.store.Demand(ctx, id)
	}
	if fault.Is(err, fault.NotFound) {
		err, found = nil, false
	}
	if err == nil && (!found || issuance.Purpose != policypart.PurposeApproval) {
		return policypart.Issuance{}, fault.Newf(fault.NotFound, "there is no approval %s; see: inbox approvals list", id)
	}
	return issuance, err
}

// byCode finds the newest approval with a code, an open one first.
func (a *approvals) byCode(ctx context.Context, hash string) (policypart.Issuance, bool, error) {
	for _, all := range []bool{false, true} {
		found, err := a.store.Approvals(ctx, exchange.ApprovalFilter{CodeHash: hash, All: all, Limit: 1})
		if err != nil || len(found) > 0 {
			return first(found), len(found) > 0, err
		}
	}

	open, err := a.store.Approvals(ctx, exchange.ApprovalFilter{Limit: lookedThrough})
	place := slices.IndexFunc(open, func(i policypart.Issuance) bool { return slices.Contains(notesOf(i).Earlier, hash) })
	if err != nil || place < 0 {
		return policypart.Issuance{}, false, err
	}
	return open[place], true, nil
}

func first(found []policypart.Issuance) (issuance policypart.Issuance) {
	if len(found) > 0 {
		issuance = found[0]
	}
	return issuance
}

// open finds one that can be decided; an attempt at one that cannot is on record.
func (a *approvals) open(ctx context.Context, id, by string) (policypart.Issuance, error) {
	issuance, err := a.find(ctx, id)
	if err != nil {
		return issuance, err
	}
	if refusal := issuance.CheckOpen(a.now()); refusal != nil {
		refusal.Reason += ", tried by " + by
		return issuance, a.audit.refuse(ctx, issuance, refusal)
	}
	return issuance, nil
}

// current reads it again after a decision.
func (a *approvals) current(ctx context.Context, issuance policypart.Issuance) exchange.Approval {
	if issuance.ID == "" {
		return exchange.Approval{}
	}
	if current, err := a.store.Demand(ctx, issuance.ID); err == nil {
		issuance = current
	}
	return listed(issuance, a.now())
}

// Released is an answer that was held back and approved.
type Released struct {
	Response normalized.Response
	Combined bool // the answers of other agents are in it
}

// Released returns the answer of a turn that was held back and approved: it is sent as it is, its agent does not run again.
// A turn without such an approval costs no query. Errors (fault.Unavailable) mean that the same call should be repeated.
func (a *approvals) Released(ctx context.Context, turn exchange.TurnRecord) (Released, bool, error) {
	if resolution := turn.Message.PolicyResolution; resolution == nil || !decidedOf(resolution).Reply || resolution.Outcome != policypart.OutcomeGranted {
		return Released{}, false, nil
	}

	issuance, err := a.store.Demand(ctx, progressOf(turn).ID)
	if fault.Is(err, fault.NotFound) {
		return Released{}, false, nil
	}
	if err != nil {
		return Released{}, false, fault.RetryIn(0, "the approved answer cannot be read now", err)
	}

	kept := notesOf(issuance)
	if issuance.TurnID != turn.ID || kept.Draft == nil || !grantOf(issuance).Covers(useBy(issuance, turn, a.now())) {
		return Released{}, false, nil
	}

	return Released{Response: kept.Draft.Response, Combined: kept.Draft.Combined}, true, nil
}

// Granted reports whether what a turn is to go on with was granted for this turn as it stands: to its sender, for its agent,
// about the message that it has now. A turn that never waited costs no query. Errors (fault.Unavailable) mean that the same
// call should be repeated.
func (a *approvals) Granted(ctx context.Context, turn exchange.TurnRecord) (bool, error) {
	if turn.Message.PolicyResolution == nil {
		return false, nil
	}

	issuance, err := a.store.Demand(ctx, progressOf(turn).ID)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, fault.RetryIn(0, "what was granted cannot be read now", err)
	}
	return issuance.TurnID == turn.ID && grantOf(issuance).Check(useBy(issuance, turn, a.now())) == nil, nil
}

// grantOf returns what the resolution of a demand allows; the zero Grant of one that was not granted.
func grantOf(i policypart.Issuance) policypart.Grant {
	resolution := i.Resolution
	if i.Status != policypart.StatusResolved || resolution == nil ||
		resolution.Outcome != policypart.OutcomeGranted && resolution.Outcome != policypart.OutcomePaid {
		return policypart.Grant{}
	}

	granted := policypart.Grant{Purpose: cmp.Or(i.Purpose, i.Kind), Subject: i.Principal, Agent: i.Agent, Digest: i.Action}
	if i.Purpose == policypart.PurposeApproval {
		d := decidedOf(resolution)
		granted.Digest, granted.By = d.Shown, d.DecidedBy
	}
	if lent(i) {
		granted.Digest = policypart.Digest(i.Action, notesOf(i).Message)
	}
	if resolution.Outcome != policypart.OutcomePaid { // what was paid for counts until the money is taken
		granted.Until = resolution.ResolvedAt.Add(policypart.GrantLife)
	}
	return granted
}

// lent reports whether someone else than the sender logged in: for the message that their page showed, and for no other.
func lent(i policypart.Issuance) bool {
	same := i.Resolution.SameAsSender
	return i.Kind == policypart.Unauthorized && same != nil && !*same && notesOf(i).Message != "" // an older version kept none
}

// useBy is the use that a turn makes of the grant of its demand. An approval, and the login of someone else, are about the
// message that was shown, which its sender may have edited since.
func useBy(i policypart.Issuance, turn exchange.TurnRecord, now time.Time) policypart.Use {
	use := policypart.Use{Purpose: cmp.Or(i.Purpose, i.Kind), Subject: turn.Principal, Agent: turn.Agent, At: now}
	if brought(i, turn) {
		use.Subject = i.Principal
	}
	if i.Purpose != policypart.PurposeApproval {
		use.Digest, _ = i.Part.Terms() // an error leaves it empty, which no grant covers
		if i.Resolution != nil && lent(i) {
			use.Digest = policypart.Digest(use.Digest, digestOfMessage(turn.Message))
		}
		return use
	}

	kept := notesOf(i)
	if kept.Message != "" { // an older version kept none
		kept.Message = digestOfMessage(turn.Message)
	}
	use.Digest = shownWith(i, kept)
	return use
}

// brought reports whether a later message brought what was demanded of its asker: the demand is of its turn since. Its sender was
// compared with the asker then, and may have brought the asker's signed envelope as another party.
func brought(i policypart.Issuance, turn exchange.TurnRecord) bool {
	return i.Purpose != policypart.PurposeApproval && turn.Message.ID != i.MessageID
}

// shownOf returns the digest of what an approver is shown of an approval as it stands.
func shownOf(i policypart.Issuance) string { return shownWith(i, notesOf(i)) }

func shownWith(i policypart.Issuance, kept notes) string {
	answer := ""
	if kept.Draft != nil {
		answer = jsonOf(kept.Draft.Response)
	}
	return policypart.Digest(i.Agent, i.Principal, jsonOf(i.Part), answer, kept.Message)
}

// digestOfMessage is of what the asker says, the same before the message was stored and after.
func digestOfMessage(message normalized.Message) string {
	var stored []normalized.Part
	if err := json.Unmarshal([]byte(jsonOf(message.Parts)), &stored); err != nil {
		stored = message.Parts
	}
	return policypart.Digest(jsonOf(stored))
}

func jsonOf(value any) string {
	body, err := json.Marshal(value)
	if err != nil { // it was read from JSON, or is written as JSON next
		return ""
	}
	return string(body)
}
