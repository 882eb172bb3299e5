package normalized

import (
	"fmt"
	"slices"

	"inbox/identity"
	"inbox/internal/fault"
)

// Validate gives the first rule of the message contract that a message breaks, in the order of section 1, or nil. The
// error is a *fault.Fault: Malformed or TooLarge (Forbidden for an exhausted chain of agents), Field is the JSON path.
// Raw.Ref may still be empty, it is filled on acceptance. Clean comes first for what strangers wrote.
func Validate(m Message, limits Limits) error {
	c := checker{limits: limits.orDefault(), stop: 1}
	c.message(&m)
	return c.first()
}

// Violations gives every broken rule (at most 64) in the order in which Validate checks them.
func Violations(m Message, limits Limits) []*fault.Fault {
	c := checker{limits: limits.orDefault(), stop: maxViolations}
	c.message(&m)
	return c.found
}

func (c *checker) message(m *Message) {
	c.machine(nil, "id", m.ID, c.limits.ID, true)
	c.machine(nil, "thread_id", m.ThreadID, c.limits.ID, true)
	c.machine(nil, "in_reply_to", m.InReplyTo, c.limits.ID, false)
	sender := key(nil, "sender")
	c.sender(&sender, &m.Sender)
	c.evidence(&sender, m.Sender.Identities)
	c.recipient(m.Recipient)
	parts := key(nil, "parts")
	c.parts(&parts, m.Parts, inbound)
	c.history(m.History)
	c.capabilities(&m.RecipientCapabilities)
	c.oneOf(nil, "received_via", m.ReceivedVia, ViaActivityPub, ViaA2A, ViaEmail)
	c.instant(nil, "received_at", m.ReceivedAt)
	c.raw(&m.Raw)
	if m.PolicyResolution != nil {
		at := key(nil, "policy_resolution")
		c.shape(&at, m.PolicyResolution.Check())
	}
	if m.ReceivedTrace != nil {
		c.trace(m.ReceivedTrace)
	}
	c.documentSize(m.AppendJSON, m.texts(), inlineBytes(m.Parts))
}

func (c *checker) sender(at *place, s *Sender) {
	address := key(at, "address")
	c.address(&address, s.Address)
	c.prose(at, "display_name", s.DisplayName, 0)
	if s.Profile != nil {
		profile := key(at, "profile")
		c.profile(&profile, s.Profile)
	}
	c.oneOf(at, "auth_method", s.AuthMethod, AuthActivityPubSignature, AuthActivityPubProof, AuthA2AJWT, AuthA2AOAuth,
		AuthEmailDKIM, AuthEmailDMARC, AuthNone)
	if s.Verified && s.AuthMethod == AuthNone {
		verified := key(at, "verified")
		c.broken(&verified, "must be false with auth_method none")
	}
	c.machine(at, "key_id", s.KeyID, c.limits.ID, false)
}

// evidence checks the shape of every piece and the size of all.
func (c *checker) evidence(sender *place, list []identity.Evidence) {
	at := key(sender, "identities")
	if len(list) > c.limits.Identities {
		c.broken(&at, fmt.Sprintf("has more than %d entries", c.limits.Identities))
		return
	}
	total := 0
	for i := range list {
		entry := index(&at, i)
		c.shape(&entry, list[i].CheckShape())
		total += list[i].Size()
	}
	if total > c.limits.Evidence {
		c.over(&at, c.limits.Evidence)
	}
}

func (c *checker) profile(at *place, p *SenderProfile) {
	for _, field := range []struct{ name, text string }{
		{"display_name", p.DisplayName}, {"username", p.Username}, {"locale", p.Locale}, {"timezone", p.Timezone},
		{"provider", p.Provider}, {"provider_subject", p.ProviderSubject},
	} {
		c.prose(at, field.name, field.text, 0)
	}
	c.webURL(at, "url", p.URL)
	if p.Avatar != nil {
		avatar := key(at, "avatar")
		c.webURL(&avatar, "url", p.Avatar.URL)
		c.natural(&avatar, "width", int64(p.Avatar.Width))
		c.natural(&avatar, "height", int64(p.Avatar.Height))
	}
	extensions := key(at, "extensions")
	c.freeMap(&extensions, p.Extensions)
}

func (c *checker) webURL(at *place, name, address string) {
	if len(address) > c.limits.ID || !isWebURL(address) {
		field := key(at, name)
		c.broken(&field, "must be an https or http address")
	}
}

