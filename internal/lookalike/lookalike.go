// Package lookalike writes text for a person who decides by it. Characters that show nothing of themselves, that turn the direction of
// text, or that pass for other characters are written as escapes, and host names beyond ASCII are listed in the form in which they are
// looked up. The data is Unicode's: the confusables of UTS 39, normalization forms (UAX 15) and the joiner rules of IDNA. The package
// does not judge whether a word of one alphabet resembles a word of another.
package lookalike

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"go.mau.fi/util/confusable"
	"golang.org/x/net/idna"
	"golang.org/x/text/unicode/norm"
	"golang.org/x/text/width"
)

// Visible returns the text with \uXXXX escapes (UTF-16, as JSON has them) in place of characters that a reader cannot see or would take
// for others. The result is in normalization form C. Text in printable ASCII is returned as it is.
func Visible(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII || isControl(r) }) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range marked(text) {
		if r.escape {
			writeEscape(&out, r.rune)
		} else {
			out.WriteRune(r.rune)
		}
	}
	return out.String()
}

// JSON returns the text as a JSON string that is Visible. Of several spaces in a row all but the first are escapes, because HTML shows
// one. It decodes to the text, with U+FFFD for bytes that are not UTF-8.
func JSON(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	previous := rune(0)
	for _, r := range marked(text) {
		switch short := strings.IndexRune("\"\\\n\t\r", r.rune); {
		case short >= 0:
			out.WriteString([]string{`\"`, `\\`, `\n`, `\t`, `\r`}[short])
		case r.escape, r.rune == ' ' && previous == ' ':
			writeEscape(&out, r.rune)
		default:
			out.WriteRune(r.rune)
		}
		previous = r.rune
	}
	out.WriteByte('"')
	return out.String()
}

func writeEscape(out *strings.Builder, r rune) {
	for _, unit := range utf16.Encode([]rune{r}) {
		fmt.Fprintf(out, `\u%04x`, unit)
	}
}

// character is one of a text, and whether it is written as an escape.
type character struct {
	rune   rune
	escape bool
}

func marked(text string) []character {
	runes := []rune(text)
	passing := mistaken(runes)
	all := make([]character, len(runes))
	for i, r := range runes {
		// A mark would compose with the last letter of an escape, or with a quotation mark.
		bare := i == 0 || all[i-1].escape || runes[i-1] <= ' ' || runes[i-1] == '"' || runes[i-1] == '\\'
		all[i] = character{r, passing[i] || hidden(runes, i) || renormalized(runes, i) || bare && unicode.Is(unicode.M, r)}
	}
	return all
}

func isControl(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

const (
	nonJoiner = 0x200c
	joiner    = 0x200d
	emojiForm = 0xfe0f // variation selector 16
	dotAbove  = 0x0307

	firstLatin = 0xff  // the end of Latin-1
	european   = 0x17f // the end of the block for the languages of Europe
	latinEnds  = 0x24f // of the blocks that the languages of Latin letters use, besides U+1E00 to U+1EFF
)

// blanks are letters and marks that are drawn as nothing.
var blanks = []rune{0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x2800, 0x3164, 0xffa0}

// hidden reports whether a character shows nothing of itself.
func hidden(text []rune, i int) bool {
	r := text[i]
	switch {
	case r == '\n' || r == '\t' || r == ' ':
		return false
	case r == nonJoiner || r == joiner:
		return !joins(text, i)
	case r >= 0xfe00 && r <= 0xfe0f:
		return i == 0 || text[i-1] <= latinEnds && !unicode.IsDigit(text[i-1]) || invisible(text[i-1])
	case r >= firstTag && r <= lastTag:
		return !inFlag(text, i)
	}
	return invisible(r)
}

func invisible(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zs, unicode.Zl, unicode.Zp, unicode.Co, unicode.Variation_Selector) || slices.Contains(blanks, r)
}

// contextJ checks where a word may have joiners (RFC 5892, appendices A.1 and A.2).
var contextJ = idna.New(idna.CheckJoiners(true), idna.ValidateLabels(true))

