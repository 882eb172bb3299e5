package normalized

import (
	"fmt"
	"strings"

	"inbox/internal/fault"
)

// Fold puts the deltas of an agent together to its Response. A text part is open from its begin until part_end or the
// next part; text after that begins a new plain one. Tool calls end by id, in any order. A response delta is the whole
// answer: it replaces what came before, and only another one may follow. The first error stays. Not for concurrent use.
type Fold struct {
	limits   Limits
	response Response
	parts    []Part
	text     strings.Builder // of the last part, while it is open
	open     bool
	calls    map[string]int // running and ended tool calls: index in parts
	texts    int            // bytes of all text parts
	size     int            // bytes of everything
	whole    bool
	err      error
}

// NewFold makes a fold that enforces the limits while the answer grows.
func NewFold(limits Limits) *Fold { return &Fold{limits: limits.orDefault()} }

// Add takes the next delta. Errors are *fault.Fault of kind Malformed or TooLarge.
func (f *Fold) Add(d Delta) error {
	if f.err != nil {
		return f.err
	}
	if broken := f.add(&d); broken != nil {
		f.err = broken
	}
	return f.err
}

func (f *Fold) add(d *Delta) *fault.Fault {
	if f.whole && d.Kind != DeltaResponse {
		return fault.InField("kind", "nothing but another response may follow a response")
	}

	switch d.Kind {
	case DeltaText:
		return f.append(d.Text)
	case DeltaPartBegin:
		return f.begin(d.Part)
	case DeltaPartEnd:
		return f.end()
	case DeltaToolCallStart:
		return f.start(d.Part)
	case DeltaToolCallEnd:
		return f.finish(d.Part)
	case DeltaStatus:
		return f.status(d.Response)
	case DeltaResponse:
		return f.replace(d.Response)
	}

	return fault.InField("kind", "must be part_begin, text, part_end, tool_call_start, tool_call_end, status or response")
}

func (f *Fold) append(text string) *fault.Fault {
	if !f.open {
		if text == "" {
			return nil
		}
		if broken := f.push(Text("")); broken != nil {
			return broken
		}
		f.open = true
	}

	f.texts += len(text)
	f.size += len(text)
	switch {
	case f.text.Len()+len(text) > f.limits.TextPart:
		return tooLarge("text", f.limits.TextPart)
	case f.texts > f.limits.Text:
		return tooLarge("text", f.limits.Text)
	}

	f.text.WriteString(text)
	return nil
}

func (f *Fold) begin(p *Part) *fault.Fault {
	switch {
	case p == nil:
		return fault.InField("part", "is required")
	case p.Kind == PartToolCall:
		return fault.InField("part.kind", "a tool call begins with tool_call_start")
	case p.Kind != PartText:
		return f.push(*p)
	}

	empty := *p
	empty.Content = ""

	if broken := f.push(empty); broken != nil {
		return broken
	}

	f.open = true
	return f.append(p.Content)
}

// push closes the last part and adds another.
func (f *Fold) push(p Part) *fault.Fault {
	f.close()
	if len(f.parts) >= f.limits.Parts {
		return fault.InField("part", fmt.Sprintf("the answer has more than %d parts", f.limits.Parts))
	}
	f.parts = append(f.parts, p)
	return f.grow(partTexts(f.parts[len(f.parts)-1:]) + inlineBytes(f.parts[len(f.parts)-1:]))
}

func (f *Fold) grow(size int) *fault.Fault {
	f.size += size
	if largest := f.limits.documentWithBytes(); f.size > largest {
		return tooLarge("part", largest)
	}
	return nil
}

// close finishes the open text part.
func (f *Fold) close() {
	if f.open {
		f.parts[len(f.parts)-1].Content = f.text.String()
		f.text = strings.Builder{}
		f.open = false
	}
}

func (f *Fold) end() *fault.Fault {
	if len(f.parts) == 0 {
		return fault.InField("kind", "no part was begun")
	}
	f.close()
	return nil
}

