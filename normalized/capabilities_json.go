package normalized

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

func (r *reader) capabilities(c *RecipientCapabilities) {
	if !r.beginObject() {
		return
	}
	for r.field() {
		switch string(r.key) {
		case "mention_relay":
			r.relay(&c.MentionRelay)
		case "agent_chain":
			c.AgentChain = optional(r, r.chain)
		case "max_text_bytes":
			c.MaxTextBytes = int(r.integer())
		case "text_mimes":
			c.TextMIMEs = r.strings()
		case "attachments":
			c.Attachments = optional(r, r.attachments)
		case "threads":
			c.Threads = optional(r, r.flag)
		case "edits":
			c.Edits = optional(r, r.flag)
		default:
			r.skip()
		}
	}
}

func (r *reader) flag(value *bool) { *value = r.boolean() }

func (w *writer) relay(m *MentionRelay) {
	w.open('{')
	w.field("kind", m.Kind)
	w.list("fields", m.Fields)
	w.list("envelope_fields", m.EnvelopeFields)
	w.yes("also_inline", m.AlsoInline)
	w.close('}')
}

func (r *reader) relay(m *MentionRelay) {
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

func (r *reader) chain(c *AgentChain) {
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

func (r *reader) attachments(a *AttachmentsCapability) {
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
