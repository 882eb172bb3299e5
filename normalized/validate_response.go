package normalized

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/policypart"
)

// ValidateResponse returns the first rule of the message contract, section 5, that an agent's answer to the question
// breaks, or nil; errors as in Validate. Answering fills first what an agent may leave out.
func ValidateResponse(r Response, question Message, limits Limits) error {
	c := checker{limits: limits.orDefault(), stop: 1}
	c.response(&r, &question)
	return c.first()
}

// visibilities from the widest to the narrowest.
var visibilities = []string{VisibilityPublic, VisibilityUnlisted, VisibilityFollowers, VisibilityDirect}

func (c *checker) response(r *Response, question *Message) {
	c.answers("in_reply_to", r.InReplyTo, question.ID)
	c.answers("thread_id", r.ThreadID, question.ThreadID)
	c.answerParts(r)
	c.recipients(r, &question.RecipientCapabilities.MentionRelay)

	if r.Visibility != "" {
		c.oneOf(nil, "visibility", r.Visibility, visibilities...)
	}

	c.status(r)
	c.metadata(r.Metadata)
	c.dispatches(r, question.Recipient)
	texts, inline := dispatchBytes(r.Dispatch)
	c.documentSize(r.AppendJSON, texts+partTexts(r.Parts)+r.unknown.size(), inline+inlineBytes(r.Parts))
}

func (c *checker) answers(name, value, want string) {
	c.machine(nil, name, value, c.limits.ID, true)
	if value != "" && value != want {
		at := key(nil, name)
		c.broken(&at, "must be that of the message answered")
	}
}

func (c *checker) answerParts(r *Response) {
	at := key(nil, "parts")
	switch {
	case r.Silent && len(r.Parts) > 0:
		c.broken(&at, "must be empty with silent")
		return
	case len(r.Dispatch) > 0 && len(r.Parts) > 0:
		c.broken(&at, "must be empty with dispatch: nothing of this response is sent, the turn runs again with the answers")
		return
	case r.Silent, len(r.Dispatch) > 0:
		return
	}

	c.parts(&at, r.Parts, outbound)
	for i := range r.Parts {
		entry := index(&at, i)
		switch {
		case r.Parts[i].Kind == PartPolicy && i < len(r.Parts)-1:
			c.broken(&entry, "a policy part must be the last, and the only one")
		case r.Parts[i].running() && r.Status != StatusInputRequired:
			c.broken(&entry, "a tool call needs its result or error before the answer is final")
		}
	}
}

// recipients allows extra addresses only where the way back carries them, and where it carries nothing at all: there
// the engine asks the agents among them itself and adds their answers.
func (c *checker) recipients(r *Response, relay *MentionRelay) {
	if len(r.To)+len(r.Cc) > c.limits.Recipients {
		at := key(nil, "to")
		c.broken(&at, fmt.Sprintf("and cc have more than %d addresses", c.limits.Recipients))
		return
	}
	c.envelopeList("to", r.To, relay)
	c.envelopeList("cc", r.Cc, relay)
}

func (c *checker) envelopeList(name string, list []string, relay *MentionRelay) {
	at := key(nil, name)
	if len(list) > 0 && relay.Kind != RelayNone && !relay.Carries(name) {
		c.broken(&at, "cannot be used here: the mention relay is "+relay.Kind)
		return
	}
	for i, text := range list {
		entry := index(&at, i)
		parsed, ok := c.address(&entry, text)
		if ok && relay.Kind == RelayNone && !identity.ValidAgentName(parsed.Local) {
			c.broken(&entry, "must be the address of an agent: the mention relay is none")
		}
	}
}

// Carries reports whether extra addresses in the field to or cc of a response reach a recipient.
func (m *MentionRelay) Carries(field string) bool {
	switch m.Kind {
	case RelayRecipientField:
		return slices.Contains(m.Fields, field)
	case RelayAddressing:
		return slices.Contains(m.EnvelopeFields, field)
	}
	return false
}

func (c *checker) status(r *Response) {
	if r.Status != "" {
		c.oneOf(nil, "status", r.Status, StatusCompleted, StatusInputRequired, StatusFailed)
	}

	at := key(nil, "status")
	if policy := r.Policy(); policy != nil && r.Status != policypart.ResponseStatus(policy.Kind) {
		c.broken(&at, "must be "+policypart.ResponseStatus(policy.Kind)+" with a policy part of kind "+policy.Kind)
	}
	if r.Error == nil {
		return
	}

	failure := key(nil, "error")
	if r.Status != StatusFailed {
		c.broken(&failure, "goes with status failed only")
	}

	c.machine(&failure, "code", r.Error.Code, c.limits.Name, true)
	if strings.TrimSpace(r.Error.Message) == "" {
		message := key(&failure, "message")
		c.broken(&message, "is required")
	}

	c.prose(&failure, "message", r.Error.Message, c.limits.TextPart)
}

func (c *checker) metadata(values map[string]string) {
	at := key(nil, "metadata")
	total := 0
	for name, value := range values {
		total += len(name) + len(value)
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			c.broken(&at, "must be valid UTF-8")
			return
		}
	}

	if total > c.limits.Metadata {
		c.over(&at, c.limits.Metadata)
	}
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
		if text, known := TextMIME(mime); !known || text != mime { // agents compare it
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