// status takes the fields beside the parts; those that are set replace earlier ones.
func (f *Fold) status(r *Response) *fault.Fault {
	switch {
	case r == nil:
		return fault.InField("response", "is required")
	case len(r.Parts) > 0:
		return fault.InField("response.parts", "does not go with a status")
	}

	set(&f.response.InReplyTo, r.InReplyTo)
	set(&f.response.ThreadID, r.ThreadID)
	set(&f.response.Visibility, r.Visibility)
	set(&f.response.Status, r.Status)
	f.response.Silent = f.response.Silent || r.Silent

	if r.To != nil {
		f.response.To = r.To
	}
	if r.Cc != nil {
		f.response.Cc = r.Cc
	}
	if r.Error != nil {
		f.response.Error = r.Error
	}
	if r.Metadata != nil {
		f.response.Metadata = r.Metadata
	}
	if r.Dispatch != nil {
		f.response.Dispatch = r.Dispatch
	}
	if r.unknown != nil {
		f.response.unknown = r.unknown
	}

	return nil
}

func set(target *string, value string) {
	if value != "" {
		*target = value
	}
}

func (f *Fold) replace(r *Response) *fault.Fault {
	if r == nil {
		return fault.InField("response", "is required")
	}

	texts, inline := dispatchBytes(r.Dispatch)
	size := texts + inline + partTexts(r.Parts) + inlineBytes(r.Parts)
	if largest := f.limits.documentWithBytes(); size > largest {
		return tooLarge("response", largest)
	}

	*f = Fold{limits: f.limits, response: *r, parts: r.Parts, whole: true}
	return nil
}

// Snapshot returns the answer as it stands, for a reader who joins in the middle: blank texts are left out, running tool
// calls are in it.
func (f *Fold) Snapshot() Response {
	out := f.response
	if f.whole {
		return out
	}

	out.Parts = make([]Part, 0, len(f.parts))
	for i, p := range f.parts {
		if f.open && i == len(f.parts)-1 {
			p.Content = f.text.String()
		}
		if !p.blank() {
			out.Parts = append(out.Parts, p)
		}
	}

	return out
}

// Response returns the finished answer: open text parts are closed, blank ones left out. It fails with the first error of
// Add, and when a tool call has no outcome although the answer does not wait for input.
func (f *Fold) Response() (Response, error) {
	if f.err != nil {
		return Response{}, f.err
	}

	out := f.Snapshot()
	if f.whole || out.Status == StatusInputRequired {
		return out, nil
	}

	for i := range out.Parts {
		if out.Parts[i].running() {
			at := key(nil, "parts")
			entry := index(&at, i)
			return Response{}, fault.InField(entry.String(), "the tool call "+out.Parts[i].Name+" was started and never ended")
		}
	}

	return out, nil
}

func (f *Fold) start(p *Part) *fault.Fault {
	if broken := f.checkCall(p); broken != nil {
		return broken
	}
	if !p.running() {
		return fault.InField("part", "a tool call starts without result and error")
	}
	if _, known := f.calls[p.ID]; known {
		return fault.InField("part.id", "a tool call with this id was started before")
	}
	if broken := f.push(*p); broken != nil {
		return broken
	}

	if f.calls == nil {
		f.calls = map[string]int{}
	}

	f.calls[p.ID] = len(f.parts) - 1
	return nil
}

func (f *Fold) finish(p *Part) *fault.Fault {
	if broken := f.checkCall(p); broken != nil {
		return broken
	}

	at, known := f.calls[p.ID]
	switch {
	case !known:
		return fault.InField("part.id", "no tool call with this id was started")
	case !f.parts[at].running():
		return fault.InField("part.id", "the tool call with this id has ended before")
	case p.running():
		return fault.InField("part", "a tool call ends with its result or error")
	case p.Name != f.parts[at].Name:
		return fault.InField("part.name", "is not the name with which the tool call started")
	}

	ended := *p
	if !present(ended.Args) {
		ended.Args = f.parts[at].Args
	}

	f.parts[at] = ended
	return f.grow(len(ended.Result))
}

func (f *Fold) checkCall(p *Part) *fault.Fault {
	if p == nil || p.Kind != PartToolCall {
		return fault.InField("part", "must be a tool_call")
	}

	c := checker{limits: f.limits, stop: 1}
	at := key(nil, "part")
	c.toolCall(&at, p)
	if len(c.found) > 0 {
		return c.found[0]
	}
	return nil
}
