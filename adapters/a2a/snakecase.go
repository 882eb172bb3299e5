package a2a

import (
	"bytes"
	"net/url"
	"strings"
)

// lowerCamel writes a request as the SDK reads it: member names in lowerCamelCase, files in padded base64 of the standard
// alphabet. ProtoJSON takes the names of the .proto file and the other forms of base64, too.
func lowerCamel(body []byte) []byte {
	return rewrite(body, renamed, func(name, text []byte) []byte {
		if string(name) == "raw" {
			return standardBase64(text)
		}
		return text
	})
}

// namesOf03 does that for the names of an HTTP+JSON request of 0.3, in whose .proto file the message is called request.
func namesOf03(body []byte) []byte {
	return rewrite(body, func(name []byte) []byte {
		if string(name) == "request" {
			return []byte("message")
		}
		return renamed(name)
	}, nil)
}

func renamed(name []byte) []byte {
	if bytes.IndexByte(name, '_') < 0 || bytes.IndexByte(name, '\\') >= 0 {
		return name
	}
	return []byte(camel(string(name)))
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
