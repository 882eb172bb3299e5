package llm

import (
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// wireText is a JSON text of a stream. A provider may cut its texts anywhere, also between the two halves of a surrogate pair (RFC 8259,
// section 7).
type wireText struct {
	text string
	low  rune // the half of a pair before the text; 0 = none
	high rune // the half of a pair after the text; 0 = none
}

// UnmarshalJSON reads a text and keeps the halves at its ends, which are no characters yet. A half in its middle is U+FFFD.
func (w *wireText) UnmarshalJSON(data []byte) error {
	*w = wireText{}
	const escape = len(`\ud83d`)
	if len(data) >= escape+2 && data[0] == '"' {
		if half := surrogate(data[1 : 1+escape]); half >= 0xdc00 {
			w.low = half
			data = append([]byte{'"'}, data[1+escape:]...)
		}
	}
	if at := len(data) - 1 - escape; at >= 1 && data[0] == '"' {
		if half := surrogate(data[at : at+escape]); half != 0 && half < 0xdc00 && escapes(data[:at]) {
			w.high = half
			data = append(data[:at:at], '"')
		}
	}
	return json.Unmarshal(data, &w.text)
}

// surrogate returns the half that an escape sequence writes; 0 = it writes none.
func surrogate(escape []byte) rune {
	if escape[0] != '\\' || escape[1] != 'u' {
		return 0
	}
	half, err := strconv.ParseUint(string(escape[2:]), 16, 16)
	if err != nil || !utf16.IsSurrogate(rune(half)) {
		return 0
	}
	return rune(half)
}

// escapes reports whether a backslash after the text begins an escape sequence: an odd one at its end makes it a character.
func escapes(before []byte) bool {
	count := 0
	for i := len(before) - 1; i >= 0 && before[i] == '\\'; i-- {
		count++
	}
	return count%2 == 0
}

// halves joins the texts of one stream.
type halves struct{ high rune }

// join returns the next text, with the half that the one before left. A half without its other one is U+FFFD.
func (h *halves) join(next wireText) string {
	if next == (wireText{}) {
		return ""
	}
	text := next.text
	switch {
	case h.high != 0 && next.low != 0:
		text = string(utf16.DecodeRune(h.high, next.low)) + text
	case h.high != 0 || next.low != 0:
		text = string(utf8.RuneError) + text
	}
	h.high = next.high
	return text
}

// rest returns U+FFFD if the stream ended with half of a pair.
func (h *halves) rest() string {
	if h.high == 0 {
		return ""
	}
	h.high = 0
	return string(utf8.RuneError)
}
