package email

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// mark says that a program may have written a mail. A strong one is enough to leave it without an answer. A weak one is also on mails that
// people write: their providers and servers add it, or their address or subject only looks like that of a program.
type mark struct {
	reason string
	weak   bool
}

// automatic returns why a mail must not be answered, and whether only weak marks say so; an empty reason means that it may be answered
// (RFC 3834; decision 0186). It is the first line of defence; the pipeline has its own limiters per thread and sender.
//
// Weak marks count if there are two of them, or if the mail answers one of ours: a first mail begins no loop. Those that the mail before
// in this conversation had are how its sender's mails look, and count no more.
func (i *inbox) automatic(mail *arrival, to recipient, addressed bool, before route, answers bool) (reason string, weak bool) {
	var doubts []string
	fresh := 0
	for _, one := range i.marks(mail, to) {
		if !one.weak {
			return one.reason, false
		}
		if doubts = append(doubts, one.reason); !slices.Contains(before.Marks, one.reason) {
			fresh++
		}
	}

	if !addressed && to.answered == "" {
		return "the agent " + to.local + " is neither in To nor in Cc", false
	}
	if fresh > 0 && (answers || len(doubts) > 1) {
		return "it looks automatic: " + strings.Join(doubts, "; "), true
	}
	return "", false
}

// habits are the weak marks of a mail that its sender's other mails will have, too. A subject is of one mail.
func (i *inbox) habits(mail *arrival, to recipient) (reasons []string) {
	for _, one := range i.marks(mail, to) {
		if one.weak && one.reason != weakSubject {
			reasons = append(reasons, one.reason)
		}
	}
	return reasons
}

// marks returns what says that a program wrote a mail.
func (i *inbox) marks(mail *arrival, to recipient) []mark {
	if mail.known.marks == nil {
		mail.known.marks = map[string][]mark{}
	}
	found, known := mail.known.marks[to.agent]
	if known {
		return found
	}

	lists := i.answersList(mail, to)
	found = marksOf(mail, lists)
	if own := i.ownMail(mail); own != "" {
		found = append(found, mark{reason: own})
	}
	mail.known.marks[to.agent] = found
	return found
}

// marksOf returns the marks that do not depend on this server. It passes over those of lists where their mail is wanted.
func marksOf(mail *arrival, wantsLists bool) []mark {
	found := authorMarks(mail.env.from, mail.sender.from)
	found = append(found, headerMarks(mail.fields, wantsLists)...)
	if reason := automaticSender(mail.env.from, mail.sender.from, wantsLists); reason != "" {
		found = append(found, mark{reason: reason})
	}
	if reason := automaticType(mail.fields); reason != "" {
		found = append(found, mark{reason: reason})
	}
	if one, is := subjectMark(mail.fields); is {
		found = append(found, one)
	}
	return found
}

// authorMarks looks at the address of the author.
func authorMarks(envelope string, from message.Mailbox) []mark {
	if envelope == "" {
		return []mark{{reason: "null return path"}}
	}

	local, _, _ := strings.Cut(strings.ToLower(from.Local), "+")
	switch plain := separators.Replace(local); {
	case slices.Contains(machineNames, plain), strings.Contains(plain, "noreply"), strings.Contains(plain, "donotreply"): // noreply-7f3a, drive-shares-noreply
		return []mark{{reason: "sent by " + local}}
	case bounceAddress(local):
		return []mark{{reason: "sent by a list or bounce address"}}
	case listSender(local):
		return []mark{{reason: "the address " + local + " may be that of a list", weak: true}}
	}
	return nil
}

// automaticSender looks at the envelope, where programs and lists show themselves that leave the From field to someone
// else (RFC 3834, section 2). Addresses made for one mail say nothing: services send the mails of people from them, too.
func automaticSender(envelope string, from message.Mailbox, wantsLists bool) string {
	local, _, _ := strings.Cut(strings.ToLower(envelope), "@")
	other := message.AddressKey(envelope) != from.Key()
	switch name, _, _ := strings.Cut(local, "+"); {
	case name == "mailer-daemon":
		return "the envelope was sent by " + name
	case !wantsLists && (name == "listserv" || name == "majordomo" || strings.HasSuffix(name, "-bounces") || other && listSender(name)):
		return "the envelope was sent by a list"
	}
	return ""
}

var separators = strings.NewReplacer("-", "", "_", "", ".", "")

// machineNames are local parts without their separators that no person reads.
var machineNames = []string{"mailerdaemon", "postmaster", "listserv", "majordomo", "autoreply", "autoresponder"}

