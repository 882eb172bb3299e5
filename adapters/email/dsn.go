package email

import (
	"bytes"
	"cmp"
	"strings"

	"inbox/adapters/email/message"
)

// Bounds of a delivery report.
const (
	maxReported     = 100
	maxReportFields = 50
)

// deliveryReport is a delivery status notification (RFC 3464) or a complaint (RFC 5965) as read. Nothing in it is
// believed before it is matched with a delivery of ours.
type deliveryReport struct {
	complaint  bool
	envelopeID string
	mailFrom   string // complaints: the envelope sender of the mail that is complained about
	recipients []reportedRecipient
	returned   message.Header // of our mail, when it came back; may be nil
}

// reportedRecipient is what a report says about one recipient.
type reportedRecipient struct {
	address    string // lower-case, empty when it cannot be read
	original   string // as we wrote it, when the report says so
	action     string // failed, delayed, delivered, relayed, expanded
	status     string // x.y.z
	diagnostic string // what the server said
}

// readReport finds the report in a mail; false = it is none.
func readReport(fields message.Header, body []byte) (deliveryReport, bool) {
	media, _ := message.MediaType(fields.Get("Content-Type"), "text/plain")
	if media != "multipart/report" && media != "message/delivery-status" && media != "message/feedback-report" {
		return deliveryReport{}, false
	}
	walk := &message.Parser{}
	root, err := walk.Parse(fields, body, 0, "text/plain")
	if err != nil {
		return deliveryReport{}, false
	}
	var report deliveryReport
	found := false
	report.collect(root, &found)
	return report, found
}

// collect walks the parts in order. The returned mail counts only outside of the machine-readable part.
func (r *deliveryReport) collect(node *message.Entity, found *bool) {
	switch node.Media {
	case "message/delivery-status", "message/global-delivery-status":
		*found = true
		r.readStatus(node.Decode())
	case "message/feedback-report":
		*found, r.complaint = true, true
		r.readFeedback(node.Decode())
	case "message/rfc822", "message/global", "text/rfc822-headers", "message/global-headers", "message/rfc822-headers":
		if r.returned == nil {
			r.returned = message.SplitDamaged(node.Decode())
		}
	}
	for _, child := range node.Children {
		r.collect(child, found)
	}
}

// readStatus reads the groups of fields of a delivery-status part: the first is about the message, each further one about
// one recipient (RFC 3464, section 2.1). A group about a recipient may stand first in what careless servers write.
func (r *deliveryReport) readStatus(text []byte) {
	for len(text) > 0 && len(r.recipients) < maxReported {
		text = bytes.TrimLeft(text, "\r\n")
		fields, rest, err := message.Split(text)
		if err != nil || len(fields) > maxReportFields {
			fields, rest = message.SplitDamaged(text), nil
		}
		if id := fields.Get("Original-Envelope-Id"); id != "" && r.envelopeID == "" {
			r.envelopeID = message.Clip(id, 200)
		}
		if fields.Has("Final-Recipient") || fields.Has("Original-Recipient") {
			r.recipients = append(r.recipients, reportedRecipient{
				address: reportedAddress(fields.Get("Final-Recipient")), original: reportedAddress(fields.Get("Original-Recipient")),
				action: strings.ToLower(message.FirstToken(fields.Get("Action"))), status: reportedStatus(fields),
				diagnostic: message.Clip(afterType(fields.Get("Diagnostic-Code")), 300),
			})
		}
		if len(rest) >= len(text) {
			return
		}
		text = rest
	}
}

// readFeedback reads the fields of a complaint (RFC 5965, section 3).
func (r *deliveryReport) readFeedback(text []byte) {
	fields := message.SplitDamaged(bytes.TrimLeft(text, "\r\n"))
	r.mailFrom = message.Clip(fields.Get("Original-Mail-From"), 320)
	r.envelopeID = message.Clip(fields.Get("Original-Envelope-Id"), 200)
	kind := message.Clip(message.FirstToken(fields.Get("Feedback-Type")), 40)
	for _, one := range fields.All("Original-Rcpt-To") {
		if len(r.recipients) < maxReported {
			r.recipients = append(r.recipients, reportedRecipient{address: message.AddressKey(one.Text()), diagnostic: kind})
		}
	}
	if len(r.recipients) == 0 {
		r.recipients = []reportedRecipient{{diagnostic: kind}}
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

// reportedStatus gives the status of a recipient. Exim writes 5.0.0 for everything, and what the server said tells more.
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
