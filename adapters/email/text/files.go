package text

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/adapters/email/message"
	"inbox/internal/fault"
	"inbox/normalized"
)

// addFile keeps a leaf as a file part.
func (r *contentReader) addFile(ctx context.Context, node *message.Entity) error {
	if len(r.result.Files) >= maxFiles {
		r.result.Left++
		return nil
	}

	body := node.Decode()
	if r.budget -= len(body); r.budget < 0 {
		return fault.InField("body", "the decoded files are larger than the mail")
	}

	ref, err := r.keep(ctx, body)
	if err != nil {
		return err
	}

	r.result.Files = append(r.result.Files, normalized.Part{
		Kind: normalized.PartFile, MIME: fileType(node, body), Name: fileName(node), Size: int64(len(body)), BytesRef: ref, ContentID: contentID(node.Fields),
	})

	return nil
}

// contentID returns by which name the text of a mail refers to a part (RFC 2392); "" = by none.
func contentID(fields message.Header) string {
	id := strings.Trim(fields.Get("Content-ID"), " \t<>")
	if len(id) > message.MaxIDBytes || strings.ContainsFunc(id, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		return ""
	}
	return id
}

// addFound keeps a file that stands inside of another part, which is kept as well. What is over a bound is left out: the
// part around it has it.
func (r *contentReader) addFound(ctx context.Context, part normalized.Part, body []byte) error {
	if len(r.result.Files) >= maxFiles || len(body) > r.budget {
		r.result.Left++
		return nil
	}

	ref, err := r.keep(ctx, body)
	if err != nil {
		return err
	}

	r.budget -= len(body)
	part.Kind, part.Size, part.BytesRef = normalized.PartFile, int64(len(body)), ref
	r.result.Files = append(r.result.Files, part)
	return nil
}

func (r *contentReader) keep(ctx context.Context, body []byte) (*normalized.BytesRef, error) {
	if len(body) <= normalized.MaxInlineBytes && r.inline+len(body) <= maxInlineTotal {
		r.inline += len(body)
		return &normalized.BytesRef{Kind: normalized.BytesInline, DataBase64: base64.StdEncoding.EncodeToString(body)}, nil
	}
	digest, _, err := r.keeper.Put(ctx, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("store attachment: %w", err)
	}
	return &normalized.BytesRef{Kind: normalized.BytesContentAddressed, Algo: "sha256", Digest: digest}, nil
}

// fileType is the declared type, unless it says nothing or the bytes say that it is wrong: agents show pictures to models
// and play sounds by their type. What was declared stays in the original.
func fileType(node *message.Entity, body []byte) string {
	sniffed, _ := message.MediaType(http.DetectContentType(body), "application/octet-stream")
	armour := armourType(body)
	switch {
	case armour != "" && (node.Media == "" || node.Media == "application/octet-stream" || node.Media == "text/plain"):
		return armour // it is ASCII, and no text
	case node.Media == "" || node.Media == "application/octet-stream":
		return sniffed
	case contradicts(node.Media, sniffed, body):
		return sniffed
	}

	return typeOfFile(node)
}

// contradicts reports whether bytes cannot be what was declared. Types that the sniffer does not know prove nothing, unless
// they are programs.
func contradicts(declared, sniffed string, body []byte) bool {
	kind, _, _ := strings.Cut(declared, "/")
	found, _, _ := strings.Cut(sniffed, "/")
	if kind != "image" && kind != "audio" && kind != "video" && declared != "application/pdf" || len(body) == 0 {
		return false
	}

	if program(body) {
		return true
	}

	switch {
	case sniffed == "application/octet-stream", found == "text" && declared == "image/svg+xml", sniffed == declared:
		return false
	case sniffed == "application/ogg", found == "video" && kind == "audio", found == "audio" && kind == "video": // one container for both
		return kind != "audio" && kind != "video"
	}

	return kind != found
}

func program(body []byte) bool {
	for _, start := range []string{"MZ", "\x7fELF", "#!", "\xfe\xed\xfa", "\xcf\xfa\xed\xfe", "\xca\xfe\xba\xbe"} {
		if bytes.HasPrefix(body, []byte(start)) {
			return true
		}
	}
	return false
}

// fileName returns the name of a part, clean; "" = it has none.
func fileName(node *message.Entity) string {
	_, disposition := message.MediaType(node.Fields.Get("Content-Disposition"), "inline")
	name := disposition["filename"]
	if name == "" {
		name = node.Params["name"]
	}
	if name == "" && strings.HasPrefix(node.Media, "message/") {
		name = enclosedName(node)
	}
	return CleanName(message.DecodeWords(name))
}

