package message

import (
	"maps"
	"mime"
	"strconv"
	"strings"
)

// maxParameterPieces bounds the continuations of one parameter.
const maxParameterPieces = 100

// MediaType reads Content-Type and Content-Disposition (RFC 2045, section 5.1; RFC 2183); what cannot be read is bytes, what
// is absent is the fallback. The parser of the standard library gives up where mail programs do not: at names with blanks,
// brackets or 8-bit letters without quotes, at doubled parameters, and at every charset but UTF-8; go-message asks it
// (TestLibraryLosesWhatFieldsSay).
func MediaType(value, fallback string) (string, map[string]string) {
	if value == "" {
		return fallback, nil
	}

	media, rest := cutParameter(value)
	media, rest = withoutJoined(strings.TrimSpace(uncommented(media)), rest)
	media = strings.ToLower(media)
	if rest == "" {
		return typeOf(media), nil
	}

	pieces := map[string]parameterPieces{}
	for rest != "" {
		var pair string
		pair, rest = cutParameter(rest)
		name, text, found := strings.Cut(pair, "=")
		if name = strings.ToLower(strings.TrimSpace(uncommented(name))); found && name != "" {
			addPiece(pieces, name, parameterValue(text))
		}
	}

	params := make(map[string]string, len(pieces))
	for name, one := range pieces {
		params[name] = one.join()
	}

	return typeOf(media), params
}

// maxFormattedType bounds a media type with its parameters, in bytes: further on it would not fit into a line of a mail.
const maxFormattedType = 400

// FormatType writes a media type with the parameters that belong to its content, such as the method of an invitation (RFC 6047, section
// 2.4), in their canonical form. The name of the file, the boundary of a multipart, private parameters (x-), those that are not well formed
// and the charset UTF-8, which readers assume, are left out. So are all of them where the type would be longer than 400 bytes.
func FormatType(media string, params map[string]string) string {
	kept := maps.Clone(params)
	maps.DeleteFunc(kept, func(name, value string) bool {
		plain := name == "charset" && (strings.EqualFold(value, "utf-8") || strings.EqualFold(value, "us-ascii"))
		return plain || name == "name" || name == "boundary" || strings.HasPrefix(name, "x-") || value == "" ||
			mime.FormatMediaType(media, map[string]string{name: value}) == ""
	})
	if formatted := mime.FormatMediaType(media, kept); formatted != "" && len(formatted) <= maxFormattedType {
		return formatted
	}
	return media
}

// withoutJoined parts a type from parameters that follow it without a semicolon ("text/plain charset=utf-8", "text/plain, charset=utf-8"),
// and takes blanks around the slash away.
func withoutJoined(media, rest string) (kind, parameters string) {
	if !strings.ContainsAny(media, " \t,:") {
		return media, rest
	}

	if before, after, found := strings.Cut(media, "/"); found {
		media = strings.TrimSpace(before) + "/" + strings.TrimSpace(after)
	}
	end := strings.IndexAny(media, " \t,:")
	if end < 0 || !validMedia(strings.ToLower(media[:end])) {
		return media, rest
	}
	return media[:end], strings.Trim(media[end:], " \t,:") + ";" + rest
}

// typeOf keeps what has the form of a type or of a disposition.
func typeOf(media string) string {
	if !validMedia(media) && (strings.Contains(media, "/") || !mediaName(media)) {
		return mediaOf(media)
	}
	return media
}

// cutParameter cuts at the next semicolon outside of quotes and comments. A quote without an end ends with the value.
func cutParameter(text string) (first, rest string) {
	if end := indexOutside(text, ';'); end >= 0 {
		return text[:end], text[end+1:]
	}
	return text, ""
}

// indexOutside finds a character outside of quoted strings; -1 = nowhere.
func indexOutside(text string, wanted byte) int {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == wanted && !quoted:
			return i
		}
	}

	if quoted { // the quote was never closed: it is a character like others
		return strings.IndexByte(text, wanted)
	}

	return -1
}

// uncommented drops comments (RFC 5322, section 3.2.2).
func uncommented(text string) string {
	if strings.IndexByte(text, '(') < 0 {
		return text
	}

	var out strings.Builder
	depth := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c == '(':
			depth++
		case c == ')' && depth > 0:
			depth--
		case depth == 0:
			out.WriteByte(c)
		}
	}

	return out.String()
}

