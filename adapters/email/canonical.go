package email

import (
	"bytes"
	"strings"
)

// canonicalForms reads c= of a signature; simple is the default of both halves (RFC 6376, section 3.5).
func canonicalForms(value string) (relaxedHeader, relaxedBody bool) {
	head, body, _ := strings.Cut(value, "/")
	return head == "relaxed", body == "relaxed"
}

// canonicalField gives a field as it is signed (RFC 6376, section 3.4).
func canonicalField(raw []byte, relaxed bool) []byte {
	if !relaxed {
		return raw
	}
	name, value, _ := bytes.Cut(raw, []byte(":"))
	out := append(bytes.ToLower(bytes.TrimRight(name, " \t")), ':')
	return append(append(out, bytes.Join(blankFields(value), []byte(" "))...), '\r', '\n')
}

// blankFields cuts at the white space of mail alone.
func blankFields(value []byte) [][]byte {
	return bytes.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' })
}

// canonicalBody gives a body as it is signed.
func canonicalBody(body []byte, relaxed bool) []byte {
	var out []byte
	if relaxed {
		out = make([]byte, 0, len(body))
		for line := range bytes.SplitAfterSeq(body, []byte("\r\n")) {
			text, ended := bytes.CutSuffix(line, []byte("\r\n"))
			out = append(out, squeezeBlanks(text)...)
			if ended {
				out = append(out, '\r', '\n')
			}
		}
	} else {
		out = append(out, body...)
	}
	end := len(out)
	for end >= 2 && out[end-2] == '\r' && out[end-1] == '\n' {
		end -= 2
	}
	if out = out[:end]; len(out) > 0 || !relaxed {
		out = append(out, '\r', '\n')
	}
	return out
}

func squeezeBlanks(line []byte) []byte {
	out := make([]byte, 0, len(line))
	blank := false
	for _, c := range line {
		if c == ' ' || c == '\t' {
			blank = true
			continue
		}
		if blank {
			out = append(out, ' ')
		}
		blank = false
		out = append(out, c)
	}
	return out
}

// coveredFields gives the fields of h=, each instance taken from the bottom up; a name without a field left signs nothing.
func coveredFields(fields header, names []string, relaxed bool) []byte {
	var out []byte
	used := map[string]int{}
	for _, name := range names {
		name = strings.ToLower(strings.TrimSpace(name))
		found := fields.all(name)
		if used[name] < len(found) {
			used[name]++
			out = append(out, canonicalField(found[len(found)-used[name]].raw, relaxed)...)
		}
	}
	return out
}

// withoutSignature gives a signing field with b= emptied and without its line end.
func withoutSignature(f *field, relaxed bool) []byte {
	raw := f.raw
	colon := bytes.IndexByte(raw, ':') + 1
	for at := colon; at < len(raw); {
		end := bytes.IndexByte(raw[at:], ';')
		if end < 0 {
			end = len(raw)
		} else {
			end += at
		}
		name, _, found := bytes.Cut(raw[at:end], []byte("="))
		if found && string(bytes.TrimSpace(name)) == "b" {
			raw = append(append(append([]byte{}, raw[:at+len(name)+1]...), trailing(raw[at:end])...), raw[end:]...)
			break
		}
		at = end + 1
	}
	return bytes.TrimSuffix(canonicalField(raw, relaxed), []byte("\r\n"))
}

// trailing keeps the line end when the signature is the last tag.
func trailing(tag []byte) []byte {
	if bytes.HasSuffix(tag, []byte("\r\n")) {
		return []byte("\r\n")
	}
	return nil
}
