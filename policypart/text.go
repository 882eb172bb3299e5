package policypart

import (
	"strings"
	"time"
)

// Localized returns title and message in the reader's language (BCP 47, such as "de-AT"): the exact translation, else
// that of the bare language, else the part's own text.
func (p Part) Localized(locale string) (title, message string) {
	for tag := locale; tag != ""; tag = parentTag(tag) {
		for language, translation := range p.MessageTranslations {
			if strings.EqualFold(language, tag) && translation.Message != "" {
				return orElse(translation.Title, p.Title), translation.Message
			}
		}
	}
	return p.Title, p.Message
}

// Text writes the part for a reader of plain text: title, message, "label: url", and until when it can be answered.
// The url is written as it is; Confine comes first.
func (p Part) Text(locale string) string {
	title, message := p.Localized(locale)
	lines := make([]string, 0, 4)
	if title != "" && title != message {
		lines = append(lines, title)
	}

	lines = append(lines, message)
	if p.URL != "" {
		lines = append(lines, orElse(p.ActionLabel, "Continue")+": "+p.URL)
	}
	if p.ExpiresAt != nil {
		lines = append(lines, "Valid until "+p.ExpiresAt.UTC().Format(time.DateTime)+" UTC.")
	}

	return strings.Join(lines, "\n\n")
}

func parentTag(tag string) string {
	cut := strings.LastIndexByte(tag, '-')
	if cut < 0 {
		return ""
	}
	return tag[:cut]
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
