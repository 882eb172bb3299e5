package email

import (
	"bytes"
	"cmp"
	"strings"

	"inbox/adapters/email/message"
)

// qmail writes its reports as text: a first paragraph that begins with "Hi. This is the", then one for each recipient, whose
// first line is the address and a colon, up to the line that announces the copy of the mail (QSBMF, D. J. Bernstein). Its
// relatives do so as well.
const (
	qmailGreeting = "Hi. This is "
	maxQmailText  = 64 << 10
)

// qmailReport reads such a report; false = it is none.
func qmailReport(fields message.Header, body []byte) (report deliveryReport, is bool) {
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
		if address = message.AddressKey(address); !ends || address == "" || len(report.recipients) == maxReported {
			continue
		}
		report.recipients = append(report.recipients, reportedRecipient{
			address: address, action: "failed", status: cmp.Or(statusIn(reason, '5'), "5.0.0"), diagnostic: message.Clip(reason, 300),
		})
	}
	return report, len(report.recipients) > 0
}

// statusIn finds the enhanced status of a class that somebody wrote into a text, as servers do behind their answer codes;
// empty = there is none.
func statusIn(text string, class byte) string {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' }) {
		if word = strings.Trim(word, "."); word != "" && word[0] == class && statusCode(word) != "" {
			return word
		}
	}
	return ""
}
