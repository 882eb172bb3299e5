package history

import (
	"encoding/json"
	"slices"
	"strings"

	"inbox/identity"
	"inbox/internal/clip"
	"inbox/normalized"
)

// shortResult is what remains of a long tool result, in bytes of JSON.
const shortResult = 1 << 10

// outline measures turns.
func outline(turns excerpt[normalized.HistoricalMessage]) excerpt[turnOutline] {
	return excerpt[turnOutline]{head: outlines(turns.head), tail: outlines(turns.tail), total: turns.total}
}

// outlines has room for the two turns that are foreseen.
func outlines(turns []normalized.HistoricalMessage) []turnOutline {
	list := make([]turnOutline, len(turns), len(turns)+2)
	for i := range turns {
		list[i] = outlineOf(&turns[i])
	}
	return list
}

func outlineOf(turn *normalized.HistoricalMessage) turnOutline {
	t := turnOutline{role: turn.Role}
	for i := range turn.Parts {
		t.add(i, &turn.Parts[i])
	}
	return t
}

func (t *turnOutline) add(part int, p *normalized.Part) {
	t.text += len(p.Content) + len(p.Alt) + len(p.Title) + len(p.Description) + len(p.Args) + len(p.Result)
	if p.Error != nil {
		t.text += len(p.Error.Message)
	}
	if p.Policy != nil {
		t.text += len(p.Policy.Title) + len(p.Policy.Message)
	}
	if len(p.Result) > shortResult {
		t.results = append(t.results, longResult{part: part, size: len(p.Result)})
	}
}

// write makes one turn of a group: id, sender and time of the last, the parts of all. In a group of several speakers
// every change is announced, the first speaker too, because the turn carries only the last one's name. What an operator wrote as the agent
// is the agent's own.
func (a arrangement) write(turns excerpt[normalized.HistoricalMessage], group []int) normalized.HistoricalMessage {
	merged := *turns.at(group[len(group)-1])
	several := merged.Role == normalized.RoleUser && slices.ContainsFunc(group, func(i int) bool { return !sameSpeaker(&turns.at(i).Sender, &merged.Sender) })
	parts := make([]normalized.Part, 0, len(merged.Parts))
	var speaker *normalized.Sender
	for _, i := range group {
		turn := turns.at(i)
		if several && (speaker == nil || !sameSpeaker(speaker, &turn.Sender)) {
			speaker = &turn.Sender
			parts = append(parts, normalized.Text(attribution(turns, group, speaker)))
		}
		parts = append(parts, strip(turn.Parts, a.short[i])...)
	}

	merged.Parts = parts
	merged.Sender.Identities, merged.Sender.CarriedBy = references(merged.Sender.Own()), identity.StatedAddress{}
	return merged
}

// sameSpeaker compares what was proven, too: anyone can write a mail in another person's name.
func sameSpeaker(a, b *normalized.Sender) bool {
	return a.Address.LooksLike(b.Address) && a.Principal() == b.Principal()
}

// attribution names the speaker. The turn has the proof of its last speaker only, so that one who proved nothing is marked beside
// others who did. Two who have both proven something and have one address are told apart by what they proved: an address without a
// confirmation may be another's.
func attribution(turns excerpt[normalized.HistoricalMessage], group []int, speaker *normalized.Sender) string {
	among := func(is func(other *normalized.Sender) bool) bool {
		return slices.ContainsFunc(group, func(i int) bool { return is(&turns.at(i).Sender) })
	}
	name, proof := speaker.Address.String(), speaker.Speaker()

	switch {
	case proof == nil && among(func(other *normalized.Sender) bool { return other.Speaker() != nil }):
		return name + " (unverified):"
	case proof != nil && among(func(other *normalized.Sender) bool {
		return other.Address.LooksLike(speaker.Address) && other.Speaker() != nil && other.Principal() != speaker.Principal()
	}):
		return name + " (" + proof.Subject + "):"
	}
	return name + ":"
}

func references(list []identity.Evidence) []identity.Evidence {
	if len(list) == 0 {
		return nil
	}
	out := make([]identity.Evidence, len(list))
	for i, e := range list {
		out[i] = identity.Evidence{Subject: e.Subject, Issuer: e.Issuer, Method: e.Method}
	}
	return out
}

// strip applies rule 5 of section 4, and rule 3 to the parts that become short.
func strip(parts []normalized.Part, short []int) []normalized.Part {
	parts = slices.Clone(parts)
	for i := range parts {
		p := &parts[i]
		switch {
		case p.Kind == normalized.PartPolicy && p.Policy != nil:
			*p = normalized.Text(policyText(p))
		case p.BytesRef != nil && p.BytesRef.Kind == normalized.BytesInline:
			p.BytesRef = stored(p.BytesRef)
		case slices.Contains(short, i):
			p.Result = shortened(p.Result)
		}
	}
	return parts
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

// shortened keeps the start of a tool result as a JSON string of at most shortResult bytes.
func shortened(result json.RawMessage) json.RawMessage {
	const mark = " … (shortened)"
	for keep := shortResult; ; keep -= keep/8 + 1 {
		body, err := json.Marshal(strings.ToValidUTF8(clip.Bytes(string(result), max(keep, 0)), "") + mark)
		if err == nil && len(body) <= shortResult || keep <= 0 {
			return body
		}
	}
}
