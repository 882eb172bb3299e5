package a2a

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/internal/httpserver"
)

// answer stands between the SDK's bindings and the connection. It holds the headers back until the first event of a
// stream or the whole of a plain answer is there, so that an error never leaves as a 200 stream (the JavaScript REST
// client does not notice those) unless the client looks for it there, and it writes every error itself, so that no text of ours or the SDK's leaks.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	call    *call
	timeout time.Duration // of one event to a slow reader

	status int
	stream bool
	sent   bool
	held   bytes.Buffer
}

func newAnswer(w http.ResponseWriter, c *call, options Options) *answer {
	out := &answer{
		ResponseWriter: w, control: http.NewResponseController(w), call: c,
		timeout: options.WriteTimeout, status: http.StatusOK,
	}
	// A blocking send may take longer than the server allows for an ordinary answer.
	_ = out.control.SetWriteDeadline(time.Now().Add(options.WaitLimit + 30*time.Second))
	return out
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader remembers the status.
func (w *answer) WriteHeader(status int) {
	w.status = status
	w.stream = strings.HasPrefix(w.Header().Get("Content-Type"), mimeEvents)
}

// Write holds the bytes until Flush (streams) or finish.
func (w *answer) Write(p []byte) (int, error) {
	if !w.sent {
		return w.held.Write(p)
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
	content := []byte(httpserver.EventComment)
	if !isComment(p) { // the SDK ends a comment with an empty line
		content = w.call.asAsked(p)
	}
	if _, err := w.ResponseWriter.Write(content); err != nil {
		return 0, err
	}
	return len(p), nil
}

// isComment reports whether a piece of a stream is a comment that keeps it alive.
func isComment(piece []byte) bool { return bytes.HasPrefix(piece, []byte(":")) }

// Flush lets a stream begin with its first event. Comments that keep the connection alive do not count: an error may
// still follow.
func (w *answer) Flush() {
	if !w.stream || (!w.sent && w.failed()) {
		return
	}

	if !w.sent {
		if isComment(w.held.Bytes()) {
			w.held.Reset()
			return
		}
		w.sent = true
		_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
		w.ResponseWriter.WriteHeader(http.StatusOK)
		_, _ = w.ResponseWriter.Write(w.call.asAsked(w.held.Bytes()))
		w.held = bytes.Buffer{}
	}

	_ = w.control.Flush()
}

// failed reports whether what is held is an error: ours, or the binding's when it did not reach the handler.
func (w *answer) failed() bool {
	return w.call.problem.Load() != nil || w.call.operation() == ""
}

// finish writes the answer that is not a running stream; a stream that breaks is told so.
func (w *answer) finish(broken bool) {
	if w.sent {
		if broken {
			_, _ = w.Write(append(append([]byte("data: "), w.call.problemBody(w.call.problem.Load())...), '\n'))
		}
		return
	}

	w.sent = true
	if w.failed() {
		p := w.call.problem.Load()
		if p == nil {
			p = w.call.bindingProblem(w.held.Bytes(), w.status)
			w.call.problem.Store(p)
		}
		w.writeProblem(p)
		return
	}

	header := w.Header()
	header.Set("Cache-Control", "no-store")

	if w.status == http.StatusNoContent {
		header.Del("Content-Type")
		w.ResponseWriter.WriteHeader(w.status)
		return
	}

	body := w.call.asAsked(w.call.withResult(w.held.Bytes()))
	header.Set("Content-Type", w.call.mediaType())
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.ResponseWriter.WriteHeader(w.status)
	_, _ = w.ResponseWriter.Write(body)
}

const (
	mimeA2A    = "application/a2a+json"
	mimeEvents = "text/event-stream"
)

// wantsA2A reports whether a request of HTTP+JSON is made in the protocol's own media type (A2A 1.0, section 14.1.1) and so
// wants its answer: it sends that, or accepts that and not the general one. Section 11.1 names the general one.
func wantsA2A(r *http.Request) bool {
	sent, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	accepted := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	return sent == mimeA2A || strings.Contains(accepted, mimeA2A) && !strings.Contains(accepted, mimeJSON)
}

// mediaType is that of an answer which is no stream.
func (c *call) mediaType() string {
	if c.own {
		return mimeA2A
	}
	return mimeJSON
}

// withResult puts the result into an answer that has none: the SDK leaves out what is empty, and a JSON-RPC answer with
// neither result nor error is none (JSON-RPC 2.0, section 5). By HTTP+JSON nothing is an empty object, as
// google.protobuf.Empty is written.
func (c *call) withResult(body []byte) []byte {
	empty := ""
	switch operation := c.operation(); {
	case c.card != nil:
		return c.cardResult()
	case c.rest && len(body) == 0:
		return []byte("{}")
	case c.rest:
	case operation == "ListTaskPushNotificationConfigs" && c.old:
		empty = "[]"
	case operation == "DeleteTaskPushNotificationConfig" && c.old:
		empty = "null"
	case operation == "DeleteTaskPushNotificationConfig":
		empty = "{}"
	}

	var answer map[string]json.RawMessage
	if empty == "" || json.Unmarshal(body, &answer) != nil || answer["error"] != nil {
		return body
	}
	if result := answer["result"]; result != nil && string(result) != "null" {
		return body
	}

	answer["id"], answer["result"] = c.answeredID(), json.RawMessage(empty)
	completed, err := json.Marshal(answer)
	if err != nil {
		return body
	}

	return completed
}

// cardResult is the answer to a client of 0.3 that asked for the extended card.
func (c *call) cardResult() []byte {
	if c.rest {
		return c.card
	}
	return slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), c.answeredID(), []byte(`,"result":`), c.card, []byte("}"))
}

