package normalized

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Left counts what an answer had no room for. An answer that leaves something out has a text part that says so.
type Left struct {
	Calls   int  `json:"tool_calls,omitempty"`
	Sources int  `json:"sources,omitempty"` // citations
	Parts   int  `json:"parts,omitempty"`   // other parts
	Bytes   int  `json:"bytes,omitempty"`   // of texts
	Rest    bool `json:"rest,omitempty"`    // the answer went on beyond what was read
}

// Plus returns both together.
func (l Left) Plus(more Left) Left {
	return Left{l.Calls + more.Calls, l.Sources + more.Sources, l.Parts + more.Parts, l.Bytes + more.Bytes, l.Rest || more.Rest}
}

// sayTooLarge stands in place of an answer of which nothing has room.
const sayTooLarge = "(The answer is too large to be shown.)"

// String returns the line that a reader gets in place of what was left out; empty = nothing was.
func (l Left) String() string {
	var list []string
	one := true
	for _, item := range []struct {
		count int
		name  string
	}{{l.Calls, "tool call"}, {l.Sources, "source"}, {l.Parts, "part"}, {l.Bytes, "byte"}} {
		if item.count == 0 {
			continue
		}
		one = len(list) == 0 && item.count == 1
		name := item.name
		if item.count > 1 {
			name += "s"
		}
		list = append(list, fmt.Sprintf("%d more %s", item.count, name))
	}
	if l.Rest {
		one = len(list) == 0
		list = append(list, "the rest of the answer")
	}
	if len(list) == 0 {
		return ""
	}

	text := list[len(list)-1]
	if before := list[:len(list)-1]; len(before) > 0 {
		text = strings.Join(before, ", ") + " and " + text
	}
	verb := "are"
	if one {
		verb = "is"
	}
	return fmt.Sprintf("(%s%s %s not shown.)", strings.ToUpper(text[:1]), text[1:], verb)
}

// Meter measures the room that an answer has left (message contract, section 1). Code that writes an answer asks the meter before it adds to
// it and leaves out what has no room, so that an answer is never refused for its size after the work is done. Not for concurrent use.
type Meter struct {
	limits Limits
	parts  int // that may be added
	part   int // bytes that the text part that was begun last may grow by
	texts  int // bytes that all text parts may grow by
	tools  int // bytes of tool calls that may be added
	other  int // bytes of everything else, inline bytes included, that may be added
	left   Left
}

// NewMeter returns a meter for an empty answer; zero limits are DefaultLimits.
func NewMeter(limits Limits) Meter {
	limits = limits.orDefault()
	return Meter{
		limits: limits, parts: limits.Parts, texts: limits.Text, tools: limits.Document / 2, other: limits.Document/2 + limits.Parts*base64Size(limits.Inline),
	}
}

// Part reserves room for one more part: that of a tool call for its place, not for its arguments and result. It reports whether there was
// room, and counts the part as left out otherwise. The bytes of a text part are for Text to reserve.
func (m *Meter) Part(part *Part) bool {
	bytes := 0
	if part.Kind != PartToolCall {
		one := []Part{*part}
		bytes = partTexts(one) - len(part.Content) + inlineBytes(one)
	}
	m.part = 0
	if m.parts < 1 || bytes > m.other {
		switch {
		case part.Kind == PartToolCall:
			m.left.Calls++
		case part.Citation != nil:
			m.left.Sources++
		case part.Kind != PartText: // its bytes are counted
			m.left.Parts++
		}
		return false
	}

	m.parts, m.other = m.parts-1, m.other-bytes
	if part.Kind == PartText {
		m.part = m.limits.TextPart
	}
	return true
}

// Text reserves room for more text in the text part that was begun last. It returns the beginning of the text that has room and counts the
// rest as left out. After that the part takes no more text, so that no gap is in the middle of it.
func (m *Meter) Text(text string) string {
	kept := cutBytes(text, max(0, min(m.part, m.texts)))
	m.part, m.texts = m.part-len(kept), m.texts-len(kept)
	if len(kept) < len(text) {
		m.part = 0
		m.left.Bytes += len(text) - len(kept)
	}
	return kept
}

