package design

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"

	"inbox/identity"
	"inbox/internal/lookalike"
)

// words are the texts of the script, as the value of its attribute.
func words(ctx context.Context) string {
	encoded, err := json.Marshal(map[string]string{"copied": text(ctx, "Copied")})
	if err != nil {
		panic("design: " + err.Error()) // two texts
	}
	return string(encoded)
}

// channels are the ways of messages that have a colour and an icon of their own; a channel of another name has those of none.
var channels = map[string]func(context.Context) string{
	"activitypub": func(ctx context.Context) string { return text(ctx, "Fediverse") },
	"email":       func(ctx context.Context) string { return text(ctx, "Email") },
	"a2a":         func(context.Context) string { return "A2A" },
	"chat":        func(ctx context.Context) string { return text(ctx, "Chat") },
	"task":        func(ctx context.Context) string { return text(ctx, "Task") },
	"bridge":      func(ctx context.Context) string { return text(ctx, "Bridge") },
}

func channelLabel(ctx context.Context, name string) string {
	if label, known := channels[name]; known {
		return label(ctx)
	}
	return VisibleLine(name)
}

func channelClass(name string) string {
	if _, known := channels[name]; known {
		return "channel-" + name
	}
	return ""
}

func channelIcon(name string) string {
	if _, known := channels[name]; known {
		return name
	}
	return "link"
}

// methods are the proofs that our own transports know, in a few words.
var methods = map[string]func(context.Context) string{
	identity.MethodActivityPubSignature: func(ctx context.Context) string { return text(ctx, "Signed by their server") },
	identity.MethodActivityPubProof:     func(ctx context.Context) string { return text(ctx, "Signed object") },
	identity.MethodEmailDMARC:           func(context.Context) string { return "DMARC" },
	identity.MethodEmailDKIM:            func(context.Context) string { return "DKIM" },
	identity.MethodA2AJWT:               func(ctx context.Context) string { return text(ctx, "Signed token") },
	identity.MethodA2AOAuth:             func(ctx context.Context) string { return text(ctx, "Access token") },
	identity.MethodLocalAgent:           func(ctx context.Context) string { return text(ctx, "Agent of this server") },
	identity.MethodLocalOperator:        func(ctx context.Context) string { return text(ctx, "Operator") },
}

// methodLabel returns the words for a method; one of others is shown by the part of its URN that names it.
func methodLabel(ctx context.Context, method string) string {
	if label, known := methods[method]; known {
		return label(ctx)
	}
	short := method
	if parts := strings.Split(method, ":"); len(parts) > 2 {
		short = parts[len(parts)-2]
	}
	return VisibleLine(short)
}

func noticeRole(kind string) string {
	if kind == Bad {
		return "alert"
	}
	return "status"
}

func noticeIcon(kind string) string {
	switch kind {
	case OK:
		return "check"
	case Warn, Bad:
		return "warning"
	}
	return "info"
}

// Visible writes out the characters of a text that show nothing or turn what follows: controls, marks of direction (Unicode Standard
// Annex 9), characters of no width, tags. Line ends and tabs stay, joiners too, because scripts and emoji need them. A chain of joined
// characters that is longer than those of any script may break.
func Visible(words string) string {
	clean := func(r rune) bool { return !hides(r) || r == '\n' || r == '\t' }
	return written(strings.ReplaceAll(words, "\r\n", "\n"), clean)
}

// VisibleLine is Visible for one line: line ends and tabs become spaces.
func VisibleLine(words string) string {
	return written(strings.Join(strings.Fields(words), " "), func(r rune) bool { return !hides(r) })
}

func written(words string, clean func(rune) bool) string {
	if strings.IndexFunc(words, func(r rune) bool { return !clean(r) }) < 0 {
		return breakable(words)
	}

	return breakable(lookalike.BetweenFlags(words, func(words string) string {
		var out strings.Builder
		for _, r := range words {
			if clean(r) {
				out.WriteRune(r)
			} else {
				fmt.Fprintf(&out, "[U+%04X]", r)
			}
		}
		return out.String()
	}))
}

// mostJoined is how many characters make one sign at most. The longest emoji have ten.
const mostJoined = 24

// breakable lets a line end within a sign of more than mostJoined characters. A browser breaks no line there (Unicode Standard Annex 29,
// section 3), so that a stranger could make a page as wide as they like.
func breakable(words string) string {
	var out strings.Builder
	previous, joined, written := rune(0), 0, 0
	for i, r := range words {
		if continues(previous, r) {
			joined++
		} else {
			joined = 0
		}
		if joined == mostJoined {
			out.WriteString(words[written:i])
			out.WriteRune(zeroWidthSpace)
			joined, written = 0, i
		}
		previous = r
	}
	if written == 0 {
		return words
	}
	out.WriteString(words[written:])
	return out.String()
}

// continues reports whether a character belongs to the same sign as the one before it.
func continues(previous, r rune) bool {
	switch {
	case r < 0x300: // most texts have no others
		return false
	case r == zeroWidthJoiner, previous == zeroWidthJoiner, unicode.In(r, unicode.M), unicode.In(r, emojiModifiers):
		return true
	}
	return unicode.In(previous, viramas) || unicode.In(previous, jamo) && unicode.In(r, jamo)
}

// Characters that join others: skin tones, signs that take a consonant's vowel and so bind the next one, and letters of Korean syllables.
var (
	emojiModifiers = &unicode.RangeTable{R32: []unicode.Range32{{Lo: 0x1f3fb, Hi: 0x1f3ff, Stride: 1}}}
	viramas        = &unicode.RangeTable{R16: []unicode.Range16{
		{Lo: 0x94d, Hi: 0x9cd, Stride: 0x80}, {Lo: 0xacd, Hi: 0xb4d, Stride: 0x80}, {Lo: 0xc4d, Hi: 0xd4d, Stride: 0x100},
	}}
	jamo = &unicode.RangeTable{R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x11ff, Stride: 1}, {Lo: 0xa960, Hi: 0xa97c, Stride: 1}, {Lo: 0xd7b0, Hi: 0xd7fb, Stride: 1},
	}}
)

const (
	zeroWidthSpace     = '\u200b'
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
)

func hides(r rune) bool {
	switch r {
	case zeroWidthNonJoiner, zeroWidthJoiner:
		return false
	case '\u115f', '\u1160', '\u3164', '\uffa0', '\u2028', '\u2029': // fillers without ink, separators of lines
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co)
}