// answeredID is the id of a JSON-RPC request, null where there is none.
func (c *call) answeredID() json.RawMessage {
	if c.id == nil {
		return json.RawMessage("null")
	}
	return c.id
}

// What the SDK writes is brought here into the form that the specification or a client wants.

// asAsked is an answer, or a piece of a stream, as the caller reads it.
func (c *call) asAsked(body []byte) []byte {
	if c.plainFiles {
		body = decodeFilesJSON(body)
	}
	return inMilliseconds(c.withExactID(body))
}

// withExactID puts the id that the request had into a JSON-RPC answer: the SDK reads a number as a float, which rounds large ones,
// and a client that looks for its own would wait for ever (JSON-RPC 2.0, section 5: it must be the same value).
func (c *call) withExactID(body []byte) []byte {
	var number float64
	if isExactID(c.id) || json.Unmarshal(c.id, &number) != nil {
		return body
	}

	rounded, err := json.Marshal(number)
	if err != nil || bytes.Equal(rounded, c.id) {
		return body
	}

	const head = `{"jsonrpc":"2.0","id":`
	return bytes.Replace(body, []byte(head+string(rounded)+","), []byte(head+string(c.id)+","), 1)
}

// maxExactDigits is the number of digits up to which a float holds each integer.
const maxExactDigits = 15

// isExactID reports whether the SDK writes an id as it read it: no id, a text, or an integer that a float holds.
func isExactID(id json.RawMessage) bool {
	if len(id) == 0 || id[0] == '"' {
		return true
	}
	return len(id) <= maxExactDigits && bytes.IndexFunc(id, func(char rune) bool { return char < '0' || '9' < char }) < 0
}

// shortTime finds the time of a task status of which the SDK cut zeros at the end. What an agent wrote cannot look so: in
// a text the quotes are escaped, and the names of states are the protocol's own.
var shortTime = regexp.MustCompile(`"state":"(?:TASK_STATE_[A-Z_]+|submitted|working|completed|failed|canceled|rejected|input-required|auth-required|unknown)",` +
	`"timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,2})?Z"`)

// inMilliseconds writes the time of each task status with three digits (A2A 1.0, section 5.6.1): readers that were made for
// that pattern refuse fewer.
func inMilliseconds(body []byte) []byte {
	if !shortTime.Match(body) { // nine of ten need no copy
		return body
	}
	return shortTime.ReplaceAllFunc(body, func(short []byte) []byte {
		time, end := short[:len(short)-len(`Z"`)], `.000Z"`
		if dot := bytes.LastIndexByte(time, '.'); dot >= 0 {
			end = end[len(time)-dot:]
		}
		return append(bytes.Clone(time), end...)
	})
}

// bindingProblem reads why a binding refused a request before it reached the handler.
func (c *call) bindingProblem(held []byte, status int) *problem {
	var body struct {
		Error struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}

	held = bytes.TrimSpace(held)
	if cut := bytes.Index(held, []byte("data: ")); cut >= 0 {
		held = held[cut+len("data: "):]
	}
	if err := json.Unmarshal(held, &body); err != nil || body.Error.Code == 0 {
		return restRefusal(status)
	}
	if p := c.partAtFault(); p != nil && c.old { // it names the part
		return p
	}
	if match := goField.FindStringSubmatch(body.Error.Message); match != nil {
		return inField(match[1], "has the wrong type")
	}
	if p := c.partAtFault(); p != nil {
		return p
	}
	if c.rest {
		return restRefusal(body.Error.Code)
	}

	switch body.Error.Code {
	case codes[a2a.ErrMethodNotFound].rpc:
		return newProblem(a2a.ErrMethodNotFound, "no such method")
	case codes[a2a.ErrInvalidRequest].rpc:
		return notRPC()
	}

	return inField("params", "is missing or does not fit the method")
}

// goField finds the member in a decoding error of encoding/json, whose text names Go types and must not leave.
var goField = regexp.MustCompile(`Go struct field [A-Za-z]+\.([A-Za-z0-9_.]+) of type`)

