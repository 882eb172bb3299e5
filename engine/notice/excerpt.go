package notice

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/internal/clip"
)

// MaxNote bounds what others wrote in one place of a notice, in bytes.
const MaxNote = 160

// Excerpt makes one short line of what others wrote, such as the reason that a peer gave: without control characters and those that turn
// the direction of a line, and without addresses that a reader's program would make a link of.
func Excerpt(text string, limit int) string {
	line := strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || r == utf8.RuneError
	}), " ")
	line = strings.ReplaceAll(line, "://", "[:]//")
	return clip.Marked(line, limit, "…")
}
