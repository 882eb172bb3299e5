package activitypub

import (
	"html"
	"strings"

	"inbox/adapters/activitypub/document"
	"inbox/exchange"
	"inbox/normalized"
)

// writing is a response with what shapes its text.
type writing struct {
	reply   exchange.Reply
	locale  string // of the reader, BCP 47; may be empty
	present presenter
}

// fill writes content, source and files, with every mentioned person visible in the text.
func (a *Adapter) fill(made *note, text writing, people []person) {
	body, sources := a.content(made, text)
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
		made.Content, words = linkHashtags(made.Content, a.profileURL(text.reply.Agent))
		for _, word := range words {
			made.Tag = append(made.Tag, noteTag{"Hashtag", a.profileURL(text.reply.Agent), "#" + word})
		}
	}
	if len(sources) > 0 {
		made.Source = &noteSource{strings.Join(sources, "\n\n"), normalized.MIMEMarkdown}
	}
}

// content renders the parts in order, a demand last. Tool calls are not shown, and parts of an unknown kind are left
// out.
func (a *Adapter) content(made *note, text writing) (body string, sources []string) {
	var out, demand strings.Builder
	for _, part := range text.reply.Response.Parts {
		switch part.Kind {
		case normalized.PartText:
			out.WriteString(textHTML(part, made.picture))
			if part.MIME == normalized.MIMEMarkdown {
				sources = append(sources, part.Content)
			}
		case normalized.PartLink:
			out.WriteString("<p>" + linkPart(part) + "</p>")
		case normalized.PartFile, normalized.PartArtifact:
			out.WriteString(a.file(made, text.reply, part))
		case normalized.PartPolicy:
			demand.WriteString(text.policy(part))
		}
	}
	out.WriteString(demand.String())
	if out.Len() == 0 && text.reply.Response.Error != nil {
		out.WriteString(plainHTML(text.reply.Response.Error.Message))
	}
	return out.String(), sources
}

// textHTML is a text as HTML. attach takes the pictures in it, or leaves them as links.
func textHTML(part normalized.Part, attach attachPicture) string {
	switch part.MIME {
	case normalized.MIMEMarkdown:
		return markdownHTML(part.Content, attach)
	case normalized.MIMEHTML:
		return sanitize(withoutPictures(part.Content, attach))
	}
	return plainHTML(part.Content)
}

func linkPart(part normalized.Part) string {
	title := part.Title
	if title == "" {
		title = part.URL
	}
	text := sanitize(linkHTML(part.URL, title))
	if part.Description != "" {
		text += "<br>" + html.EscapeString(part.Description)
	}
	return text
}

// file attaches a file that has a public address and names any other.
func (a *Adapter) file(made *note, reply exchange.Reply, part normalized.Part) string {
	address := a.fileAddress(reply, part)
	if address == "" || len(made.Attachment) >= maxReplyFiles {
		name := part.Name
		if name == "" {
			name = part.MIME
		}
		if address != "" {
			return "<p>" + sanitize(linkHTML(address, name)) + "</p>"
		}
		return "<p>[" + html.EscapeString(name) + "]</p>"
	}
	description := part.Alt
	if description == "" {
		description = part.Description
	}
	width, height := a.pictureSize(part)
	made.Attachment = append(made.Attachment, noteFile{attachmentType(part.MIME), part.MIME, address, description, width, height, part.Size})
	return ""
}

// attachmentType is the kind of attachment; servers show a Document by its media type.
func attachmentType(mime string) string {
	switch kind, _, _ := strings.Cut(mime, "/"); kind {
	case "image":
		return "Image"
	case "video":
		return "Video"
	case "audio":
		return "Audio"
	}
	return "Document"
}

// fileAddress is where everybody who has the note may read the file.
func (a *Adapter) fileAddress(reply exchange.Reply, part normalized.Part) string {
	if part.BytesRef == nil {
		return ""
	}
	if _, ok := document.Origin(part.BytesRef.URL); ok {
		return part.BytesRef.URL
	}
	return a.mediaURL(reply, part)
}
