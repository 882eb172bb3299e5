package normalized

import (
	"strconv"
	"strings"

	"inbox/internal/fault"
)

func (r *reader) fail(rule string) { r.failAt(r.where(), rule) }

func (r *reader) failAt(field, rule string) {
	if r.err != nil {
		return
	}
	if field == "" {
		rule = "the document " + rule
	}
	r.err = fault.InField(field, rule)
}

// syntax reports a byte that cannot stand where it stands.
func (r *reader) syntax() {
	r.fail("is not JSON at byte " + strconv.Itoa(r.pos))
}

// where writes the path of the current value, such as parts[2].mime.
func (r *reader) where() string {
	var b strings.Builder
	for _, s := range r.path {
		switch {
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case s.key != nil:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(printableKey(s.key))
		}
	}
	return b.String()
}

// printableKey makes a peer's key safe to show in an error.
func printableKey(key []byte) string {
	const longest = 64
	text := string(key[:min(len(key), longest)])
	if quoted := strconv.QuoteToASCII(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}
