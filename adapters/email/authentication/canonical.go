package authentication

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"strings"

	"inbox/adapters/email/message"
)

// The canonical forms are own code because the verifier of DKIM is (verifyDKIM) and because the library knows no ARC. Mails that
// leave are signed by the library, whose forms the verifier must accept (TestBothSignaturesHold).

var errCanonical = errors.New("the canonicalization is not known")

// canonicalForms reads c= of a signature; simple is the default of both halves (RFC 6376, section 3.5).
func canonicalForms(value string) (relaxedHeader, relaxedBody bool, err error) {
	head, body, _ := strings.Cut(strings.ToLower(value), "/")
	for _, form := range []string{head, body} {
		if form != "" && form != "simple" && form != "relaxed" {
			return false, false, errCanonical
		}
	}
	return head == "relaxed", body == "relaxed", nil
}

// writeField writes a field as it is signed (RFC 6376, section 3.4). What is written to must not fail.
func writeField(to io.Writer, raw []byte, relaxed bool) {
	if !relaxed {
		_, _ = to.Write(raw)
		return
	}
	name, value, _ := bytes.Cut(raw, []byte(":"))
	out := make([]byte, 0, len(raw)+2)
	out = append(append(out, bytes.ToLower(bytes.TrimRight(name, " \t"))...), ':')
	out = appendSqueezed(out, bytes.TrimLeft(value, blanks), blanks)
	_, _ = to.Write(append(out, '\r', '\n'))
}

// blanks is white space in a header, where line ends are folding.
const blanks = " \t\r\n"

// appendSqueezed makes runs of white space one blank and drops those at the end.
func appendSqueezed(out, text []byte, white string) []byte {
	for len(text) > 0 {
		word := bytes.IndexAny(text, white)
		if word < 0 {
			return append(out, text...)
		}
		out = append(out, text[:word]...)
		if text = bytes.TrimLeft(text[word:], white); len(text) > 0 {
			out = append(out, ' ')
		}
	}
	return out
}

// bodyDigest is what a signature says of a body.
type bodyDigest struct {
	sum  [sha256.Size]byte
	size uint64 // of the canonical form, which is what l= counts
}

// hashBody hashes a body as it is signed, without a copy of the body.
func hashBody(body []byte, relaxed bool) (digest bodyDigest) {
	hash := sha256.New()
	body = withoutEmptyEnd(body, relaxed)
	switch {
	case relaxed && len(body) == 0:
	case relaxed && squeezable(body):
		digest.size = hashRelaxed(hash, body)
	default:
		_, _ = hash.Write(body)
		_, _ = io.WriteString(hash, "\r\n")
		digest.size = uint64(len(body)) + 2
	}

	hash.Sum(digest.sum[:0])
	return digest
}

// withoutEmptyEnd leaves out the empty lines at the end, and the last line end.
func withoutEmptyEnd(body []byte, relaxed bool) []byte {
	for {
		shorter := bytes.TrimSuffix(body, []byte("\r\n"))
		if relaxed {
			shorter = bytes.TrimRight(shorter, " \t")
		}
		if len(shorter) == len(body) {
			return body
		}
		body = shorter
	}
}

// squeezable reports whether the relaxed form of a body is another one. Most bodies need not be taken apart.
func squeezable(body []byte) bool {
	return bytes.IndexByte(body, '\t') >= 0 || bytes.Contains(body, []byte("  ")) || bytes.Contains(body, []byte(" \r\n"))
}

// RelaxedBodyHash returns the hash of a body in relaxed form: bodies with the same one have the same words.
func RelaxedBodyHash(body []byte) [sha256.Size]byte { return hashBody(body, true).sum }

func hashRelaxed(to io.Writer, body []byte) (size uint64) {
	buffer := make([]byte, 0, 4<<10)
	for line := range bytes.SplitSeq(body, []byte("\r\n")) {
		if len(buffer)+len(line)+2 > cap(buffer) {
			size += uint64(len(buffer))
			_, _ = to.Write(buffer)
			buffer = buffer[:0]
		}
		buffer = append(appendSqueezed(buffer, line, " \t"), '\r', '\n')
	}
	_, _ = to.Write(buffer)
	return size + uint64(len(buffer))
}

// fieldPicker returns the fields that h= of signatures names.
type fieldPicker map[string][]*message.Field

func newFieldPicker(fields message.Header) fieldPicker {
	picker := make(fieldPicker, len(fields))
	for i := range fields {
		name := strings.ToLower(strings.TrimRight(fields[i].Name, " \t"))
		picker[name] = append(picker[name], &fields[i])
	}
	return picker
}

// write writes the fields of h=, each instance taken from the bottom up; a name without a field left signs nothing.
func (p fieldPicker) write(to io.Writer, names []string, relaxed bool) {
	used := make(map[string]int, len(names))
	for _, name := range names {
		name = strings.ToLower(name)
		if found := p[name]; used[name] < len(found) {
			used[name]++
			writeField(to, found[len(found)-used[name]].Raw, relaxed)
		}
	}
}

// withoutSignature returns a signing field with b= emptied and without its line end.
func withoutSignature(f *message.Field, relaxed bool) []byte {
	raw := f.Raw
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

	var out bytes.Buffer
	writeField(&out, raw, relaxed)
	return bytes.TrimSuffix(out.Bytes(), []byte("\r\n"))
}

// trailing keeps the line end when the signature is the last tag.
func trailing(tag []byte) []byte {
	if bytes.HasSuffix(tag, []byte("\r\n")) {
		return []byte("\r\n")
	}
	return nil
}
