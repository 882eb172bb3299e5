package bounce

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"inbox/adapters/email/message"
)

// Bounds of a delivery report.
const (
	maxReported     = 100
	maxReportFields = 50
)

// Report is a delivery status notification (RFC 3464) or a complaint (RFC 5965) as read. Nothing in it is
// believed before it is matched with a delivery of ours.
type Report struct {
	Complaint  bool
	EnvelopeID string
	MailFrom   string // complaints: the envelope sender of the mail that is complained about
	Recipients []Recipient
	Returned   message.Header // of our mail, when it came back; may be nil
}

// Recipient is the part of a report about one recipient.
type Recipient struct {
	Address    string // lower-case, empty when it cannot be read
	Original   string // as we wrote it, when the report has it
	Action     string // failed, delayed, delivered, relayed, expanded
	Status     string // x.y.z
	Diagnostic string // what the server said
}

// Read finds the report in a mail; false = it is none.
func Read(fields message.Header, body []byte) (Report, bool) {
	media, _ := message.MediaType(fields.Get("Content-Type"), "text/plain")
	if media != "multipart/report" && media != "message/delivery-status" && media != "message/feedback-report" {
		return Report{}, false
	}

	walk := &message.Parser{}
	root, err := walk.Parse(fields, body, 0)
	if err != nil {
		return Report{}, false
	}

	var report Report
	found := false
	report.collect(root, &found)
	return report, found
}

// collect walks the parts in order. The returned mail counts only outside of the machine-readable part.
func (r *Report) collect(node *message.Entity, found *bool) {
	switch node.Media {
	case "message/delivery-status", "message/global-delivery-status":
		*found = true
		r.readStatus(node.Decode())

	case "message/feedback-report":
		*found, r.Complaint = true, true
		r.readFeedback(node.Decode())

	case "message/rfc822", "message/global", "text/rfc822-headers", "message/global-headers", "message/rfc822-headers":
		if r.Returned == nil {
			r.Returned = message.SplitDamaged(node.Decode())
		}
	}
	for _, child := range node.Children {
		r.collect(child, found)
	}
}

// readStatus reads the groups of fields of a delivery-status part: the first is about the message, each further one about
// one recipient (RFC 3464, section 2.1). A group about a recipient may stand first in what careless servers write.
func (r *Report) readStatus(text []byte) {
	for len(text) > 0 && len(r.Recipients) < maxReported {
		text = bytes.TrimLeft(text, "\r\n")
		fields, rest, err := message.Split(text)
		if err != nil || len(fields) > maxReportFields {
			fields, rest = message.SplitDamaged(text), nil
		}

		if id := fields.Get("Original-Envelope-Id"); id != "" && r.EnvelopeID == "" {
			r.EnvelopeID = message.Clip(id, 200)
		}

		if fields.Has("Final-Recipient") || fields.Has("Original-Recipient") {
			r.Recipients = append(r.Recipients, Recipient{
				Address: reportedAddress(fields.Get("Final-Recipient")), Original: reportedAddress(fields.Get("Original-Recipient")),
				Action: strings.ToLower(message.FirstToken(fields.Get("Action"))), Status: reportedStatus(fields),
				Diagnostic: message.Clip(afterType(fields.Get("Diagnostic-Code")), 300),
			})
		}

		if len(rest) >= len(text) {
			return
		}

		text = rest
	}
}

// readFeedback reads the fields of a complaint (RFC 5965, section 3).
func (r *Report) readFeedback(text []byte) {
	fields := message.SplitDamaged(bytes.TrimLeft(text, "\r\n"))
	r.MailFrom = message.Clip(fields.Get("Original-Mail-From"), 320)
	r.EnvelopeID = message.Clip(fields.Get("Original-Envelope-Id"), 200)
	kind := message.Clip(message.FirstToken(fields.Get("Feedback-Type")), 40)
	for _, one := range fields.All("Original-Rcpt-To") {
		if len(r.Recipients) < maxReported {
			r.Recipients = append(r.Recipients, Recipient{Address: message.AddressKey(one.Text()), Diagnostic: kind})
		}
	}

	if len(r.Recipients) == 0 {
		r.Recipients = []Recipient{{Diagnostic: kind}}
	}
}