// joins reports whether a joiner connects two emoji, or the letters of a script that needs it.
func joins(text []rune, i int) bool {
	inWord := func(r rune) bool { return unicode.In(r, unicode.L, unicode.M) || r == joiner || r == nonJoiner }
	begin, end := i, i+1
	for begin > 0 && i-begin < maxWord && inWord(text[begin-1]) {
		begin--
	}
	for end < len(text) && end-i < maxWord && inWord(text[end]) {
		end++
	}
	if _, err := contextJ.ToUnicode(string(text[begin:end])); err == nil {
		return end-begin > 1
	}

	for begin = i; begin > 0 && (text[begin-1] == emojiForm || unicode.Is(unicode.Sk, text[begin-1])); { // of what it joins
		begin--
	}
	return text[i] == joiner && begin > 0 && i-begin <= 2 && unicode.Is(unicode.S, text[begin-1]) && i+1 < len(text) && unicode.Is(unicode.S, text[i+1])
}

// maxWord bounds how far is looked around a character, so that a long text costs no more than its length.
const maxWord = 32

// flags are the sequences of tags that emoji fonts draw (UTS 51, RGI_Emoji_Tag_Sequence): of England, Scotland and Wales.
var flags = []string{flag("gbeng"), flag("gbsct"), flag("gbwls")}

const (
	blackFlag = "\U0001f3f4"
	firstTag  = 0xe0000
	lastTag   = 0xe007f
)

func flag(region string) string {
	tags := strings.Map(func(r rune) rune { return firstTag + r }, region)
	return blackFlag + tags + string(rune(lastTag))
}

// BetweenFlags returns the text with a change made to all but the flags whose emoji have characters that show nothing of themselves.
func BetweenFlags(text string, change func(string) string) string {
	if !strings.Contains(text, blackFlag) {
		return change(text)
	}
	var out strings.Builder
	for {
		begin, length := len(text), 0
		for _, one := range flags {
			if at := strings.Index(text, one); at >= 0 && at < begin {
				begin, length = at, len(one)
			}
		}
		out.WriteString(change(text[:begin]))
		if length == 0 {
			return out.String()
		}
		out.WriteString(text[begin : begin+length])
		text = text[begin+length:]
	}
}

func inFlag(text []rune, i int) bool {
	for begin := i; begin >= 0 && i-begin < len(flags[0]); begin-- {
		if rest := string(text[begin:min(len(text), begin+len(flags[0]))]); strings.HasPrefix(rest, blackFlag) {
			return slices.ContainsFunc(flags, func(one string) bool {
				return strings.HasPrefix(rest, one) && i < begin+len([]rune(one))
			})
		}
	}
	return false
}

// renormalized reports whether a normalization, as mail does it, would put another character in this place.
func renormalized(text []rune, i int) bool {
	if text[i] < 0x300 {
		return false
	}
	if one := string(text[i]); !norm.NFC.IsNormalString(one) {
		return true
	}
	begin := max(0, i-1)
	for begin > 0 && unicode.Is(unicode.M, text[begin]) {
		if begin--; i-begin > maxWord { // no script puts as many marks on a letter
			return true
		}
	}
	return !norm.NFC.IsNormalString(string(text[begin : i+1]))
}

// likeLatin are the alphabets whose letters are drawn like those of Latin (UTS 39, section 5).
var likeLatin = []*unicode.RangeTable{unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu}

var eastAsian = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo}

