package demand

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"inbox/exchange"
	"inbox/internal/capability"
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
	decisionPattern = regexp.MustCompile(`(?i)^(approve|deny|yes|no|ok)(?:[ \t\x{a0}]+#?([0-9][0-9a-z]{5}))?[ \t]*[.!]?$`)
	subjectPattern  = regexp.MustCompile(`(?i)^subject:[^\n]*\n[ \t]*\n`)
	dividerPattern  = regexp.MustCompile(`^(?:-{5,}.*|_{5,}|\* \* \*|--|From:.*|\*From:\*.*|Sent from my .*|Get Outlook for .*|Sent with .*Proton ?Mail.*|` +
		`Outlook \pL+ (?:iOS|Android)<.*|(?:Von meinem|Envoyé de mon|Enviado desde mi|Enviado do meu|Inviato da|Verstuurd vanaf mijn) (?:iPhone|iPad).*|` +
		`(?:iPhone|iPad)から送信|(?:从我的|從我的) ?(?:iPhone|iPad) ?.{1,12})$`)
	mentionPattern = regexp.MustCompile(`^(?:@[^\s@]+(?:@[^\s@]+)?\s+)+|(?:\s+@[^\s@]+(?:@[^\s@]+)?)+$`)
)

const (
	maxDecision = 64 << 10 // bytes of a text part that are looked through
	maxOwnText  = 4 << 10  // of them, above the quotation: a word, mentions, and how the quotation is announced

	decisionBegins = "@aAdDyYnNoO" // with which a text begins that decisionPattern may match: of a mention, or of a word
)

// ReadDecision reads the decision out of a message: its text is exactly one word, with the code of an approval or
// without. Quoted text below, a signature, mentions and the subject that begins the text of a mail do not count; a second
// text makes it an ordinary message. What the channel found to be new in the text is read first: it knows the quotations of more
// programs. The sender is not looked at.
func ReadDecision(message normalized.Message) (d Decision, ok bool) {
	text, own := "", ""
	for i := range message.Parts {
		switch {
		case message.Parts[i].Kind != normalized.PartText: // the logo of a signature, perhaps
		case text != "":
			return d, false
		default:
			text, own = message.Parts[i].Content, message.Parts[i].New
		}
	}

	if d, ok := readWord(own); ok {
		return d, true
	}
	return readWord(text)
}

