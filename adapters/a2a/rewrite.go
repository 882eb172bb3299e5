package a2a

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	pb0 "github.com/a2aproject/a2a-go/a2apb"
	"github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/protobuf/reflect/protoreflect"
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

// digitsAround reports whether a text begins and ends as numbers do: json.Unmarshal takes spaces around them, and null.
func digitsAround(text []byte) bool {
	digit := func(char byte) bool { return '0' <= char && char <= '9' }
	return len(text) > 0 && (digit(text[0]) || text[0] == '-') && digit(text[len(text)-1])
}

// standardBase64 writes a text of any form in the one that the SDK reads; what is none stays.
func standardBase64(text []byte) []byte {
	if len(text)%4 == 0 && !bytes.ContainsAny(text, `-_\`) {
		return text
	}
	if content, ok := anyBase64(text); ok {
		return base64.StdEncoding.AppendEncode(nil, content)
	}
	return text
}

// rpcOf03 checks and rewrites a JSON-RPC request of A2A 0.3. The SDK's binding takes invalid base64 for the file itself, and silently
// skips the snake_case names that clients generated from the .proto file send: they become lowerCamelCase.
func rpcOf03(body []byte) ([]byte, *problem) {
	if !bytes.Contains(body, []byte(`"bytes"`)) && bytes.IndexByte(body, '_') < 0 {
		return body, nil
	}

	var p *problem
	changed := rewrite(body, renamed, func(name, text []byte) []byte {
		if string(name) != "bytes" {
			return text
		}
		if _, ok := anyBase64(text); !ok {
			p = inField("message.parts", "file.bytes must be base64")
		}
		return standardBase64(text)
	})

	return changed, p
}

// anyBase64 reads a text, as it stands between its quotes, in each form of base64 that ProtoJSON knows: both alphabets, with
// padding and without.
func anyBase64(text []byte) (content []byte, ok bool) {
	if bytes.IndexByte(text, '\\') >= 0 {
		var plain string
		if json.Unmarshal(append(append([]byte{'"'}, text...), '"'), &plain) != nil {
			return nil, false
		}
		text = []byte(plain)
	}

	standard := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(string(text), "="))
	content, err := base64.RawStdEncoding.DecodeString(standard)
	return content, err == nil
}

// wrapHook puts the body that registers a webhook into the request message where it stands alone: the annotation of the
// .proto file says that it does, the SDK that we use wants it wrapped.
func wrapHook(body []byte) []byte {
	var hook struct {
		Config                 json.RawMessage `json:"config"`
		PushNotificationConfig json.RawMessage `json:"pushNotificationConfig"`
	}
	if !bytes.Contains(body, []byte("pushNotificationConfig")) || json.Unmarshal(body, &hook) != nil ||
		hook.Config != nil || hook.PushNotificationConfig == nil {
		return body
	}
	return append(append([]byte(`{"config":`), body...), '}')
}

// The SDKs of 0.3 read `bytes file_with_bytes` of its .proto file in two ways, by gRPC and by HTTP+JSON: those in Go, Java
// and Python put the base64 text of a file into it, which ProtoJSON then encodes once more, and decode it as text, the one in
// JavaScript puts the file itself, as the type says. The SDK that we use knows the first kind only. Which kind a client is
// nothing in a request says, so that its program decides: JavaScript by its own HTTP client, which is that of browsers,
// Node, Deno and Bun, or by the gRPC client of Node.

// plainFiles reports whether a client of 0.3 is of the second kind.
func plainFiles(header http.Header) bool {
	program := header.Get("User-Agent")
	for _, begins := range []string{"node", "undici", "Mozilla/", "Deno/", "Bun/"} {
		if strings.HasPrefix(program, begins) {
			return true
		}
	}
	return strings.Contains(program, "grpc-node") || header.Get("Sec-Fetch-Mode") != "" // only the fetch of browsers sends that
}

// asBase64 returns the content of the field as the SDK wants it. Of a client that is not known to be plain, a file whose own
// bytes happen to be base64 is taken for the first kind.
func asBase64(content []byte, plain bool) []byte {
	if _, err := base64.StdEncoding.Strict().DecodeString(string(content)); err == nil && !plain {
		return content
	}
	return base64.StdEncoding.AppendEncode(nil, content)
}

// encodeFiles does that for a gRPC request.
func encodeFiles(request any, plain bool) {
	if send, is := request.(*pb0.SendMessageRequest); is {
		eachFile(send.ProtoReflect(), func(content []byte) []byte { return asBase64(content, plain) })
	}
}

// decodeFiles puts the files themselves into an answer by gRPC.
func decodeFiles(answer any) {
	if message, is := answer.(protoreflect.ProtoMessage); is {
		eachFile(message.ProtoReflect(), func(content []byte) []byte {
			if file, err := base64.StdEncoding.AppendDecode(nil, content); err == nil {
				return file
			}
			return content
		})
	}
}

// eachFile changes the bytes of all files in a message of 0.3.
func eachFile(message protoreflect.Message, change func(content []byte) []byte) {
	eachMessage(message, func(one protoreflect.ProtoMessage) bool {
		file, is := one.(*pb0.FilePart)
		if !is {
			return true
		}
		if holder, has := file.GetFile().(*pb0.FilePart_FileWithBytes); has {
			holder.FileWithBytes = change(holder.FileWithBytes)
		}
		return false
	})
}

// encodeFilesJSON does what encodeFiles does for an HTTP+JSON body.
func encodeFilesJSON(body []byte, plain bool) []byte {
	return rewriteFiles(body, func(content []byte) []byte { return asBase64(content, plain) })
}

// decodeFilesJSON does what decodeFiles does for an HTTP+JSON answer, or for one line of its stream.
func decodeFilesJSON(answer []byte) []byte {
	begin := max(bytes.IndexByte(answer, '{'), 0)
	changed := rewriteFiles(answer[begin:], func(content []byte) []byte {
		if file, err := base64.StdEncoding.AppendDecode(nil, content); err == nil {
			return file
		}
		return content
	})
	return append(bytes.Clone(answer[:begin]), changed...)
}

func rewriteFiles(document []byte, change func(content []byte) []byte) []byte {
	if !bytes.Contains(document, []byte("fileWithBytes")) && !bytes.Contains(document, []byte("file_with_bytes")) {
		return document
	}
	return rewrite(document, nil, func(name, text []byte) []byte {
		if string(name) != "fileWithBytes" && string(name) != "file_with_bytes" {
			return text
		}
		content, ok := anyBase64(text)
		if !ok {
			return text
		}
		return base64.StdEncoding.AppendEncode(nil, change(content))
	})
}

// maxRewriteDepth bounds the nesting that is looked through; what is deeper is refused by the binding anyway.
const maxRewriteDepth = 100

// rewrite changes names of members, and those of their values that are texts, both as they stand between the quotes; a nil
// function changes none. Values of metadata and data are the caller's own and stay as they are. What is not JSON, or nested
// too deeply, comes back unchanged, and what follows the first value stays.
func rewrite(document []byte, name func(name []byte) []byte, text func(name, text []byte) []byte) []byte {
	return (&rewriter{in: document, name: name, text: text}).rewritten()
}

// rewriter goes once through a JSON document and copies it. Until the first change nothing is copied.
type rewriter struct {
	in     []byte
	at     int
	out    []byte
	copied int // bytes of in that are in out
	name   func(name []byte) []byte
	text   func(name, text []byte) []byte
	plain  func(name, value []byte) []byte // changes texts in their quotes, numbers and other plain values before text does
	null   []byte                          // members that are added to a part whose one content is data that is null
}

func (w *rewriter) rewritten() []byte {
	if !w.value(0, true) || w.copied == 0 {
		return w.in
	}
	return append(w.out, w.in[w.copied:]...)
}

func (w *rewriter) value(depth int, change bool) bool {
	w.space()
	if w.at >= len(w.in) || depth > maxRewriteDepth {
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
		return w.quoted()
	}

	begin := w.at
	for w.at < len(w.in) && strings.IndexByte(",]} \t\r\n", w.in[w.at]) < 0 {
		w.at++
	}

	return w.at > begin
}

func (w *rewriter) items(depth int, change bool) bool {
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

func (w *rewriter) members(depth int, change bool) bool {
	if w.take('}') {
		return true
	}

	var content partContent
	for {
		w.space()
		begin := w.at
		if begin >= len(w.in) || w.in[begin] != '"' || !w.quoted() {
			return false
		}

		name := w.in[begin+1 : w.at-1]
		own := string(name) == "metadata" || string(name) == "data"

		if change && w.name != nil {
			w.replace(begin+1, name, w.name(name))
		}
		if !w.take(':') {
			return false
		}

		w.space()
		value := w.at

		if !w.member(depth+1, name, change && !own) {
			return false
		}

		content.note(name, w.in[value:w.at])
		if w.take(',') {
			continue
		}

		if change && w.null != nil && content.isNull() {
			w.space()
			w.replace(w.at, nil, w.null)
		}

		return w.take('}')
	}
}

// partContent is what the members of an object are as those of a part.
type partContent struct{ null, other bool }

func (c *partContent) note(name, value []byte) {
	isNull := string(value) == "null"
	switch string(name) {
	case "data":
		c.null = isNull
	case "text", "raw", "url":
		c.other = c.other || !isNull
	}
}

func (c *partContent) isNull() bool { return c.null && !c.other }

// member walks the value of a member.
func (w *rewriter) member(depth int, name []byte, change bool) bool {
	w.space()
	begin := w.at

	if !w.value(depth, change) {
		return false
	}
	if !change || w.in[begin] == '{' || w.in[begin] == '[' {
		return true
	}

	old := w.in[begin:w.at]
	if w.plain != nil {
		if fresh := w.plain(name, old); !bytes.Equal(fresh, old) {
			w.replace(begin, old, fresh)
			return true
		}
	}

	if w.text != nil && old[0] == '"' {
		inner := old[1 : len(old)-1]
		w.replace(begin+1, inner, w.text(name, inner))
	}

	return true
}

// replace puts new text where the old begins.
func (w *rewriter) replace(begin int, old, text []byte) {
	if bytes.Equal(old, text) {
		return
	}
	w.out = append(append(w.out, w.in[w.copied:begin]...), text...)
	w.copied = begin + len(old)
}

func (w *rewriter) quoted() bool {
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

func (w *rewriter) take(char byte) bool {
	w.space()
	if w.at < len(w.in) && w.in[w.at] == char {
		w.at++
		return true
	}
	return false
}

func (w *rewriter) space() {
	for w.at < len(w.in) && strings.IndexByte(" \t\r\n", w.in[w.at]) >= 0 {
		w.at++
	}
}
