package normalized

import "inbox/policypart"

// AppendJSON appends the message as JSON to dst. It fails only on free-form JSON that is none. encoding/json calls it
// through MarshalJSON and then copies the result once more: where speed counts, call this.
func (m *Message) AppendJSON(dst []byte) ([]byte, error) {
	w := newWriter(dst)
	w.message(m)
	return w.buf, w.err
}

// MarshalJSON writes the message as the contract says: absent optional fields are left out, unknown keys kept.
func (m Message) MarshalJSON() ([]byte, error) { return m.AppendJSON(nil) }

// UnmarshalJSON reads a message that our own store wrote. It keeps unknown keys and checks types, not rules; bytes
// from a peer go through DecodeMessage.
func (m *Message) UnmarshalJSON(data []byte) error {
	r := newReader(data)
	*m = Message{}
	r.message(m)
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

func (r *reader) message(m *Message) {
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
			r.sender(&m.Sender)
		case "recipient":
			m.Recipient = r.string()
		case "parts":
			m.Parts = r.parts()
		case "history":
			m.History = r.history()
		case "recipient_capabilities":
			r.capabilities(&m.RecipientCapabilities)
		case "received_via":
			m.ReceivedVia = r.string()
		case "received_at":
			m.ReceivedAt = r.time()
		case "raw":
			r.original(&m.Raw)
		case "policy_resolution":
			m.PolicyResolution = optional(r, func(p *policypart.Resolution) { r.standard(p) })
		case "received_trace":
			m.ReceivedTrace = optional(r, r.response)
		case "surface":
			m.Surface = optional(r, r.surface)
		default:
			m.unknown.keep(r)
		}
	}
}

func (r *reader) original(raw *Raw) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "ref":
			raw.Ref = r.string()
		case "media_type":
			raw.MediaType = r.string()
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
	w.close('}')
}

func (r *reader) history() (turns []HistoricalMessage) {
	if !r.beginArray() {
		return nil
	}
	for r.element() {
		var h HistoricalMessage
		r.turn(&h)
		turns = append(turns, h)
	}
	return turns
}

func (r *reader) turn(h *HistoricalMessage) {
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
			r.sender(&h.Sender)
		case "parts":
			h.Parts = r.parts()
		case "timestamp":
			h.Timestamp = r.time()
		default:
			r.skip()
		}
	}
}