// partAtFault finds the part for which a binding refused a message: the binding names none.
func (c *call) partAtFault() *problem {
	type request struct {
		Message struct {
			Parts []json.RawMessage `json:"parts"`
		} `json:"message"`
	}

	var body struct {
		request
		Params request `json:"params"`
	}

	if c.old && c.rest {
		return nil
	}

	_ = json.Unmarshal(lowerCamel(c.original), &body) // what cannot be read has no parts to look at
	for i, part := range append(body.Params.Message.Parts, body.Message.Parts...) {
		field := "message.parts[" + strconv.Itoa(i) + "]"
		switch {
		case c.old:
			if p := partAtFault03(field, part); p != nil {
				return p
			}
		case json.Unmarshal(part, new(a2a.Part)) != nil:
			return inField(field, "must be an object with exactly one of text, raw (in base64), url and data")
		}
	}

	return nil
}

// partAtFault03 does that for a part of 0.3. In 0.2 parts have the member type in the place of kind.
func partAtFault03(field string, part []byte) *problem {
	var members struct {
		Kind *string         `json:"kind"`
		Type json.RawMessage `json:"type"`
	}
	switch err := json.Unmarshal(part, &members); {
	case err != nil:
		return inField(field, "must be an object with kind text, file or data")
	case members.Kind == nil && members.Type != nil:
		return inField(field+".kind", "is missing; type is its name in version 0.2 of the protocol, which is not spoken here: write kind")
	case members.Kind == nil:
		return inField(field+".kind", "is missing; it must be text, file or data")
	case *members.Kind != "text" && *members.Kind != "file" && *members.Kind != "data":
		return inField(field+".kind", "must be text, file or data")
	}
	return nil
}

// restRefusal is for paths, methods and bodies that the HTTP+JSON binding does not know.
func restRefusal(status int) *problem {
	switch status {
	case http.StatusNotFound:
		return &problem{sentinel: a2a.ErrMethodNotFound, message: "no such operation", http: status}
	case http.StatusMethodNotAllowed:
		return &problem{sentinel: a2a.ErrMethodNotFound, message: "no such operation by this HTTP method", http: status}
	}
	return newProblem(a2a.ErrInvalidParams, "the body or a query parameter does not fit the operation")
}

func (w *answer) writeProblem(p *problem) {
	header := w.Header()
	header.Del("Connection")
	header.Del("X-Accel-Buffering")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Type", w.call.mediaType())

	for _, challenge := range p.authenticate {
		header.Add("WWW-Authenticate", challenge)
	}

	if p.refusal != nil {
		told := *p.refusal
		told.RetryAfter = p.retryAfter
		httpserver.SetRetry(header, &told)
	}

	body := w.call.problemBody(p)
	if w.call.events && p.status(w.call.rest) == http.StatusOK { // clients look at the status first
		header.Set("Content-Type", mimeEvents)
		body = slices.Concat([]byte("data: "), body, []byte("\n"))
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.ResponseWriter.WriteHeader(p.status(w.call.rest))
	_, _ = w.ResponseWriter.Write(body)
}

type rpcAnswer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Error   rpcError        `json:"error"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    []any  `json:"data"`
}

type restAnswer struct {
	Error     restError `json:"error"`
	*rpcError           // in 0.3, whose JavaScript SDK looks for the code of JSON-RPC here
	Type      string    `json:"type,omitempty"` // in 0.3, whose Python SDK looks for the name of its own error here
}

type restError struct {
	Code    int    `json:"code"`
	Status  string `json:"status"`
	Message string `json:"message"`
	Details []any  `json:"details"`
}

// problemBody writes an error for the binding of the call.
func (c *call) problemBody(p *problem) []byte {
	var document any
	if c.rest {
		body := restAnswer{Error: restError{p.status(true), statusName(p), p.Error(), p.details()}}
		if c.old {
			body.rpcError = &rpcError{codes[p.sentinel].rpc, p.Error(), p.details()}
			body.Type = errorName(p)
		}
		document = body
	} else {
		document = rpcAnswer{"2.0", c.answeredID(), rpcError{codes[p.sentinel].rpc, p.Error(), p.details()}}
	}

	var body bytes.Buffer
	if err := json.NewEncoder(&body).Encode(document); err != nil {
		return nil // cannot be: the id was read as JSON, the rest is text and numbers
	}

	return body.Bytes()
}

// errorName is the name of an error as the specification spells it: TASK_NOT_FOUND is TaskNotFoundError.
func errorName(p *problem) string {
	words := strings.Split(strings.TrimSuffix(a2a.ErrorReason(p.sentinel), "_ERROR"), "_")
	for i, word := range words {
		words[i] = word[:1] + strings.ToLower(word[1:])
	}
	return strings.Join(words, "") + "Error"
}

// statusName is the google.rpc.Code of a problem; the HTTP status of a refusal before the protocol decides first.
func statusName(p *problem) string {
	switch p.http {
	case http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	case http.StatusTooManyRequests, http.StatusRequestEntityTooLarge:
		return "RESOURCE_EXHAUSTED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	}
	return codes[p.sentinel].status
}