// JSON reserves room for the arguments, the result or the metadata of a tool call. It returns LeftOutJSON for a value that has no room,
// or that is nested deeper than such a value may be.
func (m *Meter) JSON(value json.RawMessage) json.RawMessage {
	if len(value) <= min(m.limits.ToolJSON, m.tools) && (len(value) == 0 || CheckJSON(value, freeDepth) == nil) {
		m.tools -= len(value)
		return value
	}
	return LeftOutJSON(len(value))
}

// LeftOutJSON stands for a JSON value of so many bytes that has no room.
func LeftOutJSON(size int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"original_bytes":%d,"truncated":true}`, size))
}

// call returns a tool call with the arguments, the outcome and the metadata that have room.
func (m *Meter) call(part Part) Part {
	part.Args, part.Result, part.Metadata = m.JSON(part.Args), m.JSON(part.Result), m.JSON(part.Metadata)
	if part.Error != nil {
		part.Error = &ToolError{Message: m.prose(part.Error.Message, m.limits.ToolJSON)}
	}
	return part
}

// prose cuts a text that is not the content of a part.
func (m *Meter) prose(text string, most int) string {
	if len(text) <= most {
		return text
	}
	kept := cutBytes(text, most)
	m.left.Bytes += len(text) - len(kept)
	return kept
}

// fit returns a part as far as it has room; false = it has none.
func (m *Meter) fit(part Part) (Part, bool) {
	limits := &m.limits
	switch part.Kind {
	case PartToolCall:
		part = m.call(part)
	case PartFile, PartArtifact:
		if ref := part.BytesRef; ref != nil && (len(ref.DataBase64) > base64Size(limits.Inline) || len(ref.URL) > limits.ID) {
			m.left.Parts++
			return part, false
		}
		part.Name, part.Alt = m.prose(part.Name, limits.Name), m.prose(part.Alt, limits.TextPart)
	case PartLink:
		if len(part.URL) > limits.ID {
			m.left.Parts++
			return part, false
		}
		part.Title = m.prose(part.Title, limits.TextPart)
	case PartText:
		if len(part.New) > limits.TextPart {
			part.New = ""
		}
	}
	if part.Kind != PartText {
		part.Description = m.prose(part.Description, limits.TextPart)
		return part, m.Part(&part)
	}

	if !m.Part(&part) {
		m.left.Bytes += len(part.Content)
		return part, false
	}
	kept := m.Text(part.Content)
	if kept != part.Content {
		part.Content, part.New = kept, ""
		return part, kept != ""
	}
	return part, true
}

// noteBytes is room for the line that says what was left out.
const noteBytes = 160

// Fit returns the response with what has room in it, and a text part in place of the rest and of what its writer left out before; Left counts
// both. It does not judge the form of an answer: ValidateResponse does.
func (r Response) Fit(limits Limits, left Left) Response {
	limits = limits.orDefault()
	return r.fit(limits, left, limits.Document, false)
}

// FitBytes is Fit for an answer that has at most so many bytes as JSON, inline bytes included.
func (r Response) FitBytes(limits Limits, left Left, most int) Response {
	return r.fit(limits.orDefault(), left, most, true)
}

func (r Response) fit(limits Limits, left Left, most int, inline bool) Response {
	if r.Error != nil && len(r.Error.Message) > limits.TextPart {
		r.Error = &ResponseError{Code: r.Error.Code, Message: cutBytes(r.Error.Message, limits.TextPart)}
	}
	r.Metadata = fitMetadata(r.Metadata, limits.Metadata)
	if r.unknown.size() > most/2 {
		r.unknown = nil
	}
	if r.Silent || len(r.Dispatch) > 0 || left == (Left{}) && r.fits(limits, most, inline) {
		return r
	}

	body := slices.Clone(r.Parts)
	var end []Part
	if r.Policy() != nil { // a demand is the last part, and never left out
		body, end = body[:len(body)-1], r.Parts[len(r.Parts)-1:]
	}
	if len(body)+len(end) >= limits.Parts {
		body = joinTexts(body, limits.TextPart)
	}

	whole := limits
	whole.Parts, whole.Text = len(body), max(0, limits.Text-noteBytes)
	meter := NewMeter(whole)
	meter.left = left
	fitting := body[:0]
	for _, part := range body {
		if part, has := meter.fit(part); has {
			fitting = append(fitting, part)
		}
	}

	list := fitted{parts: fitting, left: meter.left}
	r.Parts = nil
	list.shrink(most-jsonSize(r.AppendJSON, 0)-noteBytes-sizeOf(end, inline), inline)
	room := limits.Parts - len(end)
	if list.left != (Left{}) || len(list.parts) > room {
		room--
	}
	for len(list.parts) > max(0, room) {
		list.drop(list.last())
	}
	if len(list.parts)+len(end) == 0 && list.left != (Left{}) {
		r.Parts = []Part{Text(sayTooLarge)}
	} else {
		r.Parts = append(list.noted(), end...)
	}
	r.Left = r.Left.Plus(list.left)
	return r
}

// Completed returns the response in the form that the message contract demands of an answer to the question: cleaned, with what an agent may
// leave out (Answering), and with what has room in it (Fit). Its error is that of ValidateResponse.
func (r Response) Completed(question Message, limits Limits, left Left) (Response, error) {
	r.Clean()
	r = r.Answering(question).Fit(limits, left)
	return r, ValidateResponse(r, question, limits)
}

// fits reports whether a response keeps all limits of size.
func (r *Response) fits(limits Limits, most int, inline bool) bool {
	if len(r.Parts) > limits.Parts {
		return false
	}

	meter := NewMeter(limits)
	meter.tools, meter.other = limits.Document, limits.documentWithBytes()
	for i := range r.Parts {
		part := &r.Parts[i]
		if _, has := meter.fit(*part); !has || meter.left != (Left{}) || len(part.New) > limits.TextPart ||
			max(len(part.Args), len(part.Result), len(part.Metadata)) > limits.ToolJSON {
			return false
		}
	}

	if !inline && 6*(partTexts(r.Parts)+r.unknown.size()) < most/2 { // JSON writes at most six bytes for one of a text
		return true
	}
	size := jsonSize(r.AppendJSON, 0)
	if !inline {
		size -= inlineBytes(r.Parts)
	}
	return size <= most
}

// fitted are the parts of an answer that is made smaller.
type fitted struct {
	parts []Part
	left  Left
}

// shrink cuts the largest parts, or leaves them out, until all of them have at most so many bytes as JSON.
func (f *fitted) shrink(most int, inline bool) {
	sizes := make([]int, len(f.parts))
	total := 0
	for i := range f.parts {
		sizes[i] = sizeOf(f.parts[i:i+1], inline)
		total += sizes[i]
	}

	for total > most && len(f.parts) > 0 {
		largest := slices.Index(sizes, slices.Max(sizes))
		part := &f.parts[largest]
		switch {
		case sizes[largest] <= 2*noteBytes: // many small ones
			largest = f.last()
			total -= sizes[largest]
			f.drop(largest)
			sizes = slices.Delete(sizes, largest, largest+1)
			continue
		case part.Kind == PartText && part.OnlyText() && len(part.Content) > noteBytes:
			kept := cutBytes(part.Content, len(part.Content)/2)
			f.left.Bytes += len(part.Content) - len(kept)
			part.Content, part.New = kept, ""
		case part.Kind == PartToolCall && len(part.Args)+len(part.Result)+len(part.Metadata) > 2*noteBytes:
			var none Meter
			part.Args, part.Result, part.Metadata = none.JSON(part.Args), none.JSON(part.Result), none.JSON(part.Metadata)
		default:
			total -= sizes[largest]
			f.drop(largest)
			sizes = slices.Delete(sizes, largest, largest+1)
			continue
		}
		total -= sizes[largest]
		sizes[largest] = sizeOf(f.parts[largest:largest+1], inline)
		total += sizes[largest]
	}
}

// last returns the part that is left out first: the last tool call, because what an agent says matters more than what it did.
func (f *fitted) last() int {
	for i, part := range slices.Backward(f.parts) {
		if part.Kind == PartToolCall {
			return i
		}
	}
	return len(f.parts) - 1
}

func (f *fitted) drop(at int) {
	switch part := &f.parts[at]; {
	case part.Kind == PartToolCall:
		f.left.Calls++
	case part.Citation != nil:
		f.left.Sources++
	case part.Kind == PartText:
		f.left.Bytes += len(part.Content)
	default:
		f.left.Parts++
	}
	f.parts = slices.Delete(f.parts, at, at+1)
}

// noted returns the parts with the line about what was left out: after the tool calls if only tool calls were, else at the end.
func (f *fitted) noted() []Part {
	if f.left == (Left{}) {
		return f.parts
	}
	at := len(f.parts)
	if f.left == (Left{Calls: f.left.Calls}) {
		for at > 0 && f.parts[at-1].Kind != PartToolCall {
			at--
		}
	}
	return slices.Insert(f.parts, at, Text(f.left.String()))
}

// joinTexts joins neighbouring texts of one type as far as a text part may grow.
// A text goes on in no other one: what a text in Markdown leaves open ends with it.
func joinTexts(parts []Part, most int) []Part {
	var list []Part
	var texts []string
	size := 0
	room := func(part Part) int {
		if part.MIME != MIMEMarkdown {
			return len("\n\n") + len(part.Content)
		}
		return len("\n\n<!-- -->\n\n") + len(part.Content) + len(closing(part.Content))
	}
	end := func() {
		if len(texts) > 1 {
			joined := strings.Join(texts, "\n\n")
			if list[len(list)-1].MIME == MIMEMarkdown {
				joined = JoinMarkdown(texts)
			}
			list[len(list)-1] = Part{Kind: PartText, MIME: list[len(list)-1].MIME, Content: joined}
		}
		texts = nil
	}
	for _, part := range parts {
		if part.OnlyText() && len(texts) > 0 && list[len(list)-1].MIME == part.MIME && size+room(part) <= most {
			texts, size = append(texts, part.Content), size+room(part)
			continue
		}
		end()
		list = append(list, part)
		if part.OnlyText() {
			texts, size = []string{part.Content}, room(part)
		}
	}
	end()
	return list
}

// leftOutKey is the member of a response's metadata that counts the members without room.
const leftOutKey = "left_out"

// fitMetadata leaves out the members of metadata that have no room, the largest first.
func fitMetadata(metadata map[string]string, most int) map[string]string {
	total := 0
	for name, value := range metadata {
		total += len(name) + len(value)
	}
	if total <= most {
		return metadata
	}

	names := make([]string, 0, len(metadata))
	for name := range metadata {
		names = append(names, name)
	}
	size := func(name string) int { return len(name) + len(metadata[name]) }
	slices.SortFunc(names, func(a, b string) int {
		if size(a) != size(b) {
			return size(a) - size(b)
		}
		return strings.Compare(a, b)
	})
	kept, used := map[string]string{}, len(leftOutKey)+20
	for i, name := range names {
		if used += size(name); used > most {
			kept[leftOutKey] = fmt.Sprint(len(names) - i)
			break
		}
		kept[name] = metadata[name]
	}
	return kept
}

// sizeOf returns the bytes of parts as JSON.
func sizeOf(parts []Part, inline bool) (size int) {
	for i := range parts {
		size += jsonSize(parts[i].AppendJSON, 1)
	}
	if !inline {
		size -= inlineBytes(parts)
	}
	return size
}

// jsonSize measures JSON. What cannot be written is refused by the rules, not by its size.
func jsonSize(appendJSON func([]byte) ([]byte, error), more int) int {
	body, err := appendJSON(nil)
	if err != nil {
		return more
	}
	return len(body) + more
}
