package remote

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// A later minor version of the protocol adds events and contents of parts. The SDK fails on both, and with them the whole task; here
// they are left out before it reads them.

// knownAnswer leaves what the SDK does not know out of the body of an answer.
func (w *wire) knownAnswer(response *http.Response, mediaType string) {
	switch mediaType {
	case mimeEvents:
		response.Body = newKnownEvents(response.Body, w.knownEvent)
		response.ContentLength = -1
	case mimeJSON, mimeA2A:
		content, err := io.ReadAll(response.Body)
		body := io.Reader(bytes.NewReader(w.knownDocument(content)))
		if err != nil {
			body = io.MultiReader(bytes.NewReader(content), failing{err})
		}
		response.Body = struct {
			io.Reader
			io.Closer
		}{body, response.Body}
		response.ContentLength = -1
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// knownDocument leaves out parts with unknown content.
func (w *wire) knownDocument(document []byte) []byte {
	if !bytes.Contains(document, []byte(`"parts"`)) || w.partsKnown(document) {
		return document
	}
	return w.withoutUnknownParts(document)
}

// knownEvent is knownDocument for one event of a stream; nil = the SDK knows nothing of it.
func (w *wire) knownEvent(event []byte) []byte {
	result := event
	if !w.peer.rest {
		var answer struct {
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if json.Unmarshal(event, &answer) != nil || answer.Error != nil && string(answer.Error) != "null" {
			return event
		}
		result = answer.Result
	}

	var members map[string]json.RawMessage
	if json.Unmarshal(result, &members) != nil || members["error"] != nil {
		return event
	}
	if !w.isKnown(members) {
		return nil
	}
	return w.knownDocument(event)
}

// isKnown reports whether the members of an event name one that the SDK reads.
func (w *wire) isKnown(members map[string]json.RawMessage) bool {
	if w.peer.old() && !w.peer.rest {
		var kind string
		_ = json.Unmarshal(members["kind"], &kind)
		return slices.Contains([]string{"task", "message", "status-update", "artifact-update"}, kind)
	}
	for _, name := range []string{"task", "message", "msg", "statusUpdate", "artifactUpdate", "status_update", "artifact_update"} {
		if value := members[name]; value != nil && string(value) != "null" {
			return true
		}
	}
	return false
}

// partsKnown reports whether the SDK can read every part of a document.
func (w *wire) partsKnown(document []byte) bool {
	if w.peer.old() {
		return false // told part by part
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
	}
	if !w.peer.rest {
		if json.Unmarshal(document, &answer) != nil {
			return true
		}
		document = answer.Result
	}
	if json.Unmarshal(document, new(a2a.StreamResponse)) == nil {
		return true
	}
	var task a2a.Task // of GetTask
	return json.Unmarshal(document, &task) == nil && task.ID != ""
}

func (w *wire) withoutUnknownParts(document []byte) []byte {
	var whole any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	if decoder.Decode(&whole) != nil || !w.dropParts(whole) {
		return document
	}
	known, err := json.Marshal(whole)
	if err != nil || w.saysNothing(whole) {
		return document
	}
	return known
}

// saysNothing reports whether an answer is a message without any part that is known: that is an answer which cannot be used.
func (w *wire) saysNothing(answer any) bool {
	for _, name := range []string{"result", "message"} {
		members, _ := answer.(map[string]any)
		if member, has := members[name]; has {
			answer = member
		}
	}
	message, _ := answer.(map[string]any)
	parts, has := message["parts"].([]any)
	return has && len(parts) == 0
}

// dropParts leaves the unknown parts out of a value; false = there are none. What agents put into data and metadata is theirs.
func (w *wire) dropParts(value any) (dropped bool) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			dropped = w.dropParts(element) || dropped
		}
	case map[string]any:
		for name, member := range value {
			parts, is := member.([]any)
			switch {
			case name == "data" || name == "metadata":
			case name == "parts" && is:
				kept := slices.DeleteFunc(slices.Clone(parts), func(part any) bool { return !w.knowsPart(part) })
				dropped = dropped || len(kept) < len(parts)
				value[name] = kept
			default:
				dropped = w.dropParts(member) || dropped
			}
		}
	}
	return dropped
}

// knowsPart reports whether the SDK reads a part. A part that is no object stays: it is an error.
func (w *wire) knowsPart(part any) bool {
	members, is := part.(map[string]any)
	if !is {
		return true
	}
	if w.peer.old() && !w.peer.rest {
		return slices.Contains([]any{"text", "file", "data"}, members["kind"])
	}
	return slices.ContainsFunc([]string{"text", "raw", "url", "data", "file"}, func(name string) bool { return members[name] != nil })
}

// knownEvents is a stream of events without those of which the SDK knows nothing, and without comments.
type knownEvents struct {
	source io.Closer
	lines  *bufio.Reader
	known  func(event []byte) []byte

	data  []byte // of the event that grows
	begun bool
	ready []byte // to be read
	err   error

	some    bool   // an event was known
	unknown []byte // the last event, as long as none was known
}

func newKnownEvents(source io.ReadCloser, known func(event []byte) []byte) *knownEvents {
	return &knownEvents{source: source, lines: bufio.NewReader(source), known: known}
}

func (k *knownEvents) Read(into []byte) (int, error) {
	for len(k.ready) == 0 {
		switch {
		case k.err == nil:
			k.next()
		case !k.some && k.unknown != nil: // an answer that cannot be read at all is no stream that was cut
			k.pass(k.unknown)
			k.unknown = nil
		default:
			return 0, k.err
		}
	}
	n := copy(into, k.ready)
	k.ready = k.ready[n:]
	return n, nil
}

// next reads one line. The end of the stream ends its last event.
func (k *knownEvents) next() {
	line, err := k.lines.ReadBytes('\n')
	if k.err = err; err != nil && len(bytes.TrimSpace(line)) == 0 && !k.begun {
		return
	}

	line = bytes.TrimRight(line, "\r\n")
	if data, is := bytes.CutPrefix(line, []byte("data:")); is {
		if k.begun {
			k.data = append(k.data, '\n')
		}
		k.data, k.begun = append(k.data, bytes.TrimPrefix(data, []byte(" "))...), true
	}
	if !k.begun || len(line) > 0 && err == nil {
		return
	}

	switch event := k.known(k.data); {
	case len(bytes.TrimSpace(k.data)) == 0:
	case event != nil:
		k.some = true
		k.pass(event)
	case !k.some:
		k.unknown = bytes.Clone(k.data)
	}
	k.data, k.begun = k.data[:0], false
}

func (k *knownEvents) pass(event []byte) {
	k.ready = append(append(append(k.ready[:0], "data: "...), bytes.ReplaceAll(event, []byte("\n"), []byte("\ndata: "))...), "\n\n"...)
}

// Close ends the request.
func (k *knownEvents) Close() error { return k.source.Close() }
