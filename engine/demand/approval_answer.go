package demand

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/policypart"
)

// Decision is the decision in an approver's message.
type Decision struct {
	Grant bool
	Code  string // of the approval; empty = the message names none
	Short bool   // yes, no or ok: words that also answer other questions
}

var (
	// A code begins with a digit, so that no word is taken for one.
	decisionPattern = regexp.MustCompile(`(?i)^(approve|deny|yes|no|ok)(?:[ \t]+#?([0-9][0-9a-z]{5}))?[ \t]*[.!]?$`)
	subjectPattern  = regexp.MustCompile(`(?i)^subject:[^\n]*\n[ \t]*\n`)
	dividerPattern  = regexp.MustCompile(`^(?:-{5,}.*|_{5,}|--|From:.*|\*From:\*.*|Sent from my .*|Get Outlook for .*)$`)
	mentionPattern  = regexp.MustCompile(`^(?:@[^\s@]+(?:@[^\s@]+)?\s+)+|(?:\s+@[^\s@]+(?:@[^\s@]+)?)+$`)
)

const (
	maxDecision = 64 << 10 // bytes of a text part that are looked through
	maxOwnText  = 4 << 10  // of them, above the quotation: a word, mentions, and how the quotation is announced
)

// ReadDecision reads the decision out of a message: its text is exactly one word, with the code of an approval or
// without. Quoted text below, a signature, mentions and the subject that begins the text of a mail do not count; a second
// text makes it an ordinary message. The sender is not looked at.
func ReadDecision(message normalized.Message) (d Decision, ok bool) {
	text := ""
	for i := range message.Parts {
		switch {
		case message.Parts[i].Kind != normalized.PartText: // the logo of a signature, perhaps
		case text != "":
			return d, false
		default:
			text = message.Parts[i].Content
		}
	}

	if text == "" || len(text) > maxDecision {
		return d, false
	}

	match := decisionPattern.FindStringSubmatch(mentionPattern.ReplaceAllString(ownText(text), ""))
	if match == nil {
		return d, false
	}

	word := strings.ToLower(match[1])
	d.Grant = word == "approve" || word == "yes" || word == "ok"
	d.Short = word != "approve" && word != "deny"
	d.Code = plainCode(match[2])
	return d, true
}

// ownText leaves out what the writer did not write: quoted lines with the line that announces them, and what stands below
// a signature or divider. It is empty when the writer wrote too much for a decision.
func ownText(text string) string {
	text = subjectPattern.ReplaceAllString(strings.ReplaceAll(text, "\r\n", "\n"), "")
	var own []string
	size := 0
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, " \t")
		if strings.HasPrefix(line, ">") {
			own = unannounced(own)
			break
		}
		if dividerPattern.MatchString(line) && len(own) > 0 {
			break
		}
		if size += len(line); size > maxOwnText {
			return ""
		}
		own = append(own, line)
	}

	return strings.TrimSpace(strings.Join(own, "\n"))
}

// unannounced takes away the paragraph that announces a quotation ("On Monday Ann wrote:"), in any language.
func unannounced(lines []string) []string {
	end := len(lines)
	for end > 0 && lines[end-1] == "" {
		end--
	}

	if end == 0 || !strings.HasSuffix(lines[end-1], ":") {
		return lines
	}

	for end > 0 && lines[end-1] != "" {
		end--
	}
	return lines[:end]
}

// codeOf returns the code of an approval: a digit and five characters of Crockford's base32, out of the random end of its
// id. It is no secret: it only tells one approval from the others.
func codeOf(id string) string {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return ""
	}
	const digits, letters = 10, 5
	tail := parsed[10:]
	return string(rune('0'+int(tail[0])%digits)) + crockford.EncodeToString(tail[1:])[:letters]
}

// plainCode forgives case and the letters that are taken for digits.
func plainCode(text string) string { return wordLetters.Replace(strings.ToLower(text)) }

// isCode reports whether a text has the form of a code.
func isCode(text string) bool { return len(text) == len(codeOf(uuid.Nil.String())) }

func hashCode(code string) string { return policypart.HashState("approval " + code) }

// threadPrefix begins the conversation in which an approver is asked. No address of a mail or a post looks like it.
const threadPrefix = "urn:inbox:approval:"

// ApprovalThread names the conversation in which one approver is asked about one approval.
func ApprovalThread(id, approver string) string {
	const enough = 16
	return threadPrefix + id + ":" + policypart.HashState(strings.ToLower(approver))[:enough]
}

// approvalOfThread returns the id of the approval that a conversation is about.
func approvalOfThread(threadID string) (id string, ok bool) {
	rest, ok := strings.CutPrefix(threadID, threadPrefix)
	if !ok {
		return "", false
	}
	id, _, ok = strings.Cut(rest, ":")
	return id, ok
}

// lookedThrough bounds the approvals of an agent that one message is compared with.
const lookedThrough = 500

// Verdict is what an approver's message comes to.
type Verdict struct {
	Answers  bool    // the message is about an approval; otherwise it is an ordinary one
	Ending   *Ending // to be stored together with the answer; nil = nothing was decided
	Sentence string  // the answer
}

