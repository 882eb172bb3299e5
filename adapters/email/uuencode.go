package email

import (
	"cmp"
	"strings"

	"inbox/adapters/email/message"
	"inbox/normalized"
)

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
	return cleanName(fields[2]), true
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
