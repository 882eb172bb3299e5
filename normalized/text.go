package normalized

import (
	"slices"
	"strconv"
	"strings"
)

// PlainText writes parts for a reader of plain text, with a blank line between them: markdown stays as it is, HTML loses
// its tags, files and links become a line each, a policy part its title, message and address. Tool calls and parts of
// unknown kinds are left out.
func PlainText(parts []Part) string { return joinParts(parts, plainPart) }

// MarkdownText writes parts as one markdown document: plain text is escaped, so that it reads as it was written, HTML
// is reduced to its text, images and links are marked up. The rest is as in PlainText.
func MarkdownText(parts []Part) string { return joinParts(parts, markdownPart) }

// NewParts returns parts in which a text says only what is new in it (Part.New), for readers who have the older messages.
func NewParts(parts []Part) []Part {
	for i := range parts {
		if parts[i].New != "" {
			parts = slices.Clone(parts)
			break
		}
	}
	for i := range parts {
		if parts[i].New != "" {
			parts[i].Content, parts[i].New = parts[i].New, ""
		}
	}
	return parts
}

func joinParts(parts []Part, write func(*Part) string) string {
	pieces := make([]string, 0, len(parts))
	for i := range parts {
		if parts[i].blank() {
			continue
		}
		if piece := strings.Trim(write(&parts[i]), "\n"); strings.TrimSpace(piece) != "" {
			pieces = append(pieces, piece)
		}
	}
	return strings.Join(pieces, "\n\n")
}

func plainPart(p *Part) string {
	switch p.Kind {
	case PartText:
		if p.MIME == MIMEHTML {
			return htmlText(p.Content)
		}
		return p.Content
	case PartFile, PartArtifact:
		return lines(fileLine(p), bytesURL(p))
	case PartLink:
		return lines(p.Title, p.URL, p.Description)
	case PartPolicy:
		if p.Policy != nil {
			return p.Policy.Text("")
		}
	}
	return ""
}

func markdownPart(p *Part) string {
	switch p.Kind {
	case PartText:
		switch p.MIME {
		case MIMEMarkdown:
			return p.Content
		case MIMEHTML:
			return EscapeMarkdown(htmlText(p.Content))
		}
		return EscapeMarkdown(p.Content)
	case PartFile, PartArtifact:
		return markdownFile(p)
	case PartLink:
		return lines(markdownLink("", orElse(p.Title, p.URL), p.URL), EscapeMarkdown(p.Description))
	case PartPolicy:
		if p.Policy != nil {
			return EscapeMarkdown(p.Policy.Text(""))
		}
	}
	return ""
}

// fileLine describes a file: its name, type and size, then what it shows.
func fileLine(p *Part) string {
	facts := make([]string, 0, 2)
	if p.MIME != "" {
		facts = append(facts, p.MIME)
	}
	if p.Size > 0 {
		facts = append(facts, byteSize(p.Size))
	}
	line := "Attachment: " + orElse(p.Name, "file")
	if len(facts) > 0 {
		line += " (" + strings.Join(facts, ", ") + ")"
	}
	if about := orElse(p.Alt, p.Description); about != "" {
		line += ": " + about
	}
	return line
}

func markdownFile(p *Part) string {
	address := bytesURL(p)
	switch {
	case address == "":
		return EscapeMarkdown(fileLine(p))
	case strings.HasPrefix(p.MIME, "image/"):
		return markdownLink("!", orElse(p.Alt, orElse(p.Name, "image")), address)
	}
	return markdownLink("", orElse(p.Name, "file"), address)
}

// bytesURL returns the public address of a file's bytes, if it has one.
func bytesURL(p *Part) string {
	if p.BytesRef == nil {
		return ""
	}
	return p.BytesRef.URL
}

// markdownLink writes the address in angle brackets, where only these, backslashes and line ends need care.
func markdownLink(mark, text, address string) string {
	address = strings.NewReplacer("<", "%3C", ">", "%3E", `\`, "%5C", "\n", "", "\r", "", " ", "%20").Replace(address)
	return mark + "[" + strings.ReplaceAll(EscapeMarkdown(text), "\n", " ") + "](<" + address + ">)"
}

func byteSize(size int64) string {
	const unit = 1 << 10
	switch {
	case size < unit:
		return strconv.FormatInt(size, 10) + " bytes"
	case size < unit*unit:
		return strconv.FormatInt((size+unit/2)/unit, 10) + " KiB"
	}
	return strconv.FormatFloat(float64(size)/(unit*unit), 'f', 1, 64) + " MiB"
}

func lines(list ...string) string {
	kept := make([]string, 0, len(list))
	for _, line := range list {
		if line != "" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