func (c *checker) natural(at *place, name string, value int64) {
	if value < 0 {
		field := key(at, name)
		c.broken(&field, "must not be negative")
	}
}

func (c *checker) instant(at *place, name string, value identity.Time) {
	if value.IsZero() {
		field := key(at, name)
		c.broken(&field, "is required")
	}
}

func (c *checker) recipient(text string) {
	at := key(nil, "recipient")
	if parsed, ok := c.address(&at, text); ok && !identity.ValidAgentName(parsed.Local) {
		c.broken(&at, "must be the address of an agent")
	}
}

func (c *checker) history(turns []HistoricalMessage) {
	at := key(nil, "history")
	if len(turns) > c.limits.History {
		c.broken(&at, fmt.Sprintf("has more than %d turns", c.limits.History))
		return
	}
	for i := range turns {
		if c.full() {
			return
		}
		turn := index(&at, i)
		c.turn(&turn, &turns[i])
	}
}

func (c *checker) turn(at *place, h *HistoricalMessage) {
	c.machine(at, "id", h.ID, c.limits.ID, false)
	c.oneOf(at, "role", h.Role, RoleUser, RoleAssistant)
	sender := key(at, "sender")
	c.sender(&sender, &h.Sender)
	for i := range h.Sender.Identities {
		identities := key(&sender, "identities")
		entry := index(&identities, i)
		c.shape(&entry, h.Sender.Identities[i].CheckReference())
	}
	parts := key(at, "parts")
	c.parts(&parts, h.Parts, remembered)
	c.instant(at, "timestamp", h.Timestamp)
}

func (c *checker) raw(raw *Raw) {
	at := key(nil, "raw")
	const prefix = "sha256:"
	if raw.Ref != "" && (len(raw.Ref) < len(prefix) || raw.Ref[:len(prefix)] != prefix || !isDigest(raw.Ref[len(prefix):])) {
		ref := key(&at, "ref")
		c.broken(&ref, "must be sha256: and 64 lower-case hexadecimal digits")
	}
	c.machine(&at, "media_type", raw.MediaType, c.limits.Name, true)
}

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

// trace checks another agent's answer, which we carry for display: its size and what would break a renderer.
func (c *checker) trace(r *Response) {
	at := key(nil, "received_trace")
	body, err := r.AppendJSON(nil)
	switch {
	case err != nil:
		c.broken(&at, "cannot be written as JSON")
	case len(body) > c.limits.Trace:
		c.over(&at, c.limits.Trace)
	}
	parts := key(&at, "parts")
	if len(r.Parts) > 0 {
		c.parts(&parts, r.Parts, forwarded)
	}
	if r.Status != "" {
		c.oneOf(&at, "status", r.Status, StatusCompleted, StatusInputRequired, StatusFailed)
	}
}

// documentSize measures the document only when its texts say that it could be over the limit: JSON writes at most six
// bytes for one of a text.
func (c *checker) documentSize(encode func([]byte) ([]byte, error), texts, inline int) {
	if c.full() || 6*texts < c.limits.Document/2 {
		return
	}
	body, err := encode(nil)
	switch {
	case err != nil:
		c.broken(nil, "the document cannot be written as JSON")
	case len(body)-inline > c.limits.Document:
		c.add(fault.Newf(fault.TooLarge, "the document is over %d bytes", c.limits.Document))
	}
}

// texts adds up the bytes of everything in the message that is not bounded by a small limit of its own.
func (m *Message) texts() int {
	total := m.Sender.texts() + partTexts(m.Parts)
	for i := range m.History {
		total += m.History[i].Sender.texts() + partTexts(m.History[i].Parts)
	}
	for _, mime := range slices.Concat(m.RecipientCapabilities.TextMIMEs, m.RecipientCapabilities.MentionRelay.Fields) {
		total += len(mime)
	}
	return total + m.unknown.size()
}

func (s *Sender) texts() int {
	total := len(s.DisplayName) + len(s.KeyID)
	if p := s.Profile; p != nil {
		total += len(p.DisplayName) + len(p.Username) + len(p.Locale) + len(p.Timezone) + len(p.Provider) +
			len(p.ProviderSubject) + len(p.URL)
		for name, value := range p.Extensions {
			total += len(name) + len(value)
		}
	}
	return total
}

func (m members) size() (total int) {
	for _, unknown := range m {
		total += len(unknown.key) + len(unknown.value)
	}
	return total
}