// bounceAddress reports whether a local part is one of those to which bounces go: bounce, bounces-7f3a, dev-bounces; a bouncer is a person.
func bounceAddress(local string) bool {
	first := local[:len(local)-len(strings.TrimLeft(local, "abcdefghijklmnopqrstuvwxyz"))]
	return first == "bounce" || first == "bounces" || strings.HasSuffix(local, "-bounces")
}

// listSender reports whether a list may have a local part. People have such addresses as well: home-owner, price-request.
func listSender(local string) bool {
	return strings.HasPrefix(local, "owner-") || strings.HasSuffix(local, "-owner") || strings.HasSuffix(local, "-request")
}

// strongFields are fields whose mere presence says that no person waits for an answer.
var strongFields = []string{
	"List-Id", "List-Unsubscribe", "List-Post", "List-Help", "Mailing-List", "X-Autoreply", "X-Autorespond",
	"X-Autogenerated", "X-MS-Exchange-Inbox-Rules-Loop", "X-Failed-Recipients", "X-Auto-Reply", "X-Auto-Reply-From", "X-Mail-Autoreply",
	"X-FC-MachineGenerated",
}

// weakFields are on every mail of some providers (Feedback-ID: Amazon SES, Postmark) or servers (X-Auto-Response-Suppress: Exchange).
var weakFields = []string{"Feedback-ID", suppressField}

const suppressField = "X-Auto-Response-Suppress"

var automaticPrecedence = []string{"bulk", "list", "junk", "auto_reply", "auto-reply"}

// headerMarks passes over the marks of lists where their mail is wanted.
func headerMarks(fields message.Header, wantsLists bool) (found []mark) {
	if token := autoSubmitted(fields); token != "" {
		found = append(found, mark{reason: "Auto-Submitted: " + token})
	}

	for _, one := range fields.All("Precedence") {
		switch token := message.FirstToken(one.Text()); {
		case token == "list" && wantsLists:
		case slices.Contains(automaticPrecedence, token):
			found = append(found, mark{reason: "Precedence: " + token})
		}
	}

	for _, name := range strongFields {
		if fields.Has(name) && (!wantsLists || !listMark(name)) {
			found = append(found, mark{reason: name + " is present"})
		}
	}

	for _, name := range weakFields {
		if fields.Has(name) && (name != suppressField || suppressesAnswers(fields)) {
			found = append(found, mark{reason: name + " is present", weak: true})
		}
	}
	return found
}

// suppressesAnswers reports whether a mail asks Exchange not to answer it by itself ([MS-OXCMAIL], section 2.1.3.2.14).
func suppressesAnswers(fields message.Header) bool {
	for _, one := range fields.All(suppressField) {
		for word := range strings.FieldsFuncSeq(strings.ToLower(one.Text()), func(r rune) bool { return r == ',' || r == ';' || r == ' ' }) {
			if word == "all" || word == "autoreply" || word == "oof" {
				return true
			}
		}
	}
	return false
}

// autoSubmitted returns what the mail says about being automatic (RFC 3834, section 5); "" means that a person wrote it,
// or that it says nothing.
func autoSubmitted(fields message.Header) string {
	for _, one := range fields.All("Auto-Submitted") {
		if token := message.FirstToken(one.Text()); token != "" && token != "no" {
			return message.Clean(token, 40)
		}
	}
	return ""
}

// ownMail recognises what came from here: an answer of ours that comes back, or one agent of this domain writing
// to another by mail.
func (i *inbox) ownMail(mail *arrival) string {
	if mail.sender.from.Domain == i.domain {
		return "sent from our own domain"
	}

	if i.aliasOf(mail.sender.from) != "" { // the mailbox in front would forward the answer to its agent
		return "sent from an alias of an agent"
	}

	if id := message.ID(mail.fields); id != "" && strings.EqualFold(id[strings.LastIndexByte(id, '@')+1:], i.domain) {
		return "the Message-ID is ours"
	}

	for _, one := range mail.fields.All(loopField) {
		if box, err := message.ParseMailbox(one.Text()); err == nil && box.Domain == i.domain {
			return "our loop mark"
		}
	}

	return ""
}

func automaticType(fields message.Header) string {
	media, _ := message.MediaType(fields.Get("Content-Type"), "text/plain")
	switch media {
	case "multipart/report", "message/delivery-status", "message/disposition-notification", "message/feedback-report":
		return "a report (" + media + ")"
	}
	return ""
}

// weakSubject is the reason of a weak mark that is of one mail only.
const weakSubject = "the subject may be that of a program"

