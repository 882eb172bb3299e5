package a2a

import (
	"bytes"
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// nullData says null in a way that the SDK reads: data that is null is no content for it (A2A 1.0, section 4.1.6: Part).
var nullData = []byte(`,"raw":"bnVsbA==","mediaType":"application/json"`)

// lowerCamel writes a request as the SDK reads it: member names in lowerCamelCase, files in padded base64 of the standard
// alphabet, numbers as numbers and enums by name. ProtoJSON takes the names of the .proto file, the other forms of base64,
// numbers in quotes and enums by number, too.
func lowerCamel(body []byte) []byte {
	text := func(name, text []byte) []byte {
		if string(name) == "raw" {
			return standardBase64(text)
		}
		return text
	}
	return (&rewriter{in: body, name: renamed, text: text, plain: plainOf1, null: nullData}).rewritten()
}

// namesOf03 does that for the names and numbers of an HTTP+JSON request of 0.3, in whose .proto file the message is called
// request.
func namesOf03(body []byte) []byte {
	name := func(name []byte) []byte {
		if string(name) == "request" {
			return []byte("message")
		}
		return renamed(name)
	}
	return (&rewriter{in: body, name: name, plain: plainNumber}).rewritten()
}

// Enums of 1.0 that requests have, by number.
var (
	roleNames  = []string{"", string(a2a.MessageRoleUser), string(a2a.MessageRoleAgent)}
	stateNames = []string{
		"", string(a2a.TaskStateSubmitted), string(a2a.TaskStateWorking), string(a2a.TaskStateCompleted), string(a2a.TaskStateFailed),
		string(a2a.TaskStateCanceled), string(a2a.TaskStateInputRequired), string(a2a.TaskStateRejected), string(a2a.TaskStateAuthRequired),
	}
)

// plainOf1 writes the numbers and enums of a request of 1.0 as the SDK reads them.
func plainOf1(name, value []byte) []byte {
	switch string(name) {
	case "role":
		return enumName(roleNames, value)
	case "status":
		return enumName(stateNames, value)
	}
	return plainNumber(name, value)
}

func enumName(names []string, value []byte) []byte {
	number, err := strconv.Atoi(string(value))
	if err != nil || number < 0 || number >= len(names) {
		return value
	}
	return []byte(strconv.Quote(names[number]))
}

// plainNumber writes the int32 members of requests in digits: ProtoJSON takes them in quotes, with an exponent and with a
// fraction of nothing. What is no such number stays, for the binding to refuse.
func plainNumber(name, value []byte) []byte {
	switch string(name) {
	case "historyLength", "history_length", "pageSize", "page_size":
	default:
		return value
	}
	text := bytes.TrimSuffix(bytes.TrimPrefix(value, []byte(`"`)), []byte(`"`))
	if !bytes.HasSuffix(value, []byte(`"`)) && !bytes.ContainsAny(value, ".eE") || !digitsAround(text) {
		return value // it is plain already, or no number
	}
	var number float64
	if json.Unmarshal(text, &number) != nil || number != math.Trunc(number) || math.Abs(number) > math.MaxInt32 {
		return value
	}
	return strconv.AppendInt(nil, int64(number), 10)
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

// digitsAround reports whether a text begins and ends as numbers do: json.Unmarshal takes spaces around them, and null.
func digitsAround(text []byte) bool {
	digit := func(char byte) bool { return '0' <= char && char <= '9' }
	return len(text) > 0 && (digit(text[0]) || text[0] == '-') && digit(text[len(text)-1])
}
