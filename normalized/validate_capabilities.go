package normalized

import "inbox/internal/fault"

func (c *checker) capabilities(r *RecipientCapabilities) {
	at := key(nil, "recipient_capabilities")
	relay := key(&at, "mention_relay")
	c.relay(&relay, &r.MentionRelay)
	if r.AgentChain != nil {
		chain := key(&at, "agent_chain")
		c.chain(&chain, r.AgentChain)
	}
	c.natural(&at, "max_text_bytes", int64(r.MaxTextBytes))
	for i, mime := range r.TextMIMEs {
		if !isTextMIME(mime) {
			list := key(&at, "text_mimes")
			entry := index(&list, i)
			c.broken(&entry, textMIMERule)
		}
	}
	if r.Attachments != nil {
		attachments := key(&at, "attachments")
		c.natural(&attachments, "max_count", int64(r.Attachments.MaxCount))
		c.natural(&attachments, "max_bytes", r.Attachments.MaxBytes)
	}
}

func (c *checker) relay(at *place, m *MentionRelay) {
	c.oneOf(at, "kind", m.Kind, RelayInline, RelayRecipientField, RelayAddressing, RelayNone)
	switch m.Kind {
	case RelayRecipientField:
		c.envelope(at, "fields", m.Fields)
	case RelayAddressing:
		c.envelope(at, "envelope_fields", m.EnvelopeFields)
	}
}

func (c *checker) envelope(relay *place, name string, fields []string) {
	at := key(relay, name)
	if len(fields) == 0 {
		c.broken(&at, "is required")
	}
	for _, field := range fields {
		if field != "to" && field != "cc" {
			c.broken(&at, "must be to or cc")
			return
		}
	}
}

// chain refuses a hop outside the ceiling as Forbidden (message contract, section 7).
func (c *checker) chain(at *place, chain *AgentChain) {
	if chain.Hop < 1 || chain.Hop > chain.MaxHops {
		hop := key(at, "hop")
		c.add(&fault.Fault{Kind: fault.Forbidden, Field: hop.String(), Public: "chain:exhausted: must be from 1 to max_hops"})
		return
	}
	if chain.IsFinal != (chain.Hop == chain.MaxHops) {
		final := key(at, "is_final")
		c.broken(&final, "must be true exactly when hop is max_hops")
	}
}