// mistaken finds the characters that pass for others in the word or address around them.
func mistaken(text []rune) []bool {
	found := make([]bool, len(text))
	begin := 0
	for i, r := range text {
		if unicode.IsSpace(r) || strings.ContainsRune(`"'<>(),;/\`, r) {
			markWord(text[begin:i], found[begin:i])
			begin = i + 1
		}
	}
	markWord(text[begin:], found[begin:])
	return found
}

func markWord(word []rune, marked []bool) {
	latin := slices.ContainsFunc(word, func(r rune) bool { return unicode.Is(unicode.Latin, r) })
	asian := slices.ContainsFunc(word, func(r rune) bool { return unicode.In(r, eastAsian...) && !isDelimiter(standsFor(r)) })
	plain := func(i int) bool {
		return i >= 0 && i < len(word) && word[i] <= unicode.MaxASCII && (unicode.IsLetter(word[i]) || unicode.IsDigit(word[i]))
	}
	markLetters(word, marked, latin)
	markNumbers(word, marked)
	for i, r := range word {
		if r <= unicode.MaxASCII || marked[i] {
			continue
		}
		prototype := standsFor(r)
		common := asian && width.LookupRune(r).Kind() == width.EastAsianFullwidth // Japanese and Chinese write Latin letters so
		switch {
		case unicode.In(r, likeLatin...): // markLetters judges them
		case isDelimiter(prototype):
			marked[i] = !asian && (plain(i-1) || plain(i+1))
		case unicode.In(r, unicode.L, unicode.M, unicode.N) && !unicode.In(r, unicode.Latin, unicode.Common, unicode.Inherited) && !unicode.In(r, eastAsian...):
			marked[i] = latin && isWord(prototype)
		case r == dotAbove:
			marked[i] = i > 0 && unicode.Is(unicode.Soft_Dotted, word[i-1]) // the letter looks the same without it
		case i+1 < len(word) && word[i+1] == emojiForm, common:
		case r <= european, r >= 0x1e00 && r <= 0x1eff: // of living languages; others are read as another letter than they are
			marked[i] = isWord(prototype) && r > firstLatin && !slices.Contains([]string{string(r), prototype}, norm.NFKC.String(string(r)))
		case r <= latinEnds: // of Africa, of phonetics and of the past
			marked[i] = isWord(prototype) || isASCII(prototype) && unicode.Is(unicode.Lo, r)
		case unicode.In(r, unicode.L, unicode.N) && unicode.In(r, unicode.Latin, unicode.Common):
			marked[i] = isWord(prototype)
		}
	}
}

// markLetters marks the letters of other alphabets in a word with Latin ones (UTS 39, sections 4 and 5.2): where they stand in the same run of
// letters, or make a run that could be Latin alone. "USB" before a hyphen and a Russian word is no imitation, and neither is a Greek variable
// beside one or two others.
func markLetters(word []rune, marked []bool, latin bool) {
	inRun := func(r rune) bool { return unicode.In(r, unicode.L, unicode.M) }
	for begin := 0; latin && begin < len(word); {
		end := begin
		mixed, alike, greek := false, true, 0
		for ; end < len(word) && inRun(word[end]); end++ {
			mixed = mixed || unicode.Is(unicode.Latin, word[end])
			alike = alike && isWord(standsFor(word[end]))
			if unicode.Is(unicode.Greek, word[end]) {
				greek++
			}
		}
		formula := greek == 1 && end-begin <= 3
		for i := begin; i < end; i++ {
			switch r := word[i]; {
			case unicode.Is(unicode.Greek, r):
				marked[i] = !formula && (mixed || alike) && isWord(standsFor(r))
			case unicode.In(r, likeLatin...):
				marked[i] = mixed || alike
			}
		}
		begin = max(end, begin+1)
	}
}

// markNumbers marks what passes for a digit in a number: digits of another system beside those of ASCII (UTS 39, section 5.3), and letters of
// another alphabet in a word that has no others. A small letter behind a number is the one of a house or a class.
func markNumbers(word []rune, marked []bool) {
	digits, letters, others := 0, 0, 0
	for _, r := range word {
		switch {
		case r >= '0' && r <= '9':
			digits++
		case unicode.In(r, likeLatin...) && likeDigit(r):
			letters++
		case unicode.IsLetter(r):
			others++
		}
	}
	if digits == 0 {
		return
	}
	ascii := func(i int) bool { return i >= 0 && i < len(word) && word[i] >= '0' && word[i] <= '9' }
	for i, r := range word {
		switch {
		case r > unicode.MaxASCII && unicode.Is(unicode.Nd, r):
			marked[i] = ascii(i-1) || ascii(i+1) || i > 0 && marked[i-1]
		case letters > 0 && others == 0 && unicode.In(r, likeLatin...):
			marked[i] = !unicode.IsLower(r) || i+1 != len(word) || letters != 1
		}
	}
}

// likeDigit reports whether a letter is drawn like a digit of ASCII.
func likeDigit(r rune) bool {
	prototype := strings.ToLower(standsFor(r))
	return len(prototype) == 1 && strings.ContainsAny(prototype, "ol23456789") // the prototypes of 0 and 1 are letters
}

// standsFor returns the characters for which a reader takes one; empty = it is not known to pass for others.
func standsFor(r rune) string {
	found := confusable.GetReplacement(r)
	if narrow := width.LookupRune(r).Narrow(); narrow != 0 && !isASCII(found) {
		return string(narrow)
	}
	return found
}

func isASCII(text string) bool {
	return text != "" && strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

// isDelimiter reports whether a text is a character that divides an address.
func isDelimiter(text string) bool {
	const delimiters = `./\:@?#%&=`
	return len(text) == 1 && strings.Contains(delimiters, text)
}

// isWord reports whether a text has letters and digits of ASCII alone.
func isWord(text string) bool {
	return isASCII(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '.' }) < 0
}