func afterType(value string) string {
	if _, text, found := strings.Cut(value, ";"); found {
		return strings.TrimSpace(text)
	}
	return value
}

// reportedAddress reads "rfc822; user@host".
func reportedAddress(value string) string { return message.AddressKey(afterType(value)) }

// reportedStatus returns the status of a recipient. Exim writes 5.0.0 for everything, and what the server said tells more.
func reportedStatus(fields message.Header) string {
	status := statusCode(fields.Get("Status"))
	if status != "" && !strings.HasSuffix(status, ".0.0") {
		return status
	}
	class := byte('5')
	if status != "" {
		class = status[0]
	}
	return cmp.Or(statusIn(afterType(fields.Get("Diagnostic-Code")), class), status)
}

// statusCode reads an enhanced status (RFC 3463); empty when it is none.
func statusCode(value string) string {
	code := message.FirstToken(value)
	parts := strings.Split(code, ".")
	if len(parts) != 3 || len(parts[0]) != 1 || parts[0] != "2" && parts[0] != "4" && parts[0] != "5" {
		return ""
	}

	for _, part := range parts {
		if part == "" || len(part) > 3 || strings.Trim(part, "0123456789") != "" {
			return ""
		}
	}

	return code
}

// Among finds the one of our recipients that a report means; empty = none. A report that names no one means the only one.
func (r Recipient) Among(ours []string) string {
	for _, address := range []string{r.Original, r.Address} {
		if address != "" && slices.Contains(ours, address) {
			return address
		}
	}
	if len(ours) == 1 && r.Original == "" && r.Address == "" {
		return ours[0]
	}
	return ""
}

// qmail writes its reports as text: a first paragraph that begins with "Hi. This is the", then one for each recipient, whose
// first line is the address and a colon, up to the line that announces the copy of the mail (QSBMF, D. J. Bernstein). Its
// relatives do so as well.
const (
	qmailGreeting = "Hi. This is "
	maxQmailText  = 64 << 10
)

// qmailReport reads such a report; false = it is none.
func qmailReport(fields message.Header, body []byte) (report Report, is bool) {
	media, _ := message.MediaType(fields.Get("Content-Type"), "text/plain")
	if media != "text/plain" || !bytes.HasPrefix(bytes.TrimLeft(body, "\r\n"), []byte(qmailGreeting)) {
		return report, false
	}

	text := strings.ReplaceAll(message.UTF8(body[:min(len(body), maxQmailText)]), "\r\n", "\n")
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		paragraph = strings.Trim(paragraph, "\n")
		if strings.HasPrefix(paragraph, "--- ") {
			break
		}

		first, reason, _ := strings.Cut(paragraph, "\n")
		address, ends := strings.CutSuffix(strings.TrimSpace(first), ">:")
		if address = message.AddressKey(address); !ends || address == "" || len(report.Recipients) == maxReported {
			continue
		}

		report.Recipients = append(report.Recipients, Recipient{
			Address: address, Action: "failed", Status: cmp.Or(statusIn(reason, '5'), "5.0.0"), Diagnostic: message.Clip(reason, 300),
		})
	}

	return report, len(report.Recipients) > 0
}

// statusIn finds the enhanced status of a class within a text, as servers do behind their answer codes;
// empty = there is none.
func statusIn(text string, class byte) string {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' }) {
		if word = strings.Trim(word, "."); word != "" && word[0] == class && statusCode(word) != "" {
			return word
		}
	}
	return ""
}

// ReadText reads a report that is written for people; false = it is none.
func ReadText(fields message.Header, body []byte) (Report, bool) {
	if report, is := plainReport(fields); is {
		return report, true
	}
	return qmailReport(fields, body)
}

// plainReport reads what servers write that know no RFC 3464 (Exim, Gmail): X-Failed-Recipients.
func plainReport(fields message.Header) (Report, bool) {
	var report Report
	for _, one := range fields.All("X-Failed-Recipients") {
		for text := range strings.SplitSeq(one.Text(), ",") {
			if address := message.AddressKey(text); address != "" && len(report.Recipients) < maxReported {
				report.Recipients = append(report.Recipients, Recipient{
					Address: address, Action: "failed", Status: "5.0.0", Diagnostic: fields.Decoded("Subject"),
				})
			}
		}
	}

	return report, len(report.Recipients) > 0
}
