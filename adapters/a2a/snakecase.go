package a2a

import (
	"bytes"
	"net/url"
	"strings"
)

// maxNameDepth bounds the nesting that is looked through; what is deeper is refused by the binding anyway.
const maxNameDepth = 100

// lowerCamel writes the member names of a request in lowerCamelCase: ProtoJSON takes the names of the .proto file too,
// the SDK does not. Values of metadata and data are the caller's own and stay as they are. A body that is not JSON
// comes back unchanged.
func lowerCamel(body []byte) []byte {
	w := nameWalker{in: body}
	if !w.value(0, true) || w.copied == 0 {
		return body
	}
	return append(w.out, body[w.copied:]...)
}

// nameWalker goes once through a JSON document and copies it with other names. Until the first name changes nothing is
// copied.
type nameWalker struct {
	in     []byte
	at     int
	out    []byte
	copied int // bytes of in that are in out
}

func (w *nameWalker) space() {
	for w.at < len(w.in) && strings.IndexByte(" \t\r\n", w.in[w.at]) >= 0 {
		w.at++
	}
}

func (w *nameWalker) take(char byte) bool {
	w.space()
	if w.at < len(w.in) && w.in[w.at] == char {
		w.at++
		return true
	}
	return false
}

func (w *nameWalker) value(depth int, change bool) bool {
	w.space()
	if w.at >= len(w.in) || depth > maxNameDepth {
		return false
	}
	switch w.in[w.at] {
	case '{':
		w.at++
		return w.members(depth, change)
	case '[':
		w.at++
		return w.items(depth, change)
	case '"':
		return w.text()
	}
	begin := w.at
	for w.at < len(w.in) && strings.IndexByte(",]} \t\r\n", w.in[w.at]) < 0 {
		w.at++
	}
	return w.at > begin
}

func (w *nameWalker) text() bool {
	for w.at++; w.at < len(w.in); w.at++ {
		switch w.in[w.at] {
		case '\\':
			w.at++
		case '"':
			w.at++
			return true
		}
	}
	return false
}

func (w *nameWalker) items(depth int, change bool) bool {
	if w.take(']') {
		return true
	}
	for {
		if !w.value(depth+1, change) {
			return false
		}
		if !w.take(',') {
			return w.take(']')
		}
	}
}

func (w *nameWalker) members(depth int, change bool) bool {
	if w.take('}') {
		return true
	}
	for {
		w.space()
		begin := w.at
		if begin >= len(w.in) || w.in[begin] != '"' || !w.text() {
			return false
		}
		name := w.in[begin+1 : w.at-1]
		if change {
			w.rename(begin, name)
		}
		own := string(name) == "metadata" || string(name) == "data"
		if !w.take(':') || !w.value(depth+1, change && !own) {
			return false
		}
		if !w.take(',') {
			return w.take('}')
		}
	}
}

func (w *nameWalker) rename(begin int, name []byte) {
	if bytes.IndexByte(name, '_') < 0 || bytes.IndexByte(name, '\\') >= 0 {
		return
	}
	w.out = append(w.out, w.in[w.copied:begin+1]...)
	w.out = append(w.out, camel(string(name))...)
	w.copied = w.at - 1
}

// camel is the JSON name of a field (Protocol Buffers language guide, ProtoJSON).
func camel(name string) string {
	var out strings.Builder
	upper := false
	for i := range len(name) {
		char := name[i]
		switch {
		case char == '_':
			upper = true
			continue
		case upper && 'a' <= char && char <= 'z':
			char -= 'a' - 'A'
		}
		upper = false
		out.WriteByte(char)
	}
	return out.String()
}

// lowerCamelQuery does the same for query parameters.
func lowerCamelQuery(raw string) string {
	if !strings.Contains(raw, "_") {
		return raw
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return raw
	}
	renamed := url.Values{}
	for name, list := range values {
		renamed[camel(name)] = append(renamed[camel(name)], list...)
	}
	return renamed.Encode()
}
