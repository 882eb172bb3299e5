package normalized

import (
	"bytes"
	"encoding/json"
	"slices"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/policypart"
)

// DecodeMessage reads a message from outside: its size is checked before it is parsed, then nesting, that no key comes
// twice, UTF-8 and the type of every field. Rules are checked by Validate. Errors are *fault.Fault of kind Malformed or
// TooLarge with the path of the field.
func DecodeMessage(data []byte, limits Limits) (Message, error) {
	var m Message
	err := decodeStrict(data, limits, false, func(r *reader) { readMessage(r, &m) })
	return m, err
}

// DecodeResponse is DecodeMessage for the answer of an agent outside; ValidateResponse checks its rules.
func DecodeResponse(data []byte, limits Limits) (Response, error) {
	var out Response
	err := decodeStrict(data, limits, true, func(r *reader) { readResponse(r, &out) })
	return out, err
}

// DecodeDelta is DecodeMessage for one step of a streamed answer; Fold checks its rules.
func DecodeDelta(data []byte, limits Limits) (Delta, error) {
	var d Delta
	err := decodeStrict(data, limits, true, func(r *reader) { readDelta(r, &d) })
	return d, err
}

func decodeStrict(data []byte, limits Limits, answer bool, read func(*reader)) error {
	limits = limits.orDefault()
	if answer { // RFC 8259, section 8.1, permits to ignore a byte order mark
		data = bytes.TrimPrefix(data, []byte("\ufeff"))
	}
	if largest := limits.documentWithBytes(); len(data) > largest {
		return fault.Newf(fault.TooLarge, "the document is over %d bytes", largest)
	}
	if err := checkJSON(data, limits.Depth, answer); err != nil {
		return err
	}

	r := newReader(mended(data))
	r.complete = answer
	if r.peek() != '{' {
		return fault.New(fault.Malformed, "the document must be an object")
	}

	read(r)
	return r.end()
}

// CheckJSON reports whether data is one JSON value that nests no deeper than depth, is valid UTF-8 (also behind \u
// escapes) and has no duplicate key in one object, where two readers could understand two different documents (RFC 8259,
// section 4). Errors are *fault.Fault of kind Malformed.
func CheckJSON(data []byte, depth int) error { return checkJSON(data, depth, false) }

func checkJSON(data []byte, depth int, answer bool) error {
	r := newReader(data)
	r.strict, r.answer, r.depth = true, answer, min(depth, maxDepth)
	r.skip()
	return r.end()
}

// freeDepth leaves room for the document around a free-form value inside Limits.Depth.
const freeDepth = 32

// AppendJSON appends the message as JSON to dst. It fails only on free-form JSON that is none. encoding/json calls it
// through MarshalJSON and then copies the result once more: where speed counts, call this.
func (m *Message) AppendJSON(dst []byte) ([]byte, error) {
	w := newWriter(slices.Grow(dst, m.sizeHint()))
	w.message(m)
	return w.buf, w.err
}

// sizeHint is about the length of the message as JSON, so that its bytes are not copied while they grow.
func (m *Message) sizeHint() int {
	size := 2048
	for i := range m.Parts {
		p := &m.Parts[i]
		size += 128 + len(p.Content) + len(p.Content)/16 + len(p.New) + len(p.Args) + len(p.Result) + len(p.Metadata)
		if p.BytesRef != nil {
			size += len(p.BytesRef.DataBase64)
		}
	}
	return size
}

// MarshalJSON writes the message as the contract says: absent optional fields are left out, unknown keys kept.
func (m Message) MarshalJSON() ([]byte, error) { return m.AppendJSON(nil) }

// UnmarshalJSON reads a message that our own store wrote. It keeps unknown keys and checks types, not rules; bytes
// from a peer go through DecodeMessage.
func (m *Message) UnmarshalJSON(data []byte) error {
	r := newReader(data)
	*m = Message{}
	readMessage(r, m)
	return r.end()
}

// Equal reports whether two messages are the same document.
func (m Message) Equal(other Message) bool {
	return sameDocument(m.AppendJSON, other.AppendJSON)
}

