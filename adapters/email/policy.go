package email

import (
	"cmp"
	"html"
	"strings"
	"time"

	"inbox/adapters/email/message"
	"inbox/adapters/email/text"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

func hasPolicy(response normalized.Response) bool {
	for _, part := range response.Parts {
		if part.Kind == normalized.PartPolicy {
			return true
		}
	}
	return false
}

func localeOf(reply exchange.Reply) string {
	if profile := reply.Message.Sender.Profile; profile != nil {
		return profile.Locale
	}
	return ""
}

// addPolicy shows a demand as lines in the reader's language, with the link's address in plain sight in both forms of
// the text: no button hides where it leads (message contract, section 8).
func (c *composer) addPolicy(part policypart.Part) {
	var plain, rich []string
	add := func(text, address string) {
		plain = append(plain, text+address)
		line := strings.ReplaceAll(html.EscapeString(text), "\n", "<br>\n")
		if address = html.EscapeString(address); address != "" {
			line += `<a href="` + address + `">` + address + "</a>"
		}
		rich = append(rich, line)
	}
	title, explanation := part.Localized(c.locale)
	if title = message.Clean(title, 300); title != "" {
		add(title, "")
	}
	add(text.Readable(explanation), "")
	if part.URL != "" {
		add(cmp.Or(message.Clean(part.ActionLabel, 100), "Continue")+": ", part.URL)
	}
	for _, line := range policyTimes(part) {
		add(line, "")
	}
	c.add(strings.Join(plain, "\n"), "<p>"+strings.Join(rich, "<br>\n")+"</p>\n")
}

func policyTimes(part policypart.Part) []string {
	var lines []string
	if part.ExpiresAt != nil {
		lines = append(lines, "Valid until "+part.ExpiresAt.UTC().Format("2 January 2006, 15:04 MST"))
	}
	if part.RetryAfterSeconds != nil {
		lines = append(lines, "Please try again in "+(time.Duration(*part.RetryAfterSeconds)*time.Second).String())
	}
	return lines
}