// subjectMark looks at senders that mark nothing. A subject as programs write it is a strong mark; one that only begins like that is weak.
func subjectMark(fields message.Header) (mark, bool) {
	subject := strings.ToLower(fields.Decoded("Subject"))
	strong := mark{reason: "the subject says that it is automatic"}
	for _, start := range automaticSubjects {
		if strings.HasPrefix(subject, start) {
			return strong, true
		}
	}

	if strings.HasSuffix(subject, ": non remis (delivery failed)") { // Exchange in two languages, behind the subject of what came back
		return strong, true
	}

	for _, one := range doubtfulSubjects {
		rest, begins := cutAnyPrefix(subject, one.starts)
		switch rest = strings.TrimLeft(rest, " "); {
		case !begins:
		case rest == "", strings.IndexByte(":([-", rest[0]) >= 0, strings.HasPrefix(rest, "："), slices.ContainsFunc(one.words, func(word string) bool { return strings.Contains(rest, word) }):
			return strong, true
		default:
			return mark{reason: weakSubject, weak: true}, true
		}
	}

	if strings.HasPrefix(subject, "auto:") && strings.Contains(subject, "out of the office") { // HCL Notes; "Auto:" alone is a car in German
		return strong, true
	}
	return mark{}, false
}

func cutAnyPrefix(text string, prefixes []string) (string, bool) {
	for _, prefix := range prefixes {
		if rest, is := strings.CutPrefix(text, prefix); is {
			return rest, true
		}
	}
	return text, false
}

var automaticSubjects = []string{
	"automatic reply:", "automatic response:", "auto reply:", "auto-reply:", "autoreply:", "autoresponse:", "abwesend:", "undeliverable:",
	"undelivered mail returned to sender", "unzustellbar:", "non remis :", "non remis:", "no se puede entregar:", "onbestelbaar:", "non recapitabile:",
}

// doubtfulSubjects are how subjects of programs begin, and people's as well: "Automatische Antwort einrichten". Programs write nothing more, or go on with one of the words.
var doubtfulSubjects = []struct{ starts, words []string }{
	{
		[]string{"out of office", "out of the office", "out-of-office", "absence du bureau", "fuera de la oficina", "fuori sede", "fuori ufficio", "fora do escritório", "niet aanwezig"},
		[]string{"reply", "automatic", "response", "message", "notification", "until", "through", "today", "back on", "re:", "fino al", "jusqu", "hasta", "tot "},
	},
	{[]string{
		"automatische antwort", "abwesenheitsnotiz", "automatische abwesenheit", "réponse automatique", "respuesta automática", "respuesta automatica",
		"risposta automatica", "resposta automática", "resposta automatica", "automatisch antwoord", "afwezigheidsbericht", "odpowiedź automatyczna",
		"automatyczna odpowiedź", "automatiskt svar", "automatisk svar", "autosvar", "automaattinen vastaus", "автоматический ответ", "自動応答", "自动答复", "自动回复",
	}, nil},
	{[]string{
		"delivery status notification", "delivery failure notification", "mail delivery failed", "mail delivery failure", "mail could not be delivered", "failure notice",
		"undelivered mail", "returned mail - error during delivery",
	}, nil},
	{
		[]string{"returned mail:"}, // sendmail
		[]string{"see transcript", "unknown", "cannot send", "can't send", "deferred", "unavailable", "configuration error", "unreachable", "too many hops", "data format error", "returned to sender"},
	},
}

// listMail reports whether a mail came through a mailing list (RFC 2369, RFC 2919, and what lists wrote before).
func listMail(fields message.Header) bool {
	return slices.ContainsFunc([]string{"List-Id", "List-Post", "Mailing-List", "X-BeenThere"}, fields.Has) ||
		slices.ContainsFunc(fields.All("Precedence"), func(f message.Field) bool { return message.FirstToken(f.Text()) == "list" })
}

// answersList reports whether the agent answers the author of a mail that came through a list: the operator wants it, the mail
// names the agent in To, and a person wrote it, not the list.
func (i *inbox) answersList(mail *arrival, to recipient) bool {
	return i.options.AnswersLists != nil && listMail(mail.fields) && i.options.AnswersLists(to.agent) && i.named(mail, to, "To") &&
		!slices.Contains(listAddresses(mail.fields), mail.sender.from.Key())
}

// listMark reports whether a field says only that a list passed the mail on.
func listMark(name string) bool {
	return strings.HasPrefix(strings.ToLower(name), "list-") || strings.EqualFold(name, "Mailing-List")
}

