package activitypub

import (
	"slices"
	"strings"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/normalized"
)

// misskeyQuote marks a link tag as a quote (FEP-e232).
const misskeyQuote = "https://misskey-hub.net/ns#_misskey_quote"

const maxLinks = 8

// linkedPosts makes a link part of the post that a note quotes, in each of the spellings in use, and of every other post
// that it links to by a tag (FEP-e232). Whether the quote was authorized does not matter to a reader.
func linkedPosts(note document.Object) []normalized.Part {
	var parts []normalized.Part
	add := func(href, title string) {
		known := func(part normalized.Part) bool { return part.URL == href }
		if notetext.IsAddress(href) && len(parts) < maxLinks && !slices.ContainsFunc(parts, known) {
			parts = append(parts, normalized.Part{Kind: normalized.PartLink, URL: href, Title: title})
		}
	}
	for _, name := range []string{"quote", "quoteUrl", "quoteUri", "_misskey_quote"} {
		if len(parts) == 0 {
			add(document.Reference(note[name]), quotedTitle)
		}
	}
	quoted := len(parts) > 0
	for _, entry := range document.List(note["tag"]) {
		tag, _ := entry.(document.Object)
		if tag == nil || !document.IsA(tag, "Link") || !document.IsActivityType(document.Text(tag, "mediaType"), false) {
			continue
		}
		title := notetext.Visible(document.Text(tag, "name"), 512)
		if isQuote := relatesAs(tag["rel"], misskeyQuote); isQuote && quoted {
			continue // a second spelling of the same quote, perhaps by another address
		} else if isQuote {
			title = quotedTitle
		}
		add(document.Text(tag, "href"), title)
	}
	return parts
}

const quotedTitle = "quoted post"

// relatesAs reads rel: one relation, several with blanks between them, or a list.
func relatesAs(rel any, wanted string) bool {
	for _, entry := range document.List(rel) {
		if text, isText := entry.(string); isText && slices.Contains(strings.Fields(text), wanted) {
			return true
		}
	}
	return false
}

// withoutQuoteLine cuts off the line "RE: address" with which servers show the quoted post to those that know no quotes, where
// it stands first or last. Newer ones mark it by the class quote-inline (hidden); Misskey and its forks did not. The address
// may be that of the post's page.
func withoutQuoteLine(text string, parts []normalized.Part) string {
	for _, part := range parts {
		if part.Title != quotedTitle {
			continue
		}
		if line, rest, _ := strings.Cut(text, "\n"); isQuoteLine(line, part.URL) {
			text = strings.TrimSpace(rest)
		}
		last := strings.LastIndexByte(text, '\n') + 1
		if isQuoteLine(text[last:], part.URL) {
			text = strings.TrimSpace(text[:last])
		}
	}
	return text
}

func isQuoteLine(line, quoted string) bool {
	for _, word := range []string{"RE: ", "QT: "} {
		if address, is := strings.CutPrefix(line, word); is && !strings.Contains(address, " ") && document.SameOrigin(address, quoted) {
			return true
		}
	}
	return false
}