// Answer applies the decision in an approver's message to what is open at the turn's agent. A decision without code
// counts when exactly one approval is open; yes, no and ok without code only as an answer to what the approver was asked.
// The ending is for the caller to store; fault.Conflict then means that another decision was faster, and to ask again.
func (a *approvals) Answer(ctx context.Context, turn exchange.TurnRecord, d Decision, by Decider) (Verdict, error) {
	about, asked := approvalOfThread(turn.ThreadID)
	if d.Short && d.Code == "" && !asked {
		return Verdict{}, nil
	}

	filter := exchange.ApprovalFilter{Agent: turn.Agent, Limit: lookedThrough}
	if d.Code != "" {
		filter.CodeHash, filter.All = hashCode(d.Code), true
	}

	found, err := a.store.Approvals(ctx, filter)
	if err != nil {
		return Verdict{}, fault.RetryIn(0, "the approvals cannot be read now", err)
	}

	closed := func(i policypart.Issuance) bool { return i.CheckOpen(a.now()) != nil }
	open := slices.DeleteFunc(slices.Clone(found), closed)
	if d.Code != "" {
		return a.answerCode(ctx, d, by, open, found), nil
	}

	isAbout := func(i policypart.Issuance) bool { return i.ID == about }
	switch {
	case asked && !slices.ContainsFunc(open, isAbout):
		return a.tooLate(ctx, turn.Agent, about, by)
	case len(open) == 0:
		return Verdict{}, nil
	case len(open) > 1:
		return Verdict{Answers: true, Sentence: choose(d, open)}, nil
	}

	return a.decision(open[0], d, by), nil
}

// answerCode answers a message that names an approval; found are those with its code.
func (a *approvals) answerCode(ctx context.Context, d Decision, by Decider, open, found []policypart.Issuance) Verdict {
	switch {
	case len(open) > 0:
		return a.decision(open[0], d, by)
	case len(found) > 0:
		return a.late(ctx, found[0], by)
	}
	return Verdict{Answers: !d.Short, Sentence: "No request with the code " + d.Code + " waits for a decision."}
}

func (a *approvals) decision(i policypart.Issuance, d Decision, by Decider) Verdict {
	ending := a.verdict(i, d.Grant, by, "")
	demands.WithLabelValues(i.Kind, ending.Issuance.Resolution.Outcome).Inc()
	return Verdict{Answers: true, Ending: &ending, Sentence: confirmation(i, d.Grant)}
}

// confirmation is the one sentence that an approver gets back.
func confirmation(i policypart.Issuance, grant bool) string {
	switch {
	case replies(i) && grant:
		return fmt.Sprintf("Approved (%s): the answer is on its way.", codeOf(i.ID))
	case replies(i):
		return fmt.Sprintf("Denied (%s): the answer is not sent.", codeOf(i.ID))
	case grant:
		return fmt.Sprintf("Approved (%s): %s", codeOf(i.ID), sentenceOf(i))
	}
	return fmt.Sprintf("Denied (%s), so nothing is done: %s", codeOf(i.ID), sentenceOf(i))
}

func sentenceOf(i policypart.Issuance) string {
	const longest = 200
	return "“" + beginning(oneLine(i.Part.Approval().Summary), longest) + "”."
}

// choose asks which of several is meant.
func choose(d Decision, open []policypart.Issuance) string {
	const shown = 5
	word := "deny"
	if d.Grant {
		word = "approve"
	}

	var lines []string
	for _, i := range open[:min(len(open), shown)] {
		what := sentenceOf(i)
		if replies(i) {
			what = "an answer to " + notesOf(i).Address + "."
		}
		lines = append(lines, word+" "+codeOf(i.ID)+" for "+what)
	}

	return fmt.Sprintf("%d requests wait for a decision, so add the code of the one that you mean: %s", len(open), strings.Join(lines, " "))
}

// tooLate answers a decision in a conversation about an approval that is not open any more.
func (a *approvals) tooLate(ctx context.Context, agent, id string, by Decider) (Verdict, error) {
	issuance, err := a.store.Demand(ctx, id)
	switch {
	case fault.Is(err, fault.NotFound):
		return Verdict{}, nil
	case err != nil:
		return Verdict{}, fault.RetryIn(0, "the approval cannot be read now", err)
	case issuance.Purpose != policypart.PurposeApproval || issuance.Agent != agent:
		return Verdict{}, nil
	}
	return a.late(ctx, issuance, by), nil
}

func (a *approvals) late(ctx context.Context, i policypart.Issuance, by Decider) Verdict {
	refusal := i.CheckOpen(a.now())
	if refusal == nil {
		refusal = &policypart.Refusal{Code: policypart.CodeUsed, Reason: "decided at this moment"}
	}
	refusal.Reason += ", tried by " + by.Name
	public := fault.Of(a.audit.refuse(ctx, i, refusal)).Public
	return Verdict{Answers: true, Sentence: strings.ToUpper(public[:1]) + public[1:] + "."}
}