func (w *writer) message(m *Message) {
	w.open('{')
	w.field("id", m.ID)
	w.field("thread_id", m.ThreadID)
	w.optional("in_reply_to", m.InReplyTo)
	w.name("sender")
	w.sender(&m.Sender)
	w.field("recipient", m.Recipient)
	w.name("parts")
	w.parts(m.Parts)
	w.history(m.History)
	w.name("recipient_capabilities")
	w.capabilities(&m.RecipientCapabilities)
	w.field("received_via", m.ReceivedVia)
	w.time("received_at", m.ReceivedAt)
	w.name("raw")
	w.open('{')
	w.field("ref", m.Raw.Ref)
	w.field("media_type", m.Raw.MediaType)
	w.optional("url", m.Raw.URL)
	w.close('}')

	if m.PolicyResolution != nil {
		w.standard("policy_resolution", m.PolicyResolution)
	}

	if m.ReceivedTrace != nil {
		w.name("received_trace")
		w.response(m.ReceivedTrace)
	}

	if m.Surface != nil {
		w.name("surface")
		w.surface(m.Surface)
	}

	w.unknown(m.unknown)
	w.close('}')
}

func readMessage(r *reader, m *Message) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "id":
			m.ID = r.string()
		case "thread_id":
			m.ThreadID = r.string()
		case "in_reply_to":
			m.InReplyTo = r.string()
		case "sender":
			readSender(r, &m.Sender)
		case "recipient":
			m.Recipient = r.string()
		case "parts":
			m.Parts = readParts(r)
		case "history":
			m.History = readHistory(r)
		case "recipient_capabilities":
			readCapabilities(r, &m.RecipientCapabilities)
		case "received_via":
			m.ReceivedVia = r.string()
		case "received_at":
			m.ReceivedAt = r.time()
		case "raw":
			readOriginal(r, &m.Raw)
		case "policy_resolution":
			m.PolicyResolution = optional(r, func(r *reader, p *policypart.Resolution) { r.standard(p) })
		case "received_trace":
			m.ReceivedTrace = optional(r, readResponse)
		case "surface":
			m.Surface = optional(r, readSurface)
		default:
			m.unknown.keep(r)
		}
	}
}

func readOriginal(r *reader, raw *Raw) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "ref":
			raw.Ref = r.string()
		case "media_type":
			raw.MediaType = r.string()
		case "url":
			raw.URL = r.string()
		default:
			r.skip()
		}
	}
}

func (w *writer) history(turns []HistoricalMessage) {
	if len(turns) == 0 {
		return
	}
	w.name("history")
	w.open('[')
	for i := range turns {
		w.turn(&turns[i])
	}
	w.close(']')
}

func (w *writer) turn(h *HistoricalMessage) {
	w.open('{')
	w.optional("id", h.ID)
	w.field("role", h.Role)
	w.name("sender")
	w.sender(&h.Sender)
	w.name("parts")
	w.parts(h.Parts)
	w.time("timestamp", h.Timestamp)

	if len(h.Segments) > 0 {
		w.name("segments")
		w.open('[')
		for i := range h.Segments {
			w.segment(&h.Segments[i])
		}
		w.close(']')
	}

	w.close('}')
}

func (w *writer) segment(s *Segment) {
	w.open('{')
	w.optional("id", s.ID)
	w.name("sender")
	w.sender(&s.Sender)
	w.name("parts")
	w.parts(s.Parts)
	w.time("timestamp", s.Timestamp)
	w.close('}')
}

func readHistory(r *reader) (turns []HistoricalMessage) {
	if !r.beginArray() {
		return nil
	}
	for r.element() {
		var h HistoricalMessage
		readTurn(r, &h)
		turns = append(turns, h)
	}
	return turns
}

func readTurn(r *reader, h *HistoricalMessage) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "id":
			h.ID = r.string()
		case "role":
			h.Role = r.string()
		case "sender":
			readSender(r, &h.Sender)
		case "parts":
			h.Parts = readParts(r)
		case "timestamp":
			h.Timestamp = r.time()
		case "segments":
			h.Segments = readSegments(r)
		default:
			r.skip()
		}
	}
}

