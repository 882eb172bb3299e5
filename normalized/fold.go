package normalized

import (
	"slices"
	"strings"

	"inbox/internal/fault"
)

// Fold puts the deltas of an agent together to its Response. A text part is open from its begin until part_end or the
// next part; text after that begins a new plain one. Tool calls end by id, in any order. A response delta is the whole
// answer: it replaces what came before, and only another one may follow. What has no room in the answer is left out, and a text part says
// so. The first error stays. Not for concurrent use.
type Fold struct {
	limits   Limits
	meter    Meter
	response Response
	parts    []Part
	text     strings.Builder // of the text part that was begun last
	at       int             // its index in parts
	gap      bool            // it has not all of its text
	open     bool            // a text part may grow
	absent   bool            // the open part has no room
	calls    map[string]int  // running and ended tool calls: index in parts
	whole    bool
	err      error
}

// NewFold makes a fold that leaves out what is over the limits while the answer grows.
func NewFold(limits Limits) *Fold { return &Fold{limits: limits.orDefault(), meter: NewMeter(limits)} }

// Add is Take for a caller that passes nothing on.
func (f *Fold) Add(d Delta) error {
	_, _, err := f.Take(d)
	return err
}

// Take adds the next delta. It returns as much of it as the answer has room for, and false when that is nothing. Errors are *fault.Fault of
// kind Malformed, and TooLarge for questions to other agents.
func (f *Fold) Take(d Delta) (taken Delta, some bool, err error) {
	if f.err != nil {
		return d, false, f.err
	}
	some, broken := f.add(&d)
	if broken != nil {
		f.err = broken
		return d, false, f.err
	}
	return d, some, nil
}

// Cut says that no more of the answer was read than the deltas so far: tool calls without an outcome are left out.
func (f *Fold) Cut() { f.meter.left.Rest = true }

// Whole reports whether nothing was left out.
func (f *Fold) Whole() bool { return f.meter.left == (Left{}) }

// add takes the delta, and cuts it to what has room.
func (f *Fold) add(d *Delta) (some bool, broken *fault.Fault) {
	if f.whole && d.Kind != DeltaResponse {
		return false, fault.InField("kind", "nothing but another response may follow a response")
	}

	switch d.Kind {
	case DeltaText:
		d.Text = f.append(d.Text)
		return d.Text != "", nil
	case DeltaPartBegin:
		return f.begin(d)
	case DeltaPartEnd:
		return f.end()
	case DeltaToolCallStart:
		return f.start(d)
	case DeltaToolCallEnd:
		return f.finish(d)
	case DeltaStatus:
		return true, f.status(d.Response)
	case DeltaResponse:
		return true, f.replace(d)
	}

	return false, fault.InField("kind", "must be part_begin, text, part_end, tool_call_start, tool_call_end, status or response")
}

func (f *Fold) append(text string) (kept string) {
	if text == "" {
		return ""
	}
	if !f.open {
		text, _ = f.grow(Text(""), text)
	}
	if f.absent {
		f.meter.left.Bytes += len(text)
		return ""
	}
	kept = f.meter.Text(text)
	f.gap = f.gap || len(kept) < len(text)
	f.text.WriteString(kept)
	return kept
}

func (f *Fold) begin(d *Delta) (some bool, broken *fault.Fault) {
	p := d.Part
	switch {
	case p == nil:
		return false, fault.InField("part", "is required")
	case p.Kind == PartToolCall:
		return false, fault.InField("part.kind", "a tool call begins with tool_call_start")
	case p.Kind != PartText:
		return f.push(*p), nil
	}

	begun := *p
	begun.Content = ""
	text, joined := f.grow(begun, p.Content)
	kept := f.append(text)
	if joined {
		*d = Delta{Kind: DeltaText, Text: kept}
		return kept != "", nil
	}
	begun.Content = kept
	d.Part = &begun
	return !f.absent, nil
}

// grow begins a text part with a text, and returns the text. Without room for another part it takes that of the last tool call, because what
// an agent says matters more than what it did. Where there is none it goes on with the last text part, behind an empty line: joined.
func (f *Fold) grow(p Part, text string) (said string, joined bool) {
	f.close()
	f.open, f.absent = true, false
	if f.meter.parts == 0 {
		f.evict()
	}
	if f.meter.Part(&p) {
		f.parts, f.at = append(f.parts, p), len(f.parts)
		f.text, f.gap = strings.Builder{}, false
		return text, false
	}

	f.absent = f.at >= len(f.parts) || !p.OnlyText() || !f.parts[f.at].OnlyText() || f.parts[f.at].MIME != p.MIME || f.gap
	if f.absent {
		return text, false
	}
	f.meter.part = f.limits.TextPart - f.text.Len()
	if !strings.HasPrefix(text, "\n") {
		text = "\n\n" + text
	}
	return text, true
}

