package history

import (
	"encoding/json"
	"slices"
	"strings"

	"inbox/identity"
	"inbox/internal/clip"
	"inbox/normalized"
)

// write makes one turn of a group: id, sender and time of the last, the parts of all. A turn of several messages has each of them as
// a segment with its own sender. The turn itself then keeps a proof only if all of its words are by the same speaker, so that a
// reader who knows no segments finds no one's proof beside the words of someone else.
func (a arrangement) write(turns excerpt[normalized.HistoricalMessage], group []int) normalized.HistoricalMessage {
	last := a.segment(turns, group[len(group)-1])
	merged := normalized.HistoricalMessage{
		ID: last.ID, Role: turns.at(group[0]).Role, Sender: last.Sender, Parts: last.Parts, Timestamp: last.Timestamp,
	}
	if len(group) == 1 {
		return merged
	}

	merged.Segments, merged.Parts = make([]normalized.Segment, len(group)), nil
	for i, at := range group {
		one := a.segment(turns, at)
		merged.Segments[i], merged.Parts = one, append(merged.Parts, one.Parts...)
		if !sameSpeaker(&one.Sender, &last.Sender) {
			merged.Sender = unproven(merged.Sender)
		}
	}
	return merged
}

func (a arrangement) segment(turns excerpt[normalized.HistoricalMessage], at int) normalized.Segment {
	turn := turns.at(at)
	return normalized.Segment{ID: turn.ID, Sender: reference(&turn.Sender), Parts: strip(turn.Parts, a.short[at]), Timestamp: turn.Timestamp}
}

// sameSpeaker compares what was proven, too: anyone can write a mail in another person's name.
func sameSpeaker(a, b *normalized.Sender) bool {
	return a.Address.LooksLike(b.Address) && a.Principal() == b.Principal()
}

// reference reduces a sender to what a history says of it. The evidence about who speaks comes first, because a reference has no
// proofs from which a reader could find it. A speaker about whom nothing is proven has no evidence and no method: what was proven about
// the caller that brought the message is not about them.
func reference(whole *normalized.Sender) normalized.Sender {
	speaker := whole.Speaker()
	if speaker == nil {
		return unproven(*whole)
	}

	own := whole.Own()
	list := make([]identity.Evidence, 1, len(own))
	list[0] = referenceTo(speaker)
	for i := range own {
		if &own[i] != speaker {
			list = append(list, referenceTo(&own[i]))
		}
	}

	sender := *whole
	sender.Identities, sender.CarriedBy = list, identity.StatedAddress{}
	return sender
}

func unproven(sender normalized.Sender) normalized.Sender {
	sender.AuthMethod, sender.Verified, sender.KeyID = normalized.AuthNone, false, ""
	sender.Identities, sender.CarriedBy = nil, identity.StatedAddress{}
	return sender
}

func referenceTo(e *identity.Evidence) identity.Evidence {
	return identity.Evidence{Subject: e.Subject, Issuer: e.Issuer, Method: e.Method}
}

// strip applies rule 5 of section 4, and rule 3 to the parts that are shortened.
func strip(parts []normalized.Part, short []cut) []normalized.Part {
	parts = slices.Clone(parts)
	for i := range parts {
		p := &parts[i]
		switch {
		case p.Kind == normalized.PartPolicy && p.Policy != nil:
			*p = normalized.Text(policyText(p))
		case p.BytesRef != nil && p.BytesRef.Kind == normalized.BytesInline:
			p.BytesRef = stored(p.BytesRef)
		}
	}

	for _, one := range short {
		one.apply(&parts[one.part])
	}
	return parts
}

func (c cut) apply(p *normalized.Part) {
	switch c.field {
	case fieldAlt:
		p.Alt = shortText(p.Alt, c.keep)
	case fieldTitle:
		p.Title = shortText(p.Title, c.keep)
	case fieldDescription:
		p.Description = shortText(p.Description, c.keep)
	case fieldFailure:
		p.Error = &normalized.ToolError{Message: shortText(p.Error.Message, c.keep)}
	case fieldArgs:
		p.Args = normalized.LeftOutJSON(c.size)
	case fieldResult:
		p.Result = shortened(p.Result, c.keep)
	default:
		p.Content, p.New = shortText(p.Content, c.keep), shortText(p.New, c.keep)
	}
}

func policyText(p *normalized.Part) string {
	if p.Policy.Title == "" {
		return p.Policy.Message
	}
	return p.Policy.Title + "\n\n" + p.Policy.Message
}

// stored names inline bytes by their digest. Bytes that cannot be decoded never pass validation; they get the digest of
// nothing, so that the history stays readable.
func stored(ref *normalized.BytesRef) *normalized.BytesRef {
	content, err := ref.Bytes()
	if err != nil {
		content = nil
	}
	return normalized.Stored(normalized.Digest(content))
}

// shortMark is the end of a text or tool result that was shortened.
const shortMark = " … (shortened)"

// shortText keeps the start of a text, with the mark at most size bytes.
func shortText(text string, size int) string {
	if len(text) <= size {
		return text
	}
	return clip.Bytes(text, size-len(shortMark)) + shortMark
}

// shortened keeps the start of a tool result as a JSON string of at most size bytes.
func shortened(result json.RawMessage, size int) json.RawMessage {
	for keep := size; ; keep -= keep/8 + 1 {
		body, err := json.Marshal(strings.ToValidUTF8(clip.Bytes(string(result), max(keep, 0)), "") + shortMark)
		if err == nil && len(body) <= size || keep <= 0 {
			return body
		}
	}
}
