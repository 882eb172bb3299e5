package normalized

import (
	"slices"

	"inbox/internal/fault"
)

// documentSize measures the document only when its texts say that it could be over the limit: JSON writes at most six
// bytes for one of a text.
func (c *checker) documentSize(encode func([]byte) ([]byte, error), texts, inline int) {
	if c.full() || 6*texts < c.limits.Document/2 {
		return
	}
	body, err := encode(nil)
	switch {
	case err != nil:
		c.broken(nil, "the document cannot be written as JSON")
	case len(body)-inline > c.limits.Document:
		c.add(fault.Newf(fault.TooLarge, "the document is over %d bytes", c.limits.Document))
	}
}

// texts adds up the bytes of everything in the message that is not bounded by a small limit of its own.
func (m *Message) texts() int {
	total := m.Sender.texts() + partTexts(m.Parts)
	for i := range m.History {
		total += m.History[i].Sender.texts() + partTexts(m.History[i].Parts)
	}
	for _, mime := range slices.Concat(m.RecipientCapabilities.TextMIMEs, m.RecipientCapabilities.MentionRelay.Fields) {
		total += len(mime)
	}
	if m.Surface != nil {
		total += MaxSurfaceBytes // at most; it has a bound of its own
	}
	return total + m.unknown.size()
}

func (s *Sender) texts() int {
	total := len(s.DisplayName) + len(s.KeyID)
	if p := s.Profile; p != nil {
		total += len(p.DisplayName) + len(p.Username) + len(p.Locale) + len(p.Timezone) + len(p.Provider) +
			len(p.ProviderSubject) + len(p.URL)
		for name, value := range p.Extensions {
			total += len(name) + len(value)
		}
	}
	return total
}

func (m members) size() (total int) {
	for _, unknown := range m {
		total += len(unknown.key) + len(unknown.value)
	}
	return total
}
