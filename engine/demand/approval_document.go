package demand

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"inbox/policypart"
)

// maxDepth bounds how deep a document is taken apart. What is deeper is shown as the text that it is.
const maxDepth = 64

// arranged writes a JSON value for the person who decides about it: the same value, in which shorter members stand before longer ones at each
// level, so that no text pushes a recipient or a flag out of sight. Characters that cannot be seen, that turn the direction of what
// follows, or that look like those of the alphabet around them are written as escapes.
func arranged(value json.RawMessage) json.RawMessage {
	if len(value) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	text, err := arrangedNext(decoder, 0)
	if err != nil { // no JSON: it is shown as the string that it is
		return json.RawMessage(seenString(string(value)))
	}
	return json.RawMessage(text)
}

// arrangedMember is a member of an object, written.
type arrangedMember struct{ name, value string }

func arrangedNext(decoder *json.Decoder, depth int) (string, error) {
	if depth > maxDepth {
		var rest json.RawMessage
		err := decoder.Decode(&rest)
		return seenString(string(rest)), err
	}
	token, err := decoder.Token()
	if err != nil {
		return "", err
	}

	switch token := token.(type) {
	case json.Delim:
		if token == '[' {
			return arrangedList(decoder, depth)
		}
		return arrangedObject(decoder, depth)
	case string:
		return seenString(token), nil
	case json.Number:
		return token.String(), nil
	case bool:
		return fmt.Sprint(token), nil
	}
	return "null", nil
}

func arrangedList(decoder *json.Decoder, depth int) (string, error) {
	var elements []string
	for decoder.More() {
		element, err := arrangedNext(decoder, depth+1)
		if err != nil {
			return "", err
		}
		elements = append(elements, element)
	}
	_, err := decoder.Token()
	return "[" + strings.Join(elements, ",") + "]", err
}

// arrangedObject keeps a name that comes twice, because a reader of the call may take either.
func arrangedObject(decoder *json.Decoder, depth int) (string, error) {
	var members []arrangedMember
	for decoder.More() {
		name, err := arrangedNext(decoder, depth+1)
		if err != nil {
			return "", err
		}
		value, err := arrangedNext(decoder, depth+1)
		if err != nil {
			return "", err
		}
		members = append(members, arrangedMember{name, value})
	}
	if _, err := decoder.Token(); err != nil {
		return "", err
	}

	slices.SortStableFunc(members, func(a, b arrangedMember) int { return len(a.name) + len(a.value) - len(b.name) - len(b.value) })
	written := make([]string, len(members))
	for i, member := range members {
		written[i] = member.name + ":" + member.value
	}
	return "{" + strings.Join(written, ",") + "}", nil
}

// seenString is a JSON string whose characters can all be seen.
func seenString(text string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil { // a string always encodes
		return `""`
	}
	return seen(strings.TrimSuffix(out.String(), "\n"))
}

// seen replaces what a reader cannot see, or would mistake, by its escape.
func seen(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r > unicode.MaxASCII || r < ' ' && r != '\n' && r != '\t' || r == 0x7f }) < 0 {
		return text
	}

	foreign := mistaken(text)
	runes := []rune(text)
	var out strings.Builder
	for i, r := range runes {
		if foreign[i] || hidden(runes, i) {
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&out, `\u%04x`, unit)
			}
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

// blanks are letters and marks that are drawn as nothing.
var blanks = []rune{0x034f, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x2800, 0x3164, 0xffa0}

// hidden reports whether a character shows nothing of itself. Joiners and variation selectors that make one sign of emoji, or join the letters of a
// script that needs them, stay.
func hidden(text []rune, i int) bool {
	r := text[i]
	switch {
	case r == '\n' || r == '\t' || r == ' ':
		return false
	case r == 0x200c || r == 0x200d || r >= 0xfe00 && r <= 0xfe0f:
		const latinEnds = 0x24f
		after := r >= 0xfe00 || i+1 < len(text) && text[i+1] > latinEnds
		return i == 0 || text[i-1] <= latinEnds && !unicode.IsDigit(text[i-1]) || !after
	}
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zs, unicode.Zl, unicode.Zp, unicode.Co, unicode.Variation_Selector) || slices.Contains(blanks, r)
}

// likeLatin are the alphabets whose letters are drawn like those of Latin (Unicode Technical Standard 39, section 5).
var likeLatin = []*unicode.RangeTable{unicode.Cyrillic, unicode.Greek, unicode.Armenian, unicode.Cherokee, unicode.Coptic, unicode.Lisu}

// mistaken finds letters that stand in one word or address with Latin ones and are drawn like them.
func mistaken(text string) map[int]bool {
	var found map[int]bool
	var foreign []int
	latin := false
	end := func() {
		if latin {
			for _, i := range foreign {
				if found == nil {
					found = map[int]bool{}
				}
				found[i] = true
			}
		}
		foreign, latin = foreign[:0], false
	}

	i := 0
	for _, r := range text {
		switch {
		case unicode.Is(unicode.Latin, r):
			latin = true
		case unicode.In(r, likeLatin...):
			foreign = append(foreign, i)
		case unicode.IsSpace(r) || strings.ContainsRune(`"'<>(),;/\`, r):
			end()
		}
		i++
	}
	end()
	return found
}

// document is a value as text: a string as it is, anything else indented.
func document(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return seen(text)
	}
	return jsonText(arranged(value))
}

// shownWhole reports whether a message to an approver has all of what is decided. Only the page has the rest of what is longer, so there alone
// such an approval is granted.
func shownWhole(i policypart.Issuance, kept notes) bool {
	if kept.Draft != nil {
		return len(seen(draftText(kept.Draft.Response))) <= toldDraft
	}
	asked := i.Part.Approval()
	if len(asked.Preview)+len(asked.ApplyInput) == 0 && len(oneLine(seen(asked.Summary))) > toldSummary {
		return false
	}
	return len(document(asked.Preview)) <= toldPreview && len(document(asked.ApplyInput)) <= toldPreview && len(oneLine(seen(asked.Tool))) <= toldQuestion
}
