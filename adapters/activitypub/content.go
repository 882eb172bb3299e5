package activitypub

import (
	"html"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"inbox/adapters/activitypub/document"
	"inbox/adapters/activitypub/notetext"
	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// writing is a response with what shapes its text.
type writing struct {
	reply   exchange.Reply
	locale  string // of the reader, BCP 47; may be empty
	present presenter
}

// fill writes content, source and files, with every mentioned person visible in the text.
func (r *renderer) fill(made *note, text writing, people []person) {
	body, sources := r.content(made, text)
	body, missing := linkMentions(body, people)
	var lead strings.Builder
	for _, one := range missing {
		lead.WriteString(one.anchor() + " ")
	}

	switch {
	case lead.Len() == 0:
		made.Content = body
	case strings.HasPrefix(body, "<p>"):
		made.Content = "<p>" + lead.String() + body[len("<p>"):]
	default:
		made.Content = "<p>" + strings.TrimSpace(lead.String()) + "</p>" + body
	}

	if made.open() { // a hashtag is there to be found by
		var words []string
		made.Content, words = notetext.LinkHashtags(made.Content, r.profileURL(text.reply.Agent))
		for _, word := range words {
			made.Tag = append(made.Tag, noteTag{"Hashtag", r.profileURL(text.reply.Agent), "#" + word})
		}
	}

	if len(sources) > 0 {
		made.Source = &noteSource{normalized.JoinMarkdown(sources), normalized.MIMEMarkdown}
	}
}

// content renders the parts in order, then where the answer comes from and which tools were called, a demand last. Parts of an
// unknown kind are left out.
func (r *renderer) content(made *note, text writing) (body string, sources []string) {
	var out, demand strings.Builder
	said, _ := normalized.Cited(text.reply.Response.Parts)
	for _, part := range said {
		switch part.Kind {
		case normalized.PartText:
			out.WriteString(notetext.HTML(part, made.picture))
			if part.MIME == normalized.MIMEMarkdown {
				sources = append(sources, part.Content)
			}
		case normalized.PartLink:
			out.WriteString("<p>" + linkPart(part) + "</p>")
		case normalized.PartFile, normalized.PartArtifact:
			out.WriteString(r.file(made, text.reply, part))
		case normalized.PartPolicy:
			demand.WriteString(text.policy(part))
		}
	}

	out.WriteString(notetext.Tail(text.reply.Response.Parts))
	out.WriteString(demand.String())
	if out.Len() == 0 && text.reply.Response.Error != nil {
		out.WriteString(notetext.PlainHTML(text.reply.Response.Error.Message))
	}
	return out.String(), sources
}

func linkPart(part normalized.Part) string {
	title := part.Title
	if title == "" {
		title = part.URL
	}

	text := notetext.Sanitize(notetext.Link(part.URL, title))
	if part.Description != "" {
		text += "<br>" + html.EscapeString(part.Description)
	}
	return text
}

// fileKind is the type of every attachment, as Mastodon sends it: servers show it by its media type, and Lemmy refuses a whole note for
// a Video or an Audio.
const fileKind = "Document"

// file attaches a file that has a public address and names any other.
func (r *renderer) file(made *note, reply exchange.Reply, part normalized.Part) string {
	address := r.fileAddress(reply, part)
	if address == "" || len(made.Attachment) >= maxReplyFiles {
		name := part.Name
		if name == "" {
			name = part.MIME
		}

		if address != "" {
			return "<p>" + notetext.Sanitize(notetext.Link(address, name)) + "</p>"
		}
		return "<p>[" + html.EscapeString(name) + "]</p>"
	}

	width, height := r.media.pictureSize(part)
	made.Attachment = append(made.Attachment, noteFile{
		Type: fileKind, MediaType: part.MIME, URL: address, Name: part.About(), Width: width, Height: height, Size: part.Size,
		ArtifactType: part.ArtifactType, ArtifactID: part.ID,
	})
	return ""
}

// fileAddress is where everyone who has the note may read the file.
func (r *renderer) fileAddress(reply exchange.Reply, part normalized.Part) string {
	if part.BytesRef == nil {
		return ""
	}
	if _, ok := document.Origin(part.BytesRef.URL); ok {
		return part.BytesRef.URL
	}
	return r.media.URL(reply, part)
}

// linkMentions turns the first @user@host of each person in the text into an anchor. It leaves links and code as they are.
func linkMentions(content string, people []person) (linked string, missing []person) {
	for _, one := range people {
		done := false
		content = notetext.MapWords(content, func(text string) string {
			if done {
				return text
			}
			text, done = replaceMention(text, one)
			return text
		})
		if !done {
			missing = append(missing, one)
		}
	}
	return content, missing
}

func replaceMention(text string, who person) (string, bool) {
	written := html.EscapeString(who.Address)
	for at := 0; at+len(written) <= len(text); at++ {
		before, after := text[:at], text[at+len(written):]
		if strings.EqualFold(text[at:at+len(written)], written) && beginsMention(before) && endsMention(after) {
			return before + who.anchor() + after, true
		}
	}
	return text, false
}

// beginsMention reports whether an address that follows the text before it is a mention. The @bob@b.example in ann@bob@b.example is part of
// another address, and that in https://a.example/@bob@b.example is part of a link.
func beginsMention(before string) bool {
	last, size := utf8.DecodeLastRuneInString(before)
	return size == 0 || !inAddress(last) && !strings.ContainsRune("/@.-:=+", last)
}

// endsMention reports whether the host of an address ends before the text after it. In b.example.evil.test and b.example-x.test, b.example is
// only the beginning of another host.
func endsMention(after string) bool {
	next, size := utf8.DecodeRuneInString(after)
	if size > 0 && strings.ContainsRune(".-:", next) {
		further, _ := utf8.DecodeRuneInString(after[1:])
		return !inAddress(further) && further != '-'
	}
	return size == 0 || !inAddress(next) && next != '@' && next != '/'
}

func inAddress(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

// presenter returns what the reader of a note may see of a demand.
type presenter func(policypart.Part) policypart.Part

// withoutAddress is the presenter of public documents: the address of a demand is for its asker alone.
func withoutAddress(part policypart.Part) policypart.Part {
	part.URL = ""
	return part
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
