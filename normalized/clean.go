package normalized

import (
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Clean makes what a stranger wrote fit for the contract, before Validate: control characters other than tab and
// newline and bytes that are not UTF-8 leave the texts, names become one short line, unsafe profile addresses go, and
// text parts of nothing but white space count as no part. Ids and addresses are never rewritten: Validate refuses them.
func (m *Message) Clean() {
	m.Sender.clean()
	m.Parts = cleanParts(m.Parts)
	if m.Surface != nil {
		m.Surface = m.Surface.clean()
	}
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
	switch p.Kind {
	case PartText:
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
	name = strings.TrimSpace(name)
	if len(name) > longestName {
		name = strings.TrimSpace(strings.ToValidUTF8(name[:longestName], ""))
	}
	return name
}

// cleanFileName keeps the last element of a path from either kind of system.
func cleanFileName(name string) string {
	name = cleanName(name)
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