func readWord(text string) (d Decision, ok bool) {
	if text == "" || len(text) > maxDecision {
		return d, false
	}

	text = withoutSubject(text)
	if begins := strings.TrimSpace(text); begins == "" || strings.IndexByte(decisionBegins, begins[0]) < 0 { // nearly every message
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

// withoutSubject leaves out the subject that begins the text of a mail.
func withoutSubject(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return text[len(subjectPattern.FindString(text)):]
}

// ownText leaves out what the writer did not write: quoted lines with the line that announces them, and what stands below
// a signature or divider. It is empty when the writer wrote too much for a decision.
func ownText(text string) string {
	var own []string
	size := 0
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRightFunc(line, unicode.IsSpace) // Outlook writes lines of a space that is not broken
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

	if end == 0 || !strings.HasSuffix(lines[end-1], ":") && !strings.HasSuffix(lines[end-1], "：") {
		return lines
	}

	for end > 0 && lines[end-1] != "" {
		end--
	}
	return lines[:end]
}

var toAgentPattern = regexp.MustCompile(`(?i)^to[ \t]+(?:the[ \t]+)?agent[ \t]*:`)

// IsForAgent reports whether an approver says in the conversation about an approval that the message is for the agent: its
// text begins with "to agent:".
func IsForAgent(message normalized.Message) bool {
	for i := range message.Parts {
		if message.Parts[i].Kind == normalized.PartText {
			return toAgentPattern.MatchString(mentionPattern.ReplaceAllString(ownText(withoutSubject(message.Parts[i].Content)), ""))
		}
	}
	return false
}

// codeLength is the length of a code in bytes.
const codeLength = 6

// newCode makes the code of an approval: a digit and five characters of Crockford's base32. It stands in the message to the
// approvers and in no address. It is drawn, so that no one derives it from what the agent or the asker knows. It has a letter, so
// that it is not taken for an amount.
func newCode() string {
	for {
		code := capability.Draw(capability.Typed)[:codeLength]
		if strings.Trim(code[:1], "0123456789") == "" && strings.Trim(code, "0123456789") != "" {
			return code
		}
	}
}

// codeOf returns the code of an approval. It names the text that was shown with it: an edit makes a new one.
func codeOf(i policypart.Issuance) string { return notesOf(i).Code }

// plainCode forgives case and the letters that are taken for digits.
func plainCode(text string) string { return wordLetters.Replace(strings.ToLower(text)) }

// isCode reports whether a text has the form of a code.
func isCode(text string) bool { return len(text) == codeLength }

func hashCode(code string) string { return policypart.HashState("approval " + code) }

// Question names the turn in which one approver is asked about one approval. It is a secret of the server: messages that
// leave carry ids that follow from it, and who could compute it could make a message that the approver seems to answer.
func (a *approvals) Question(id, approver string) string {
	return exchange.DerivedID(id, a.secrets.mint(capability.Claim{Purpose: purposeQuestion, Who: strings.ToLower(approver), What: id}))
}

// lookedThrough bounds the approvals of an agent that one message is compared with.
const lookedThrough = 500

// Verdict is what an approver's message comes to.
type Verdict struct {
	Answers  bool                 // the message is about an approval; otherwise it is an ordinary one
	Ending   *Ending              // to be stored together with the answer; nil = nothing was decided
	Sentence string               // the answer
	Told     *normalized.Response // beside the sentence: what is asked now; nil = it need not be shown again
}

// Asked is what an approver was asked in the conversation to which their message belongs.
type Asked struct {
	Approval string // id
	Shown    string // digest of what was shown, see ShownKey
}

// Answer applies the decision in an approver's message. It counts with the code of an approval, or without one as an answer
// to what this very approver was asked (nil = the message answers no question). Any other message with such a word is an
// ordinary one. The ending is for the caller to store; fault.Conflict then means that another decision, or an edit, was
// faster, and to ask again.
func (a *approvals) Answer(ctx context.Context, turn exchange.TurnRecord, asked *Asked, d Decision, by Decider) (Verdict, error) {
	if d.Code != "" {
		return a.answerCode(ctx, turn, d, by)
	}
	if asked == nil {
		return Verdict{}, nil
	}

	issuance, err := a.askedAbout(ctx, turn, asked)
	switch {
	case err != nil:
		return Verdict{}, err
	case issuance.ID == "":
		return Verdict{}, nil
	case !issuance.Open(a.now()):
		return a.late(ctx, issuance, by), nil
	case d.Grant && asked.Shown != shownOf(issuance):
		return a.changed(ctx, issuance, by), nil
	case d.Grant && !notesOf(issuance).Whole:
		return a.onThePage(issuance), nil
	}

	return a.decision(issuance, d, by), nil
}

// Guide answers a message of an approver in the conversation about an approval that decides nothing: it says how to decide,
// and how to write to the agent.
func (a *approvals) Guide(ctx context.Context, turn exchange.TurnRecord, asked Asked, by Decider) (Verdict, error) {
	issuance, err := a.askedAbout(ctx, turn, &asked)
	switch {
	case err != nil:
		return Verdict{}, err
	case issuance.ID == "" || !issuance.Open(a.now()):
		return Verdict{Answers: true, Sentence: "This conversation is about an approval that is decided. " + toAgentHint}, nil
	}
	return Verdict{Answers: true, Sentence: "Your message decides nothing, and the agent did not get it. To decide, answer the request with the " +
		"one word approve or deny. Anywhere else, add its code, which the request names. " + toAgentHint}, nil // without the code: this is history, too
}

// toAgentHint says how an approver writes to the agent, see IsForAgent.
const toAgentHint = "To write to the agent, begin your message with the line: to agent:"

// askedAbout reads the approval that a question was about; the zero one when it is gone or not of this agent.
func (a *approvals) askedAbout(ctx context.Context, turn exchange.TurnRecord, asked *Asked) (policypart.Issuance, error) {
	issuance, err := a.store.Demand(ctx, asked.Approval)
	switch {
	case fault.Is(err, fault.NotFound):
		return policypart.Issuance{}, nil
	case err != nil:
		return policypart.Issuance{}, fault.RetryIn(0, "the approval cannot be read now", err)
	case issuance.Purpose != policypart.PurposeApproval || issuance.Agent != turn.Agent:
		return policypart.Issuance{}, nil
	}
	return issuance, nil
}

// answerCode answers a message that names an approval by its code.
func (a *approvals) answerCode(ctx context.Context, turn exchange.TurnRecord, d Decision, by Decider) (Verdict, error) {
	hash := hashCode(d.Code)
	named, err := a.store.Approvals(ctx, exchange.ApprovalFilter{Agent: turn.Agent, CodeHash: hash, All: true, Limit: lookedThrough})
	if err != nil {
		return Verdict{}, fault.RetryIn(0, "the approvals cannot be read now", err)
	}

	isOpen := func(i policypart.Issuance) bool { return i.CheckOpen(a.now()) == nil }
	if place := slices.IndexFunc(named, isOpen); place >= 0 {
		if d.Grant && !notesOf(named[place]).Whole {
			return a.onThePage(named[place]), nil
		}
		return a.decision(named[place], d, by), nil
	}
	if len(named) > 0 {
		return a.late(ctx, named[0], by), nil
	}

	open, err := a.store.Approvals(ctx, exchange.ApprovalFilter{Agent: turn.Agent, Limit: lookedThrough})
	if err != nil {
		return Verdict{}, fault.RetryIn(0, "the approvals cannot be read now", err)
	}

	wasNamed := func(i policypart.Issuance) bool { return isOpen(i) && slices.Contains(notesOf(i).Earlier, hash) }
	place := slices.IndexFunc(open, wasNamed)
	switch {
	case place < 0:
		return Verdict{Answers: !d.Short, Sentence: "No request with the code " + d.Code + " waits for a decision."}, nil
	case d.Grant:
		return a.changed(ctx, open[place], by), nil
	}
	return a.decision(open[place], d, by), nil // what is denied is not done, whatever it says now
}

// changed answers a grant of what is not asked any more, and shows what is asked now.
func (a *approvals) changed(ctx context.Context, i policypart.Issuance, by Decider) Verdict {
	public := fault.Of(a.audit.refuse(ctx, i, changedSince(by.Name))).Public
	told := a.Told(i)
	return Verdict{Answers: true, Sentence: sentenceCase(public), Told: &told}
}

// changedSince refuses a grant of what was shown before an edit.
func changedSince(by string) *policypart.Refusal {
	return &policypart.Refusal{Code: policypart.CodeTerms, Reason: "it was changed after it was shown, tried by " + by}
}

// onThePage answers a grant of what no message showed whole with the request, which has the address of its page.
func (a *approvals) onThePage(i policypart.Issuance) Verdict {
	told := a.Told(i)
	return Verdict{Answers: true, Told: &told, Sentence: "Nothing was decided: the request was too long for a message, so it is approved on its page, where you can read all of it. " +
		"To deny it, answer with the one word deny."}
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
		return fmt.Sprintf("Approved (%s): the answer is on its way.", codeOf(i))
	case replies(i):
		return fmt.Sprintf("Denied (%s): the answer is not sent.", codeOf(i))
	case grant:
		return fmt.Sprintf("Approved (%s): %s", codeOf(i), sentenceOf(i))
	}
	return fmt.Sprintf("Denied (%s), so nothing is done: %s", codeOf(i), sentenceOf(i))
}

func sentenceOf(i policypart.Issuance) string {
	const longest = 200
	return "“" + beginning(oneLine(i.Part.Approval().Summary), longest) + "”."
}

func (a *approvals) late(ctx context.Context, i policypart.Issuance, by Decider) Verdict {
	refusal := i.CheckOpen(a.now())
	if refusal == nil {
		refusal = &policypart.Refusal{Code: policypart.CodeUsed, Reason: "decided at this moment"}
	}
	refusal.Reason += ", tried by " + by.Name
	public := fault.Of(a.audit.refuse(ctx, i, refusal)).Public
	return Verdict{Answers: true, Sentence: sentenceCase(public)}
}

func sentenceCase(public string) string { return strings.ToUpper(public[:1]) + public[1:] + "." }