func readSegments(r *reader) (segments []Segment) {
	if !r.beginArray() {
		return nil
	}
	for r.element() {
		var s Segment
		readSegment(r, &s)
		segments = append(segments, s)
	}
	return segments
}

func readSegment(r *reader, s *Segment) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "id":
			s.ID = r.string()
		case "sender":
			readSender(r, &s.Sender)
		case "parts":
			s.Parts = readParts(r)
		case "timestamp":
			s.Timestamp = r.time()
		default:
			r.skip()
		}
	}
}

func (w *writer) sender(s *Sender) {
	w.open('{')
	w.field("address", s.Address.String())
	w.optional("display_name", s.DisplayName)

	if s.Profile != nil {
		w.name("profile")
		w.profile(s.Profile)
	}

	w.field("auth_method", s.AuthMethod)
	w.boolean("verified", s.Verified)
	w.optional("key_id", s.KeyID)

	if len(s.Identities) > 0 {
		w.name("identities")
		w.open('[')
		for i := range s.Identities {
			w.evidence(&s.Identities[i])
		}
		w.close(']')
	}

	w.optional("carried_by", s.CarriedBy.String())
	w.close('}')
}

func readSender(r *reader, s *Sender) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "address":
			s.Address = identity.Stated(r.string())
		case "display_name":
			s.DisplayName = r.string()
		case "profile":
			s.Profile = optional(r, readProfile)
		case "auth_method":
			s.AuthMethod = r.string()
		case "verified":
			s.Verified = r.boolean()
		case "key_id":
			s.KeyID = r.string()
		case "identities":
			s.Identities = readIdentities(r)
		case "carried_by":
			s.CarriedBy = identity.Stated(r.string())
		default:
			r.skip()
		}
	}
}

func (w *writer) profile(p *SenderProfile) {
	w.open('{')
	w.optional("display_name", p.DisplayName)
	w.optional("username", p.Username)
	w.optional("url", p.URL)

	if p.Avatar != nil {
		w.name("avatar")
		w.image(p.Avatar)
	}

	w.optional("locale", p.Locale)
	w.optional("timezone", p.Timezone)
	w.optional("provider", p.Provider)
	w.optional("provider_subject", p.ProviderSubject)
	w.optionalTime("fetched_at", p.FetchedAt)
	w.rawMap("extensions", p.Extensions)
	w.close('}')
}

func readProfile(r *reader, p *SenderProfile) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "display_name":
			p.DisplayName = r.string()
		case "username":
			p.Username = r.string()
		case "url":
			p.URL = r.string()
		case "avatar":
			p.Avatar = optional(r, readImage)
		case "locale":
			p.Locale = r.string()
		case "timezone":
			p.Timezone = r.string()
		case "provider":
			p.Provider = r.string()
		case "provider_subject":
			p.ProviderSubject = r.string()
		case "fetched_at":
			p.FetchedAt = optional(r, readInstant)
		case "extensions":
			p.Extensions = readRawMap(r)
		default:
			r.skip()
		}
	}
}

func (w *writer) image(i *Image) {
	w.open('{')
	w.field("url", i.URL)
	w.optional("mime_type", i.MIMEType)
	w.positive("width", int64(i.Width))
	w.positive("height", int64(i.Height))
	w.close('}')
}

func readImage(r *reader, i *Image) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "url":
			i.URL = r.string()
		case "mime_type":
			i.MIMEType = r.string()
		case "width":
			i.Width = int(r.integer())
		case "height":
			i.Height = int(r.integer())
		default:
			r.skip()
		}
	}
}

func readInstant(r *reader, t *identity.Time) { *t = r.time() }

// readRawMap reads an object of free-form values; members that are null count as absent.
func readRawMap(r *reader) (values map[string]json.RawMessage) {
	if !r.beginObject() {
		return nil
	}

	for r.field() {
		if len(values) >= maxUnknownKeys {
			r.fail("is one key too many")
		}

		key := string(r.key)
		value := r.raw()
		if value == nil {
			continue
		}

		if values == nil {
			values = map[string]json.RawMessage{}
		}
		values[key] = value
	}

	return values
}
