package llm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/normalized"
)

// maxEventBytes bounds one event of a stream: some servers send all arguments of a call in one.
const maxEventBytes = 4 << 20

var errEventTooLarge = errors.New("an event of the stream is over 4 MiB")

// event is one server-sent event: its name and its data lines, joined by line feeds. Both are valid until the next one.
type event struct {
	name string
	data []byte
	cut  bool // the stream ended inside of it
}

// fault returns the error about an event: half an event is no nonsense, its other half is missing.
func (e event) fault(err error) error {
	if broken, is := errors.AsType[*json.SyntaxError](err); is && e.cut && broken.Offset >= int64(len(e.data)) {
		return errStreamCut
	}
	return err
}

// eventReader reads server-sent events (WHATWG HTML, section 9.2.6). Comments and the fields other than event and data
// are skipped. An event that the end of the stream cuts off counts: what it says is checked by who reads it, and some
// servers end without the empty line.
type eventReader struct {
	source  *bufio.Reader
	begun   bool
	afterCR bool // a line feed that follows belongs to the line end before
	size    int  // bytes of the current event
	row     []byte
	data    []byte
}

func newEventReader(source io.Reader) *eventReader {
	return &eventReader{source: bufio.NewReaderSize(source, 2048)}
}

// next returns the next event that has data, or the error of the source; io.EOF at its end.
func (r *eventReader) next() (event, error) {
	name, has := "", false
	r.data, r.size = r.data[:0], 0

	for {
		err := r.line()
		if err != nil && len(r.row) == 0 {
			if errors.Is(err, io.EOF) && has {
				return event{name, r.data, true}, nil
			}
			return event{}, err
		}
		if len(r.row) == 0 {
			if has {
				return event{name, r.data, false}, nil
			}
			name, r.size = "", 0
			continue
		}

		switch field, value := splitField(r.row); string(field) {
		case "event":
			name = string(value)
		case "data":
			if has {
				r.data = append(r.data, '\n')
			}
			r.data, has = append(r.data, value...), true
		case "": // a comment keeps the line alive and may come for hours
			if !has {
				r.size = 0
			}
		}
	}
}

// splitField returns name and value of a line; the name of a comment is empty.
func splitField(line []byte) (name, value []byte) {
	name, value, _ = bytes.Cut(line, []byte(":"))
	return name, bytes.TrimPrefix(value, []byte(" "))
}

// line reads the next line without its end, which is LF, CR LF or CR, into row. It never reads past a CR, because what
// follows may be minutes away. At the end of the source row holds what is left.
func (r *eventReader) line() error {
	r.row = r.row[:0]
	for {
		char, err := r.source.ReadByte()
		if err != nil {
			return err
		}

		lineFeedOfPair := r.afterCR && char == '\n'
		r.afterCR = char == '\r'
		switch {
		case lineFeedOfPair:
			continue
		case char == '\n' || char == '\r':
			if !r.begun {
				r.begun = true
				r.row = bytes.TrimPrefix(r.row, []byte("\ufeff"))
			}
			return nil
		}

		if r.size++; r.size > maxEventBytes {
			r.row = r.row[:0]
			return errEventTooLarge
		}

		r.row = append(r.row, char)
	}
}

// maxToolParts is how many tool calls an answer shows: a few parts stay free for what it says.
const maxToolParts = 56

// answer streams what grows, and knows what the fold of it is so far.
type answer struct {
	yield   func(normalized.Delta, error) bool
	enough  context.CancelCauseFunc
	limits  normalized.Limits
	meter   normalized.Meter // of what is in the stream
	stopped bool             // no more is wanted: yield must not be called again

	parts   []normalized.Part
	open    bool // the last part is a text that grows
	unbegun bool // the growing text is not in the stream
	muted   bool // the rest of the growing text is not in the stream
	hidden  bool // something is not in the stream: the final response replaces it
	buffer  strings.Builder
	calls   map[string]int  // id → place of the tool call
	unseen  map[string]bool // ids of the tool calls that are not in the stream
	left    map[string]bool // ids of the tool calls for which the answer has no room
}

func (a *answer) emit(delta normalized.Delta) {
	if a.stopped {
		return
	}
	if !a.yield(delta, nil) {
		a.stopped = true
		a.enough(errEnough)
	}
}

// text appends to the growing text, or begins one.
func (a *answer) text(piece string) {
	if !a.open && strings.TrimSpace(piece) == "" {
		return // an answer does not begin with white space
	}

	if !a.open {
		a.open = true
		a.buffer.Reset()
		a.parts = append(a.parts, normalized.Markdown(""))
		begun := normalized.Markdown("")
		a.unbegun = !a.meter.Part(&begun)
		a.muted = a.unbegun
		if !a.unbegun {
			a.emit(normalized.Delta{Kind: normalized.DeltaPartBegin, Part: &begun})
		}
	}

	a.buffer.WriteString(piece)
	if a.muted || a.meter.Text(piece) != piece {
		a.muted, a.hidden = true, true
		return
	}
	a.emit(normalized.Delta{Kind: normalized.DeltaText, Text: piece})
}

// end closes the growing text.
func (a *answer) end() {
	if a.open {
		a.open = false
		a.parts[len(a.parts)-1].Content = a.buffer.String()
		if !a.unbegun {
			a.emit(normalized.Delta{Kind: normalized.DeltaPartEnd})
		}
	}
}

