package history

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"inbox/identity"
	"inbox/normalized"
)

// shortResult is what remains of a long tool result, in bytes of JSON.
const shortResult = 1 << 10

// outline measures turns. There is room for the two that are foreseen.
func outline(turns []normalized.HistoricalMessage) []turnOutline {
	list := make([]turnOutline, len(turns), len(turns)+2)
	for i := range turns {
		list[i].role = turns[i].Role
		for j := range turns[i].Parts {
			list[i].add(j, &turns[i].Parts[j])
		}
	}
	return list
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
// every change is announced, the first speaker too, because the turn carries only the last one's name.
func (a arrangement) write(turns []normalized.HistoricalMessage, group []int) normalized.HistoricalMessage {
	merged := turns[group[len(group)-1]]
	merged.Sender.Identities = references(merged.Sender.Identities)
	several := slices.ContainsFunc(group, func(i int) bool { return turns[i].Sender.Address != merged.Sender.Address })
	parts := make([]normalized.Part, 0, len(merged.Parts))
	speaker := ""
	for _, i := range group {
		if address := turns[i].Sender.Address; several && address != speaker {
			speaker = address
			parts = append(parts, normalized.Text(speaker+":"))
		}
		parts = append(parts, strip(turns[i].Parts, a.short[i])...)
	}
	merged.Parts = parts
	return merged
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

// shortened keeps the begin of a tool result as a JSON string of at most shortResult bytes.
func shortened(result json.RawMessage) json.RawMessage {
	const mark = " … (shortened)"
	for keep := shortResult; ; keep -= keep/8 + 1 {
		body, err := json.Marshal(cutRunes(string(result), max(keep, 0)) + mark)
		if err == nil && len(body) <= shortResult || keep <= 0 {
			return body
		}
	}
}

func cutRunes(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.ToValidUTF8(text[:limit], "")
}
