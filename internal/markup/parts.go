package markup

import (
	"slices"

	"inbox/normalized"
)

// PlainText writes parts as normalized.PlainText does, and a part in HTML as the text that it shows: with the addresses of its links, the
// indentation of its code and the rows of its tables.
func PlainText(parts []normalized.Part) string {
	return normalized.PlainText(withoutHTML(parts, Plain))
}

// MarkdownText writes parts as normalized.MarkdownText does, and a part in HTML as Markdown.
func MarkdownText(parts []normalized.Part) string {
	return normalized.MarkdownText(withoutHTML(parts, Markdown))
}

func withoutHTML(parts []normalized.Part, form Form) []normalized.Part {
	copied := false
	for i, part := range parts {
		if text, _ := normalized.TextMIME(part.MIME); part.Kind != normalized.PartText || text != normalized.MIMEHTML {
			continue
		}
		if !copied {
			parts, copied = slices.Clone(parts), true
		}
		parts[i].Content, _ = FromHTML(part.Content).Text(form, 2*maxHTML)
		if parts[i].MIME = normalized.MIMEPlain; form == Markdown {
			parts[i].MIME = normalized.MIMEMarkdown
		}
	}
	return parts
}
