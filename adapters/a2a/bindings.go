package a2a

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/internal/httpserver"
)

const (
	version1  = "1.0"
	version03 = "0.3"
)

// serveRPC hands a JSON-RPC request to the binding of its version.
func (a *Adapter) serveRPC(w http.ResponseWriter, r *http.Request, c *call) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		c.problem.Store(&problem{
			sentinel: a2a.ErrInvalidRequest, message: "JSON-RPC is sent by POST", http: http.StatusMethodNotAllowed,
		})
		return
	}

	method, body, p := c.envelope()
	c.events = readsEvents(r.Header, method)
	if wrong := jsonBody(r); wrong != nil {
		p = wrong
	}
	if p != nil {
		c.problem.Store(p)
		return
	}

	switch version, p := rpcVersion(r, method); {
	case p != nil:
		c.problem.Store(p)
	case version == version03:
		c.old = true
		if body, p = rpcOf03(body); p != nil {
			c.problem.Store(p)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		a.rpc03.ServeHTTP(w, r)
	default:
		r.Body = io.NopCloser(bytes.NewReader(lowerCamel(body)))
		a.rpc1.ServeHTTP(w, r)
	}
}

// streamMethods are the methods of JSON-RPC whose answers are streams, in both versions.
var streamMethods = []string{"SendStreamingMessage", "SubscribeToTask", "message/stream", "tasks/resubscribe"}

// readsEvents reports whether the client of a JSON-RPC request reads its answer as a stream of events, also a refusal: the SDKs look for the
// JSON-RPC error in its events (A2A 1.0, section 9.4.2), and the Go SDK takes any other answer for a stream that ended. A client that
// accepts JSON, too, reads events only from a method that streams.
func readsEvents(header http.Header, method string) bool {
	accepted := strings.ToLower(strings.Join(header.Values("Accept"), ","))
	if !strings.Contains(accepted, mimeEvents) {
		return false
	}
	return slices.Contains(streamMethods, method) || !strings.Contains(accepted, mimeJSON) && !strings.Contains(accepted, "*/*")
}

// envelope is what the edge reads of a JSON-RPC request to choose the version.
type envelope struct {
	Method json.RawMessage `json:"method"`
	ID     json.RawMessage `json:"id"`
	Params presence        `json:"params"`
}

// presence is whether a member is there. Its value, which may be large, is not copied.
type presence bool

// UnmarshalJSON notes that there is a value.
func (p *presence) UnmarshalJSON([]byte) error {
	*p = true
	return nil
}

// envelope reads the method of a request and completes its params, which a request may leave out (JSON-RPC 2.0, section
// 4): the bindings want them.
func (c *call) envelope() (method string, body []byte, p *problem) {
	var request envelope
	err := json.Unmarshal(c.original, &request)
	switch {
	case err != nil && !json.Valid(c.original):
		return "", nil, newProblem(a2a.ErrParseError, "the body is not JSON")
	case err != nil:
		return "", nil, newProblem(a2a.ErrInvalidRequest, "the body must be one JSON-RPC request; batches are not taken")
	case !validID(request.ID):
		return "", nil, newProblem(a2a.ErrInvalidRequest, "id must be a string or a number")
	}

	c.id = request.ID
	if method = plainText(request.Method); method == "" && json.Unmarshal(request.Method, &method) != nil || method == "" {
		return "", nil, notRPC()
	}
	if !request.Params {
		return method, withParams(c.original), nil
	}

	return method, c.original, nil
}

// plainText returns the text of a JSON string without escapes; empty for anything else.
func plainText(value json.RawMessage) string {
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return ""
	}
	return string(value[1 : len(value)-1])
}

func validID(id json.RawMessage) bool {
	if len(id) == 0 {
		return true
	}
	switch id[0] {
	case '"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'n':
		return true
	}
	return false
}

func notRPC() *problem {
	return newProblem(a2a.ErrInvalidRequest, `want a JSON-RPC 2.0 request: jsonrpc "2.0", id, method, params`)
}

// withParams adds empty params to an object that has other members.
func withParams(object []byte) []byte {
	end := bytes.LastIndexByte(object, '}')
	return append(slices.Clip(object[:end]), `,"params":{}}`...)
}

// rpcVersion follows an explicit version. Without one the method name decides: 0.3 clients never send the header and
// their methods have a slash; the strict reading (empty means 0.3) would lock out 1.0 clients that forget it.
func rpcVersion(r *http.Request, method string) (string, *problem) {
	switch version := requested(r); version {
	case version1, version03:
		return version, nil
	case "":
		if strings.Contains(method, "/") {
			return version03, nil
		}
		return version1, nil
	}
	return "", unsupportedVersion("1.0 or 0.3")
}

// requested returns Major.Minor of the A2A-Version header or query parameter; empty when there is none.
func requested(r *http.Request) string {
	version := r.Header.Get(a2a.SvcParamVersion)
	if version == "" && r.URL.RawQuery != "" {
		version = r.URL.Query().Get(a2a.SvcParamVersion)
	}
	pieces := strings.SplitN(strings.TrimSpace(version), ".", 3)
	if len(pieces) == 3 {
		return pieces[0] + "." + pieces[1]
	}
	return strings.Join(pieces, ".")
}

// unsupportedVersion names what is spoken at the address that was asked.
func unsupportedVersion(served string) *problem {
	return newProblem(a2a.ErrVersionNotSupported, "A2A-Version must be "+served+" at this address; the agent's card lists the others")
}

func (a *Adapter) serveREST(w http.ResponseWriter, r *http.Request, c *call) {
	a.rest(w, r, c, a.rest1, version1, "")
}

func (a *Adapter) serveREST03(w http.ResponseWriter, r *http.Request, c *call) {
	a.rest(w, r, c, a.rest03, version03, "/v1")
}

// rest hands a request to an HTTP+JSON binding, which knows the path below the interface's URL only.
func (a *Adapter) rest(w http.ResponseWriter, r *http.Request, c *call, binding http.Handler, version, prefix string) {
	if asked := requested(r); asked != "" && asked != version {
		c.problem.Store(unsupportedVersion(version))
		return
	}

	if len(c.original) > 0 {
		if p := jsonBody(r); p != nil {
			c.problem.Store(p)
			return
		}
	}

	address := *r.URL
	address.Path = prefix + path.Clean("/"+httpserver.Param(r, "*"))
	address.RawPath = ""
	c.old = version == version03
	c.own = !c.old && wantsA2A(r)
	c.plainFiles = c.old && plainFiles(r.Header)
	address.RawQuery = lowerCamelQuery(address.RawQuery)
	body := lowerCamel(c.original)
	if c.old {
		body = wrapHook(encodeFilesJSON(namesOf03(c.original), c.plainFiles))
	}

	r.Body = io.NopCloser(bytes.NewReader(body))
	r.URL = &address
	binding.ServeHTTP(w, r)
}
