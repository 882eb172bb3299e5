package a2a

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"regexp"
	"strings"
)

// What the SDK writes is brought here into the form that the specification or a client wants.

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

// asAsked is an answer, or a piece of a stream, as the caller reads it.
func (c *call) asAsked(body []byte) []byte {
	if c.plainFiles {
		body = decodeFilesJSON(body)
	}
	return inMilliseconds(c.withExactID(body))
}

// withExactID returns a JSON-RPC answer the id that the request had: the SDK reads a number as a float, which rounds large ones,
// and a client that looks for its own would wait for ever (JSON-RPC 2.0, section 5: it must be the same value).
func (c *call) withExactID(body []byte) []byte {
	var number float64
	if len(c.id) == 0 || json.Unmarshal(c.id, &number) != nil {
		return body
	}
	rounded, err := json.Marshal(number)
	if err != nil || bytes.Equal(rounded, c.id) {
		return body
	}
	const head = `{"jsonrpc":"2.0","id":`
	return bytes.Replace(body, []byte(head+string(rounded)+","), []byte(head+string(c.id)+","), 1)
}

const mimeA2A = "application/a2a+json"

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
