package activitypub

import (
	"html"
	"strings"
	"time"

	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// presenter gives what the reader of a note may see of a demand.
type presenter func(policypart.Part) policypart.Part

// withoutAddress is the presenter of public documents: the address of a demand is for its asker alone.
func withoutAddress(part policypart.Part) policypart.Part {
	part.URL = ""
	return part
}

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

// policy shows a demand as lines, in the reader's language where it is translated, with the address in plain sight:
// no button hides where it leads (message contract, section 8).
func (t writing) policy(part normalized.Part) string {
	if part.Policy == nil {
		return ""
	}
	policy := t.present(*part.Policy)
	title, message := policy.Localized(t.locale)
	var lines []string
	if title = notetext.Visible(title, 1024); title != "" {
		lines = append(lines, "<strong>"+html.EscapeString(title)+"</strong>")
	}
	for line := range strings.SplitSeq(strings.TrimSpace(message), "\n") {
		lines = append(lines, html.EscapeString(strings.TrimRight(line, "\r")))
	}
	if policy.URL != "" {
		label := notetext.Visible(policy.ActionLabel, 256)
		if label == "" {
			label = "Continue"
		}
		lines = append(lines, html.EscapeString(label)+": "+notetext.Link(policy.URL, policy.URL))
	}
	lines = append(lines, policyTimes(policy)...)
	return notetext.Sanitize("<p>" + strings.Join(lines, "<br>") + "</p>")
}

func policyTimes(policy policypart.Part) []string {
	var lines []string
	if policy.ExpiresAt != nil {
		lines = append(lines, "Valid until "+policy.ExpiresAt.UTC().Format("2 January 2006, 15:04 UTC"))
	}
	if policy.RetryAfterSeconds != nil {
		wait := time.Duration(*policy.RetryAfterSeconds) * time.Second
		lines = append(lines, "Please try again in "+wait.String())
	}
	return lines
}