func enclosedName(node *message.Entity) string {
	fields, _, err := message.SplitEnclosed(node.Decode())
	if err != nil || fields.Decoded("Subject") == "" {
		return "mail.eml"
	}
	return strings.NewReplacer("/", " ", "\\", " ", ":", " ").Replace(fields.Decoded("Subject")) + ".eml"
}

// CleanName returns a harmless name of a file: the last path element without controls, disguises and leading dots.
func CleanName(name string) string {
	name = name[strings.LastIndexAny(name, `/\`)+1:]
	name = strings.TrimLeft(message.Clean(name, maxNameBytes), ". ")
	for len(name) > maxNameBytes {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

// maxEncodedFiles bounds how many files are taken out of one text.
const maxEncodedFiles = 20

// encodedFile is a file that stood in a text.
type encodedFile struct {
	name string
	data []byte
}

// withoutEncoded takes uuencoded files (POSIX, uuencode) out of a text, as programs from before MIME put them there. A block that is not
// whole and right stays as it is.
func withoutEncoded(text string) (rest string, files []encodedFile) {
	if !strings.HasPrefix(text, "begin ") && !strings.Contains(text, "\nbegin ") {
		return text, nil
	}

	lines := strings.Split(text, "\n")
	var out []string
	for i := 0; i < len(lines); {
		name, begins := encodedName(lines[i])
		if begins && len(files) < maxEncodedFiles {
			data, used := decodeLines(lines[i+1:])
			if used > 0 {
				files = append(files, encodedFile{name, data})
				out = append(out, "["+cmp.Or(name, "file")+"]")
				i += 1 + used
				continue
			}

			// What was looked at holds no other begin: it is not looked at again.
			used = -used
			out = append(out, lines[i:i+1+used]...)
			i += 1 + used
			continue
		}

		out = append(out, lines[i])
		i++
	}

	return strings.Join(out, "\n"), files
}

// encodedName reads "begin 644 photo.jpg".
func encodedName(line string) (name string, begins bool) {
	fields := strings.SplitN(strings.TrimRight(line, " \t"), " ", 3)
	if len(fields) != 3 || fields[0] != "begin" || len(fields[1]) < 3 || len(fields[1]) > 4 || strings.Trim(fields[1], "01234567") != "" {
		return "", false
	}
	return CleanName(fields[2]), true
}

// decodeLines decodes up to the line "end". used is how many lines the file takes; where they are none, it is how many were
// right, below zero.
func decodeLines(lines []string) (data []byte, used int) {
	for i, line := range lines {
		if strings.TrimRight(line, " ") == "end" && i > 0 {
			return data, i + 1
		}

		if line == "" { // blanks at the end of a line get lost on the way
			line = " "
		}

		size := int(line[0]-' ') & 0x3f
		if line[0] < ' ' || line[0] > '`' || len(line) > 1+(size+2)/3*4+2 || size == 0 && strings.TrimLeft(line, " `") != "" {
			return nil, -i
		}

		piece, ok := decodeLine(line[1:], size)
		if !ok {
			return nil, -i
		}

		data = append(data, piece...)
	}
	return nil, -len(lines)
}

func decodeLine(text string, size int) (data []byte, ok bool) {
	data = make([]byte, 0, 48)
	for at := 0; len(data) < size; at += 4 {
		var quad [4]byte
		for i := range quad {
			if at+i < len(text) {
				if text[at+i] < ' ' || text[at+i] > '`' {
					return nil, false
				}
				quad[i] = (text[at+i] - ' ') & 0x3f
			}
		}

		data = append(data, quad[0]<<2|quad[1]>>4, quad[1]<<4|quad[2]>>2, quad[2]<<6|quad[3])
	}

	return data[:size], true
}

// part describes a file that stood in a text.
func (f encodedFile) part() normalized.Part {
	node := &message.Entity{Media: "application/octet-stream"}
	return normalized.Part{MIME: fileType(node, f.data), Name: f.name}
}

// typeOfFile returns the type of a file with the parameters without which it cannot be read: the method of an invitation (RFC 6047,
// section 2.4) and the charset of a text. Agents compare types, so other parameters stay in the mail.
func typeOfFile(node *message.Entity) string {
	kept := map[string]string{}
	for name, value := range node.Params {
		calendar := node.Media == "text/calendar" && (name == "method" || name == "component")
		if calendar || name == "charset" && strings.HasPrefix(node.Media, "text/") {
			kept[name] = value
		}
	}
	return message.FormatType(node.Media, kept)
}
