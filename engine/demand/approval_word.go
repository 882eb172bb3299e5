package demand

import (
	"regexp"
	"strings"

	"github.com/google/uuid"

	"inbox/normalized"
	"inbox/policypart"
)

// Decision is what an approver's message says.
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
// text makes it an ordinary message. It says nothing about who wrote it.
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
