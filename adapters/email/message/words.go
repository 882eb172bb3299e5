package message

import (
	"io"
	"mime"
	"strings"
)

// maxWord bounds an encoded word; RFC 2047 allows 75 bytes, and mail programs write longer ones.
const maxWord = 4096

// wordDecoder serves the parser of addresses, which refuses the whole field when a charset is not known.
var wordDecoder = &mime.WordDecoder{CharsetReader: func(label string, input io.Reader) (io.Reader, error) {
	raw, err := io.ReadAll(input)
	return strings.NewReader(Decode(raw, withoutLanguage(label))), err
}}

// withoutLanguage cuts the language from a charset (RFC 2231, section 5).
func withoutLanguage(label string) string {
	label, _, _ = strings.Cut(label, "*")
	return label
}

// DecodeWords resolves encoded words (RFC 2047). Neighbours of one charset are joined before they are decoded: many mail
// programs cut in the middle of a letter. What is no encoded word stays. The decoders of go-message and of the standard library decode each
// word for itself, and leave the whole field as it is for one word that they cannot read (TestLibraryLosesWhatFieldsSay).
func DecodeWords(text string) string {
	if !strings.Contains(text, "=?") {
		return text
	}

	var out strings.Builder
	var open encodedWord // decoded and not written: the next one may belong to it
	for text != "" {
		start := strings.Index(text, "=?")
		if start < 0 {
			start = len(text)
		}

		between := text[:start]
		word, size := readWord(text[start:])
		if size == 0 {
			open.flush(&out)
			out.WriteString(text[:min(start+2, len(text))])
			text = text[min(start+2, len(text)):]
			continue
		}

		if text = text[start+size:]; open.charset == "" || strings.TrimSpace(between) != "" {
			open.flush(&out)
			out.WriteString(between)
		} else if !strings.EqualFold(open.charset, word.charset) {
			open.flush(&out)
		}

		open = encodedWord{word.charset, append(open.raw, word.raw...)}
	}

	open.flush(&out)
	return out.String()
}

// encodedWord is one word, or several of the same charset, as bytes of that charset.
type encodedWord struct {
	charset string
	raw     []byte
}

func (w *encodedWord) flush(out *strings.Builder) {
	out.WriteString(Decode(w.raw, w.charset))
	*w = encodedWord{}
}

// readWord reads the encoded word at the start of a text; size 0 = there is none.
func readWord(text string) (word encodedWord, size int) {
	text = text[:min(len(text), maxWord)]
	pieces := strings.SplitN(text, "?", 4) // "=", charset, encoding, text?=…
	if len(pieces) < 4 || pieces[1] == "" || len(pieces[2]) != 1 || strings.ContainsAny(pieces[1], " \t") {
		return word, 0
	}

	// The text may begin with "=", which must not be taken for the end of the word.
	content, _, closed := strings.Cut(pieces[3], "?=")
	if !closed {
		return word, 0
	}

	word.charset = withoutLanguage(pieces[1])
	switch pieces[2] {
	case "b", "B":
		word.raw = decodeBase64([]byte(content))
	case "q", "Q":
		word.raw = appendUnescaped(nil, []byte(strings.ReplaceAll(content, "_", " ")))
	default:
		return encodedWord{}, 0
	}

	return word, len(pieces[0]) + len(pieces[1]) + len(pieces[2]) + len(content) + 5
}