// parameterValue reads a quoted string, or a value without quotes.
func parameterValue(text string) string {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, `"`) {
		if strings.HasPrefix(text, "(") {
			text = strings.TrimSpace(uncommented(text))
		}
		return text
	}

	var out strings.Builder
	for i := 1; i < len(text) && text[i] != '"'; i++ {
		// Old programs of Windows write the path of a file with lone backslashes.
		if text[i] == '\\' && i+1 < len(text) && (text[i+1] == '"' || text[i+1] == '\\') {
			i++
		}
		out.WriteByte(text[i])
	}

	return out.String()
}

// parameterPieces are the forms in which one parameter may come (RFC 2231): whole, whole with a charset, or in pieces with
// and without one.
type parameterPieces struct {
	plain, extended       string
	hasPlain, hasExtended bool
	pieces                map[int]parameterPiece
}

type parameterPiece struct {
	text    string
	encoded bool
}

// addPiece files a value under the name of its parameter; of several the first counts.
func addPiece(all map[string]parameterPieces, name, value string) {
	base, encoded := strings.CutSuffix(name, "*")
	base, number, continued := strings.Cut(base, "*")
	one := all[base]
	switch index, err := strconv.Atoi(number); {
	case base == "":
		return
	case continued && (err != nil || index < 0 || index >= maxParameterPieces):
		return
	case continued:
		if one.pieces == nil {
			one.pieces = map[int]parameterPiece{}
		}
		if _, known := one.pieces[index]; !known {
			one.pieces[index] = parameterPiece{value, encoded}
		}

	case encoded && !one.hasExtended:
		one.extended, one.hasExtended = value, true
	case !encoded && !one.hasPlain:
		one.plain, one.hasPlain = value, true
	}

	all[base] = one
}

// join returns the value: the form that can say more goes first (RFC 6266, section 4.3, for the same syntax).
func (p parameterPieces) join() string {
	switch {
	case p.hasExtended:
		return extendedValue([]parameterPiece{{p.extended, true}})
	case len(p.pieces) > 0:
		var ordered []parameterPiece
		for i := range maxParameterPieces {
			piece, known := p.pieces[i]
			if !known {
				break
			}
			ordered = append(ordered, piece)
		}

		if len(ordered) > 0 {
			return extendedValue(ordered)
		}
	}
	return p.plain
}

// extendedValue undoes charset'language'%xx (RFC 2231, section 4); the charset of the first piece holds for all.
func extendedValue(pieces []parameterPiece) string {
	charset, raw, anyEncoded := "", []byte{}, false
	for i, piece := range pieces {
		if !piece.encoded {
			raw = append(raw, piece.text...)
			continue
		}

		anyEncoded = true
		text := piece.text
		if label, rest, found := strings.Cut(text, "'"); found && i == 0 {
			if _, rest, found = strings.Cut(rest, "'"); found {
				charset, text = label, rest
			}
		}

		raw = appendPercent(raw, text)
	}

	if !anyEncoded {
		return string(raw)
	}

	return Decode(raw, charset)
}

// appendPercent decodes %xx and keeps what is no such escape.
func appendPercent(out []byte, text string) []byte {
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			high, okHigh := unhex(text[i+1])
			low, okLow := unhex(text[i+2])
			if okHigh && okLow {
				out = append(out, high<<4|low)
				i += 2
				continue
			}
		}
		out = append(out, text[i])
	}
	return out
}

// FirstToken reads the keyword of a field, past comments and before parameters.
func FirstToken(value string) string {
	value = strings.TrimSpace(value)
	for strings.HasPrefix(value, "(") {
		value = strings.TrimSpace(behindComment(value))
	}

	if rest, quoted := strings.CutPrefix(value, `"`); quoted {
		value, _, _ = strings.Cut(rest, `"`)
	}

	if end := strings.IndexAny(value, "; \t("); end >= 0 {
		value = value[:end]
	}

	return strings.ToLower(value)
}

// behindComment returns what follows a comment, which may hold further ones (RFC 5322, section 3.2.2).
func behindComment(text string) string {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return text[i+1:]
			}
		}
	}

	return ""
}
