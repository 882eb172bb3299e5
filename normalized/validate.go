package normalized

import (
	"fmt"

	"inbox/identity"
	"inbox/internal/fault"
)

// Validate returns the first rule of the message contract that a message breaks, in the order of section 1, or nil. The
// error is a *fault.Fault: Malformed or TooLarge (Forbidden for an exhausted chain of agents), Field is the JSON path.
// Raw.Ref may still be empty, it is filled on acceptance. Clean comes first for what strangers wrote.
func Validate(m Message, limits Limits) error {
	c := checker{limits: limits.orDefault(), stop: 1}
	c.message(&m)
	return c.first()
}

// Violations returns every broken rule (at most 64) in the order in which Validate checks them.
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
	if m.Surface != nil {
		c.surface(m.Surface)
	}
	c.documentSize(m.AppendJSON, m.texts(), inlineBytes(m.Parts))
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
	if len(r.Dispatch) > 0 {
		dispatch := key(&at, "dispatch")
		c.broken(&dispatch, "stands in answers of our own agents only")
	}
	parts := key(&at, "parts")
	if len(r.Parts) > 0 {
		c.parts(&parts, r.Parts, forwarded)
	}
	if r.Status != "" {
		c.oneOf(&at, "status", r.Status, StatusCompleted, StatusInputRequired, StatusFailed)
	}
}

// ValidateTrace returns the first rule that another agent's answer breaks when it is carried as Message.ReceivedTrace, or
// nil; errors as in Validate.
func ValidateTrace(r Response, limits Limits) error {
	c := checker{limits: limits.orDefault(), stop: 1}
	c.trace(&r)
	return c.first()
}
