package normalized

import (
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// PlainText writes parts for a reader of plain text, with a blank line between them: texts stay as they are, files and links become a line
// each, a policy part its title, message and address, and citations numbered lines where the last of them stands. Tool calls and parts of
// unknown kinds are left out. HTML keeps its tags, because this package has no reader of HTML: where an answer may have any,
// internal/markup.PlainText turns it into text first.
func PlainText(parts []Part) string {
	return strings.Join(pieces(parts, plainPart, Sources), "\n\n")
}

// MarkdownText writes parts as one markdown document: plain text is escaped, so that it reads as it was written, images
// and links are marked up. The rest is as in PlainText.
func MarkdownText(parts []Part) string {
	return JoinMarkdown(pieces(parts, markdownPart, MarkdownSources))
}

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

// pieces writes the parts that say something. The sources of the answer stand where its last citation does.
func pieces(parts []Part, write func(*Part) string, sources func([]Citation) string) (list []string) {
	list = make([]string, 0, len(parts))
	_, citations := Cited(parts)
	left := len(citations)
	for i := range parts {
		if part, says := parts[i].Said(); says && !part.blank() {
			if piece := strings.Trim(write(&part), "\n"); strings.TrimSpace(piece) != "" {
				list = append(list, piece)
			}
		}
		if parts[i].Citation == nil {
			continue
		}
		if left--; left == 0 {
			list = append(list, sources(citations))
		}
	}
	return list
}

func plainPart(p *Part) string {
	switch p.Kind {
	case PartText:
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
		if p.MIME == MIMEMarkdown {
			return p.Content
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
	if about := p.About(); about != "" {
		line += ": " + about
	}

	return line
}

// About returns what a file says about itself: the description of its image and that of its contents.
func (p *Part) About() string {
	if p.Alt == "" || p.Description == "" || p.Alt == p.Description {
		return orElse(p.Alt, p.Description)
	}
	return p.Alt + " – " + p.Description
}

func markdownFile(p *Part) string {
	address := bytesURL(p)
	switch {
	case address == "":
		return EscapeMarkdown(fileLine(p))
	case strings.HasPrefix(p.MIME, "image/"):
		return lines(markdownLink("!", orElse(p.Alt, orElse(p.Name, "image")), address), EscapeMarkdown(p.Description))
	}
	return lines(markdownLink("", orElse(p.Name, "file"), address), EscapeMarkdown(p.About()))
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

// Clean makes what a stranger wrote fit for the contract, before Validate: control characters other than tab and
// newline and bytes that are not UTF-8 leave the texts, names become one short line, unsafe profile addresses go, and
// text parts of nothing but white space count as no part, policy parts lose their address. Ids and addresses are never rewritten: Validate refuses them.
func (m *Message) Clean() {
	m.Sender.clean()
	m.Parts = cleanParts(m.Parts)
	for i := range m.Parts {
		m.Parts[i].confine()
	}
	if m.Surface != nil {
		m.Surface = m.Surface.clean()
	}
}

// confine takes the address from a policy part of a stranger: a link in a demand for money or consent is what a phisher would
// forge, and only this server's own demands lead anywhere (message contract, section 8).
func (p *Part) confine() {
	if p.Policy == nil {
		return
	}
	confined := p.Policy.Confine(nil)
	p.Policy = &confined
}

// Clean does for an agent's answer what Message.Clean does for a message.
func (r *Response) Clean() {
	r.Parts = cleanParts(r.Parts)
	r.Dispatch = cleanDispatches(r.Dispatch)
	if r.Error != nil {
		cleaned := *r.Error
		cleaned.Message = cleanText(cleaned.Message)
		r.Error = &cleaned
	}
}

func (s *Sender) clean() {
	s.DisplayName = cleanName(s.DisplayName)
	if s.Profile == nil {
		return
	}

	profile := *s.Profile
	profile.DisplayName = cleanName(profile.DisplayName)
	profile.Username = cleanName(profile.Username)
	profile.Locale = cleanName(profile.Locale)
	profile.Timezone = cleanName(profile.Timezone)
	profile.Provider = cleanName(profile.Provider)
	profile.ProviderSubject = cleanName(profile.ProviderSubject)
	if !isWebURL(profile.URL) {
		profile.URL = ""
	}
	if profile.Avatar != nil && !isWebURL(profile.Avatar.URL) {
		profile.Avatar = nil
	}

	s.Profile = &profile
}

func cleanParts(parts []Part) []Part {
	cleaned := make([]Part, 0, len(parts))
	for _, p := range parts {
		p.clean()
		if !p.blank() {
			cleaned = append(cleaned, p)
		}
	}
	return slices.Clip(cleaned)
}

func (p *Part) clean() {
	p.cite()
	switch p.Kind {
	case PartText:
		p.nameText()
		p.Content, p.New = cleanText(p.Content), cleanText(p.New)
	case PartFile, PartArtifact:
		p.Name = cleanFileName(p.Name)
		p.Alt = cleanText(p.Alt)
		p.Description = cleanText(p.Description)
	case PartLink:
		p.Title = cleanName(p.Title)
		p.Description = cleanText(p.Description)
	}
}

// nameText writes the type of a text as readers compare it, in lower case and without parameters. One that is not of a text stays, for
// Validate to refuse.
func (p *Part) nameText() {
	if text, known := TextMIME(p.MIME); known {
		p.MIME = text
	}
}

// blank reports whether the part is a text of only white space, which counts as no part.
func (p *Part) blank() bool { return p.Kind == PartText && strings.TrimSpace(p.Content) == "" }

// cleanText removes control characters other than tab and newline, and bytes that are not UTF-8. Text without them,
// nearly all, is returned as it is.
func cleanText(text string) string {
	if isCleanText(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if isForbiddenControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

func isCleanText(text string) bool {
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c >= utf8.RuneSelf:
			r, size := utf8.DecodeRuneInString(text[i:])
			if r == utf8.RuneError && size == 1 || isForbiddenControl(r) {
				return false
			}
			i += size
			continue
		case c < ' ' && c != '\t' && c != '\n', c == 0x7f:
			return false
		}
		i++
	}
	return true
}

func isForbiddenControl(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }

// longestName cuts display names and titles, in bytes.
const longestName = 1 << 10

// cleanName makes one short line.
func cleanName(name string) string {
	name = strings.ToValidUTF8(name, "")
	if hasControl(name) {
		name = strings.Map(func(r rune) rune {
			switch {
			case r == '\n' || r == '\t' || r == '\r':
				return ' '
			case unicode.IsControl(r):
				return -1
			}
			return r
		}, name)
	}

	return strings.TrimSpace(cutBytes(strings.TrimSpace(name), longestName))
}

// cutBytes cuts a text to a number of bytes, between two characters.
func cutBytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// cleanFileName keeps the last element of a path from either kind of system. Characters that turn the direction of a text go: with them
// "invoice-fdp.exe" reads as if it ended in ".pdf" (Unicode Technical Report 36, section 2.5).
func cleanFileName(name string) string {
	name = cleanName(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, name))
	if name == "" {
		return ""
	}
	name = path.Base(strings.ReplaceAll(name, `\`, "/"))
	if name == "." || name == ".." || name == "/" {
		return ""
	}
	return name
}

func isWebURL(address string) bool {
	if address == "" {
		return true
	}
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && !hasControl(address)
}

func hasControl(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f {
			return strings.ContainsFunc(text, unicode.IsControl)
		}
	}
	return false
}