// begin shows a tool call. Parameters are those that may be shown.
func (a *answer) begin(id, name string, parameters any) {
	a.end()
	if !a.writable(name) {
		name = ToolName(name)
	}
	if _, again := a.calls[id]; again || a.left[id] {
		return
	}
	if len(a.calls) >= min(maxToolParts, a.limits.Parts) {
		if a.left == nil {
			a.left = map[string]bool{}
		}
		a.left[id], a.hidden = true, true
		return
	}

	if a.calls == nil {
		a.calls, a.unseen = map[string]int{}, map[string]bool{}
	}

	part := normalized.Part{Kind: normalized.PartToolCall, ID: id, Name: name, Args: a.bounded(parameters)}
	a.calls[id] = len(a.parts)
	a.parts = append(a.parts, part)
	if !a.meter.Part(&part) {
		a.unseen[id], a.hidden = true, true
		return
	}
	a.emit(normalized.Delta{Kind: normalized.DeltaToolCallStart, Part: &part})
}

// writable reports whether an answer may have a tool call of this name. A model may write any name.
func (a *answer) writable(name string) bool {
	return len(name) <= a.limits.Name && utf8.ValidString(name) && strings.IndexFunc(name, unicode.IsControl) < 0
}

// finish shows the outcome of a tool call, without what looks like a secret.
func (a *answer) finish(id string, result map[string]any) {
	at, shown := a.calls[id]
	if !shown || a.parts[at].Result != nil || a.parts[at].Error != nil {
		return
	}

	part := a.parts[at]
	if succeeded(result) {
		part.Result = a.bounded(tool.RedactParameters(map[string]any{"": result["result"]}, nil)[""])
		part.Metadata = a.cited(result)
	} else {
		part.Error = &normalized.ToolError{Message: firstRunes(value.Text(result["error"]), 2000)}
	}

	a.parts[at] = part
	if !a.unseen[id] {
		a.emit(normalized.Delta{Kind: normalized.DeltaToolCallEnd, Part: &part})
	}
}

// cited are the citations of a result beside it; nil without any.
func (a *answer) cited(result map[string]any) json.RawMessage {
	citations := citationsOf(result)
	if len(citations) == 0 {
		return nil
	}
	return a.bounded(map[string]any{tool.CitationsKey: citations})
}

// citationsOf are the citations of a normalized result. The metadata of one that came from a store may be of any form.
func citationsOf(result map[string]any) []any {
	return envelope.Citations(value.Assoc(result["metadata"])[tool.CitationsKey])
}

func succeeded(result map[string]any) bool { return marked(result, "success") }

// marked reports whether a member of an object is true.
func marked(object map[string]any, name string) bool {
	yes, _ := object[name].(bool)
	return yes
}

// bounded writes a value that fits into a tool call.
func (a *answer) bounded(given any) json.RawMessage {
	return a.meter.JSON(json.RawMessage(value.EncodeText(given)))
}

func firstRunes(text string, most int) string {
	text = strings.ToValidUTF8(text, "�")
	if strings.TrimSpace(text) == "" {
		return "The tool failed."
	}
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + " …"
	}
	return text
}

// replay shows the calls of an earlier run of the same turn.
func (a *answer) replay(transcript []envelope.Envelope, tools tool.Declarations) {
	for _, message := range transcript {
		switch message.Type {
		case envelope.TypeToolCall:
			a.begin(message.ToolCallID(), tools.Resolve(message.ToolName()), message.Payload["parameters"])
		case envelope.TypeToolResult:
			if message.Payload["status"] == nil {
				a.finish(message.ToolCallID(), message.Payload)
			}
		}
	}
}

// close ends the answer with its text. What was streamed stands if it is the same; otherwise, as when the model thought
// aloud before it called a tool, the whole answer replaces it.
func (a *answer) close(response normalized.Response, text string) {
	a.end()
	var wanted []normalized.Part
	same := true
	for _, part := range a.parts {
		if part.Kind == normalized.PartToolCall && (part.Result != nil || part.Error != nil || response.Status == normalized.StatusInputRequired) {
			wanted = append(wanted, part)
		} else if part.Kind == normalized.PartToolCall {
			same = false
		}
	}

	var said []normalized.Part
	if text != "" {
		said = append(said, normalized.Markdown(text))
	}
	said = append(said, response.Parts...)

	if same && !a.hidden && len(response.Parts) == 0 && sameTexts(a.parts, text) {
		response.Parts = nil
		a.emit(normalized.Delta{Kind: normalized.DeltaStatus, Response: &response})
		return
	}

	response.Parts = slices.Concat(wanted, said)
	response = response.Fit(a.limits, normalized.Left{Calls: len(a.left)})
	a.emit(normalized.Delta{Kind: normalized.DeltaResponse, Response: &response})
}

// sameTexts reports whether the one text that was streamed is the wanted one and stands last.
func sameTexts(parts []normalized.Part, text string) bool {
	for i, part := range parts {
		if part.Kind == normalized.PartText && (i < len(parts)-1 || strings.TrimSpace(part.Content) != strings.TrimSpace(text)) {
			return false
		}
	}
	return text == "" || len(parts) > 0 && parts[len(parts)-1].Kind == normalized.PartText
}
