package pages

import (
	"strings"

	"inbox/normalized"
)

// apart separates the subject of a message from the text before which its channel put it. The words stay as they are if they do not begin
// with the subject: a reply in a conversation says it once.
func apart(surface *normalized.Surface, words string) (subject, rest string) {
	if surface == nil || surface.Subject == "" {
		return "", words
	}
	first, rest, more := strings.Cut(words, "\n")
	named, is := strings.CutPrefix(first, "Subject: ")
	if !is || !strings.HasSuffix(surface.Subject, strings.TrimSpace(named)) {
		return surface.Subject, words
	}
	if !more {
		return surface.Subject, ""
	}
	return surface.Subject, strings.TrimLeft(rest, "\n")
}

// apartParts is apart for the parts of a message.
func apartParts(message *normalized.Message) (subject string, parts []normalized.Part) {
	parts = message.Parts
	if len(parts) == 0 || parts[0].Kind != normalized.PartText {
		subject, _ = apart(message.Surface, "")
		return subject, parts
	}
	subject, words := apart(message.Surface, parts[0].Content)
	if words == parts[0].Content {
		return subject, parts
	}
	parts = append([]normalized.Part{}, parts...)
	parts[0].Content = words
	return subject, parts
}