// evict leaves out the last tool call that has its outcome.
func (f *Fold) evict() {
	for i := len(f.parts) - 1; i >= 0; i-- {
		if !f.parts[i].Ended() {
			continue
		}
		delete(f.calls, f.parts[i].ID)
		f.parts = slices.Delete(f.parts, i, i+1)
		for id, at := range f.calls {
			if at > i {
				f.calls[id] = at - 1
			}
		}
		if f.at > i {
			f.at--
		}
		f.meter.parts++
		f.meter.left.Calls++
		return
	}
}

// push closes the last part and adds another one if it has room.
func (f *Fold) push(p Part) bool {
	f.close()
	has := f.meter.Part(&p)
	if has {
		f.parts = append(f.parts, p)
	}
	return has
}

// close finishes the open text part.
func (f *Fold) close() {
	if f.open && !f.absent {
		f.parts[f.at].Content = f.text.String()
	}
	f.open, f.absent = false, false
}

func (f *Fold) end() (some bool, broken *fault.Fault) {
	if len(f.parts) == 0 && f.Whole() {
		return false, fault.InField("kind", "no part was begun")
	}
	some = len(f.parts) > 0 && !f.absent
	f.close()
	return some, nil
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

func (f *Fold) replace(d *Delta) *fault.Fault {
	if d.Response == nil {
		return fault.InField("response", "is required")
	}

	if texts, inline := dispatchBytes(d.Response.Dispatch); texts+inline > f.limits.documentWithBytes() {
		return tooLarge("response.dispatch", f.limits.documentWithBytes())
	}
	whole := d.Response.Fit(f.limits, Left{})
	d.Response = &whole
	*f = Fold{limits: f.limits, response: whole, parts: whole.Parts, whole: true}
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
		if f.open && !f.absent && i == f.at {
			p.Content = f.text.String()
		}
		if !p.blank() {
			out.Parts = append(out.Parts, p)
		}
	}

	return out
}

// Response returns the finished answer: open text parts are closed, blank ones left out, and a part says what had no room. It fails with the first error of
// Add, and when a tool call has no outcome although the answer does not wait for input.
func (f *Fold) Response() (Response, error) {
	if f.err != nil {
		return Response{}, f.err
	}

	out, left := f.Snapshot(), f.meter.left
	if f.whole {
		return out, nil
	}
	if left.Rest {
		out.Parts = slices.DeleteFunc(out.Parts, func(p Part) bool {
			if p.running() {
				left.Calls++
			}
			return p.running()
		})
	}
	if left != (Left{}) {
		out = out.Fit(f.limits, left)
	}
	if out.Status == StatusInputRequired {
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

func (f *Fold) start(d *Delta) (some bool, broken *fault.Fault) {
	free := f.meter.tools
	p, broken := f.call(d)
	if broken != nil {
		return false, broken
	}
	if !p.running() {
		return false, fault.InField("part", "a tool call starts without result and error")
	}
	if _, known := f.calls[p.ID]; known {
		return false, fault.InField("part.id", "a tool call with this id was started before")
	}
	if !f.push(*p) {
		f.meter.tools = free
		return false, nil
	}

	if f.calls == nil {
		f.calls = map[string]int{}
	}

	f.calls[p.ID] = len(f.parts) - 1
	return true, nil
}

func (f *Fold) finish(d *Delta) (some bool, broken *fault.Fault) {
	p, broken := f.call(d)
	if broken != nil {
		return false, broken
	}

	at, known := f.calls[p.ID]
	switch {
	case !known && f.meter.left.Calls > 0: // perhaps one of those that had no room
		return false, nil
	case !known:
		return false, fault.InField("part.id", "no tool call with this id was started")
	case !f.parts[at].running():
		return false, fault.InField("part.id", "the tool call with this id has ended before")
	case p.running():
		return false, fault.InField("part", "a tool call ends with its result or error")
	case p.Name != f.parts[at].Name:
		return false, fault.InField("part.name", "is not the name with which the tool call started")
	}

	ended := *p
	if !present(ended.Args) {
		ended.Args = f.parts[at].Args
	}

	f.parts[at] = ended
	return true, nil
}

// call checks the tool call of a delta, and cuts it to what has room.
func (f *Fold) call(d *Delta) (*Part, *fault.Fault) {
	if d.Part == nil || d.Part.Kind != PartToolCall {
		return nil, fault.InField("part", "must be a tool_call")
	}

	fitting := f.meter.call(*d.Part)
	d.Part = &fitting
	c := checker{limits: f.limits, stop: 1}
	at := key(nil, "part")
	c.toolCall(&at, d.Part)
	if len(c.found) > 0 {
		return nil, c.found[0]
	}
	return d.Part, nil
}