// maxListAddresses bounds what is remembered of one mail.
const maxListAddresses = 20

// listAddresses returns the addresses of a list itself, in lower case; none of them is ever answered.
func listAddresses(fields message.Header) []string {
	var found []string
	add := func(text string) {
		if address := message.AddressKey(text); address != "" && !slices.Contains(found, address) && len(found) < maxListAddresses {
			found = append(found, address)
		}
	}

	for _, name := range []string{"List-Post", "List-Owner", "List-Help", "List-Subscribe", "List-Unsubscribe"} {
		for _, one := range fields.All(name) {
			for piece := range strings.SplitSeq(one.Text(), "<") {
				uri, _, _ := strings.Cut(piece, ">")
				if address, is := strings.CutPrefix(strings.ToLower(strings.TrimSpace(uri)), "mailto:"); is {
					address, _, _ = strings.Cut(address, "?")
					add(address)
				}
			}
		}
	}

	for _, one := range fields.All("List-Id") {
		id := one.Text()
		if start := strings.LastIndexByte(id, '<'); start >= 0 {
			id, _, _ = strings.Cut(id[start+1:], ">")
		}
		if name, domain, found := strings.Cut(strings.TrimSpace(id), "."); found {
			add(name + "@" + domain)
		}
	}

	for _, name := range []string{"X-BeenThere", "Mailing-List"} {
		for _, one := range fields.All(name) {
			for word := range strings.FieldsFuncSeq(one.Text(), func(r rune) bool { return r == ' ' || r == ';' || r == ',' || r == '\t' }) {
				if strings.Contains(word, "@") {
					add(word)
				}
			}
		}
	}

	return found
}

// chainField counts the hops of agents that write to agents: "hop=2; max=4". Any sender can write it, so it counts
// only where it makes us stricter.
const chainField = "X-Mentionable-Agent-Chain"

// codeChain is the code of a chain that may not go on (message contract, section 7).
const codeChain = "chain:exhausted"

// defaultMaxHops is the ceiling of a chain that begins with us, where the agent has none of its own.
const defaultMaxHops = 4

var errChain = errors.New("want hop=<number>; max=<number> with hop from 1 to max")

// readChain reads the hint of a mail; nil without an error means that there is none.
func readChain(fields message.Header) (*normalized.AgentChain, error) {
	found := fields.All(chainField)
	if len(found) == 0 {
		return nil, nil
	}

	if len(found) > 1 {
		return nil, errChain
	}

	first, second, _ := strings.Cut(found[0].Text(), ";")
	hop, hopFound := chainNumber(first, "hop=")
	most, mostFound := chainNumber(strings.TrimPrefix(second, " "), "max=")
	if !hopFound || !mostFound || hop > most {
		return nil, errChain
	}

	return &normalized.AgentChain{Hop: hop, MaxHops: most, IsFinal: hop == most}, nil
}

// chainNumber reads a number from 1 to 999 in its only spelling.
func chainNumber(text, name string) (int, bool) {
	digits, named := strings.CutPrefix(text, name)
	number, err := strconv.Atoi(digits)
	return number, named && err == nil && number >= 1 && number <= 999 && strconv.Itoa(number) == digits
}

// refuseChain makes the message one that is never answered. It is not refused on the wire: the bounce would be one
// more mail between programs.
func refuseChain(in *exchange.Inbound, fields message.Header, reason error) {
	written := message.Clip(fields.Get(chainField), 100)
	in.NoReply = codeChain + ": " + chainField + " is " + strconv.Quote(written)
	in.Rejected = append(in.Rejected, identity.Rejection{
		Code: codeChain, Reason: fmt.Sprintf("%s is %q: %s", chainField, written, reason), Subject: in.Message.Sender.Address.String(),
	})
}

// chainOf returns the chain that a reply carries: one hop more than its question, and a new chain when the agent adds
// others into the conversation, of whom it is unknown which are agents.
func (w *renderer) chainOf(reply exchange.Reply, people audience) (normalized.AgentChain, bool) {
	if asked := reply.Message.RecipientCapabilities.AgentChain; asked != nil {
		return normalized.AgentChain{Hop: asked.Hop + 1, MaxHops: asked.MaxHops}, true
	}
	return normalized.AgentChain{Hop: 1, MaxHops: w.options.MaxHops(reply.Agent)}, len(people.all()) > 1
}

func formatChain(chain normalized.AgentChain) string {
	return fmt.Sprintf("hop=%d; max=%d", chain.Hop, chain.MaxHops)
}
