package normalized

// AppendJSON appends the response as JSON to dst, see Message.AppendJSON.
func (r *Response) AppendJSON(dst []byte) ([]byte, error) {
	w := newWriter(dst)
	w.response(r)
	return w.buf, w.err
}

// MarshalJSON writes the response as the contract says: absent optional fields are left out, unknown keys kept.
func (r Response) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil) }

// UnmarshalJSON reads a response that our own store wrote; bytes from an agent outside go through DecodeResponse.
func (r *Response) UnmarshalJSON(data []byte) error {
	in := newReader(data)
	*r = Response{}
	readResponse(in, r)
	return in.end()
}

// Equal reports whether two responses are the same document.
func (r Response) Equal(other Response) bool {
	return sameDocument(r.AppendJSON, other.AppendJSON)
}

func (w *writer) response(r *Response) {
	w.open('{')
	w.optional("in_reply_to", r.InReplyTo)
	w.optional("thread_id", r.ThreadID)

	if len(r.Parts) > 0 {
		w.name("parts")
		w.parts(r.Parts)
	}

	w.yes("silent", r.Silent)
	w.list("to", r.To)
	w.list("cc", r.Cc)
	w.optional("visibility", r.Visibility)
	w.optional("status", r.Status)

	if r.Error != nil {
		w.name("error")
		w.open('{')
		w.field("code", r.Error.Code)
		w.field("message", r.Error.Message)
		w.close('}')
	}

	w.textMap("metadata", r.Metadata)
	w.dispatches(r.Dispatch)
	w.unknown(r.unknown)
	w.close('}')
}

func readResponse(r *reader, out *Response) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "in_reply_to":
			out.InReplyTo = r.string()
		case "thread_id":
			out.ThreadID = r.string()
		case "parts":
			out.Parts = readParts(r)
		case "silent":
			out.Silent = r.boolean()
		case "to":
			out.To = r.strings()
		case "cc":
			out.Cc = r.strings()
		case "visibility":
			out.Visibility = r.string()
		case "status":
			out.Status = r.string()
		case "error":
			out.Error = optional(r, readFailure)
		case "metadata":
			out.Metadata = readTextMap(r)
		case "dispatch":
			out.Dispatch = readDispatches(r)
		default:
			out.unknown.keep(r)
		}
	}
}

func readFailure(r *reader, e *ResponseError) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "code":
			e.Code = r.string()
		case "message":
			e.Message = r.string()
		default:
			r.skip()
		}
	}
}

func readTextMap(r *reader) (values map[string]string) {
	if !r.beginObject() {
		return nil
	}

	for r.field() {
		if values == nil {
			values = map[string]string{}
		}
		key := string(r.key)
		values[key] = r.string()
	}
	return values
}

// AppendJSON appends the delta as JSON to dst, see Message.AppendJSON.
func (d *Delta) AppendJSON(dst []byte) ([]byte, error) {
	w := newWriter(dst)
	w.open('{')
	w.field("kind", d.Kind)
	w.optional("text", d.Text)

	if d.Part != nil {
		w.name("part")
		w.part(d.Part)
	}

	if d.Response != nil {
		w.name("response")
		w.response(d.Response)
	}

	w.close('}')
	return w.buf, w.err
}

// MarshalJSON writes the delta as the contract says.
func (d Delta) MarshalJSON() ([]byte, error) { return d.AppendJSON(nil) }

// UnmarshalJSON reads a delta that our own store wrote; bytes from an agent outside go through DecodeDelta.
func (d *Delta) UnmarshalJSON(data []byte) error {
	r := newReader(data)
	*d = Delta{}
	readDelta(r, d)
	return r.end()
}

func readDelta(r *reader, d *Delta) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "kind":
			d.Kind = r.string()
		case "text":
			d.Text = r.string()
		case "part":
			d.Part = optional(r, readPart)
		case "response":
			d.Response = optional(r, readResponse)
		default:
			r.skip()
		}
	}
}

func (w *writer) capabilities(c *RecipientCapabilities) {
	w.open('{')
	w.name("mention_relay")
	w.relay(&c.MentionRelay)

	if c.AgentChain != nil {
		w.name("agent_chain")
		w.chain(c.AgentChain)
	}

	w.positive("max_text_bytes", int64(c.MaxTextBytes))
	w.list("text_mimes", c.TextMIMEs)

	if c.Attachments != nil {
		w.name("attachments")
		w.attachments(c.Attachments)
	}

	w.optionalBoolean("threads", c.Threads)
	w.optionalBoolean("edits", c.Edits)
	w.close('}')
}

func (w *writer) optionalBoolean(key string, value *bool) {
	if value != nil {
		w.boolean(key, *value)
	}
}

func readCapabilities(r *reader, c *RecipientCapabilities) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "mention_relay":
			readRelay(r, &c.MentionRelay)
		case "agent_chain":
			c.AgentChain = optional(r, readChain)
		case "max_text_bytes":
			c.MaxTextBytes = int(r.integer())
		case "text_mimes":
			c.TextMIMEs = r.strings()
		case "attachments":
			c.Attachments = optional(r, readAttachments)
		case "threads":
			c.Threads = optional(r, readFlag)
		case "edits":
			c.Edits = optional(r, readFlag)
		default:
			r.skip()
		}
	}
}

func readFlag(r *reader, value *bool) { *value = r.boolean() }

func (w *writer) relay(m *MentionRelay) {
	w.open('{')
	w.field("kind", m.Kind)
	w.list("fields", m.Fields)
	w.list("envelope_fields", m.EnvelopeFields)
	w.yes("also_inline", m.AlsoInline)
	w.close('}')
}

func readRelay(r *reader, m *MentionRelay) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "kind":
			m.Kind = r.string()
		case "fields":
			m.Fields = r.strings()
		case "envelope_fields":
			m.EnvelopeFields = r.strings()
		case "also_inline":
			m.AlsoInline = r.boolean()
		default:
			r.skip()
		}
	}
}

func (w *writer) chain(c *AgentChain) {
	w.open('{')
	w.integer("hop", int64(c.Hop))
	w.integer("max_hops", int64(c.MaxHops))
	w.boolean("is_final", c.IsFinal)
	w.close('}')
}

func readChain(r *reader, c *AgentChain) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "hop":
			c.Hop = int(r.integer())
		case "max_hops":
			c.MaxHops = int(r.integer())
		case "is_final":
			c.IsFinal = r.boolean()
		default:
			r.skip()
		}
	}
}

func (w *writer) attachments(a *AttachmentsCapability) {
	w.open('{')
	w.positive("max_count", int64(a.MaxCount))
	w.positive("max_bytes", a.MaxBytes)
	w.list("mimes", a.MIMEs)
	w.close('}')
}

func readAttachments(r *reader, a *AttachmentsCapability) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "max_count":
			a.MaxCount = int(r.integer())
		case "max_bytes":
			a.MaxBytes = r.integer()
		case "mimes":
			a.MIMEs = r.strings()
		default:
			r.skip()
		}
	}
}
