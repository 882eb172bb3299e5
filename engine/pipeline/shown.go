package pipeline

import (
	"encoding/json"
	"slices"

	"inbox/agents"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
	"inbox/normalized"
)

// showing makes of what an agent says what its readers get: calls of tools as the operator's show_tools lets them see, and
// the citations of all results, which belong to the answer whatever is shown of the calls (message contract, section 3). It
// stands before the row of the turn, so that what is not shown is not stored, either. It serves one run.
type showing struct {
	setting string // see the ShowTools constants of agents
	limits  normalized.Limits
	apart   bool // a call that is not shown stood before the text that comes next
}

// sayNothingElse stands in an answer that is nothing but calls of tools which are not shown.
const sayNothingElse = "(The agent used its tools and said nothing more.)"

// delta returns a step as readers get it, and false for one that they do not get.
func (s *showing) delta(given normalized.Delta) (normalized.Delta, bool) {
	switch given.Kind {
	case normalized.DeltaToolCallStart, normalized.DeltaToolCallEnd:
		if s.setting == agents.ShowToolsNone {
			s.apart = true
			return given, false
		}
		shown := s.call(*given.Part)
		given.Part = &shown

	case normalized.DeltaText:
		if s.apart && given.Text != "" { // as the fold of the whole has it: a call ends the text before it
			begun := normalized.Text(given.Text)
			given = normalized.Delta{Kind: normalized.DeltaPartBegin, Part: &begun}
			s.apart = false
		}

	case normalized.DeltaPartBegin:
		s.apart = false
		if given.Part.Citation != nil {
			cited := normalized.Response{Parts: []normalized.Part{*given.Part}}
			if cited.Clean(); len(cited.Parts) == 0 {
				return given, false
			}
			given.Part = &cited.Parts[0]
		}

	case normalized.DeltaResponse:
		whole := *given.Response
		whole.Clean()
		whole = s.response(whole)
		given.Response = &whole
	}

	return given, true
}

// response returns a cleaned answer as readers get it.
func (s *showing) response(r normalized.Response) normalized.Response {
	calls := func(p normalized.Part) bool { return p.Kind == normalized.PartToolCall }
	if !slices.ContainsFunc(r.Parts, calls) {
		return r
	}

	var citations []normalized.Citation
	parts := make([]normalized.Part, 0, len(r.Parts))
	for _, part := range r.Parts {
		if !calls(part) {
			parts = append(parts, part)
			continue
		}
		citations = append(citations, citationsOf(part)...)
		if s.setting != agents.ShowToolsNone {
			parts = append(parts, s.call(part))
		}
	}

	if len(parts) == 0 {
		parts = append(parts, normalized.Text(sayNothingElse))
	}

	var left normalized.Left
	r.Parts, left.Sources = withCitations(parts, citations)
	return r.Fit(s.limits, left)
}

// withCitations adds the citations that are not there yet, before a demand. left counts those over normalized.MaxCitations.
func withCitations(parts []normalized.Part, citations []normalized.Citation) (list []normalized.Part, left int) {
	at := len(parts)
	if at > 0 && parts[at-1].Kind == normalized.PartPolicy {
		at--
	}

	added := 0
	for _, citation := range citations {
		switch {
		case slices.ContainsFunc(parts, func(p normalized.Part) bool { return cites(p, citation) }):
		case added >= normalized.MaxCitations:
			left++
		default:
			parts = slices.Insert(parts, at+added, citation.Part())
			added++
		}
	}
	return parts, left
}

// cites reports whether a part shows the citation already, perhaps as a link of the agent's own.
func cites(part normalized.Part, citation normalized.Citation) bool {
	if shown, ok := part.Cites(); ok {
		return part.Citation.Same(&citation) || shown.Same(&citation)
	}
	return part.Kind == normalized.PartLink && part.URL == citation.SourceURL
}

// call is a call of a tool as readers get it.
func (s *showing) call(part normalized.Part) normalized.Part {
	shown := normalized.Part{Kind: part.Kind, ID: part.ID, Name: part.Name}
	if s.setting == agents.ShowToolsFull {
		shown.Args, shown.Result = s.redacted(part.Args), s.redacted(part.Result)
		shown.Metadata, shown.Error = s.redacted(part.Metadata), part.Error
		return shown
	}

	switch {
	case part.Error != nil:
		shown.Error = &normalized.ToolError{Message: "The tool failed."}
	case part.Ended():
		shown.Result = json.RawMessage(`{"success":true}`)
	}
	return shown
}

// redacted is a value without what looks like a secret, with its citations in form. Agents of other kinds than llm write
// what they like, so this does not rely on them.
func (s *showing) redacted(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}

	given, err := value.Decode(raw, value.Limits{Bytes: len(raw)})
	if err != nil {
		return json.RawMessage(`{"unreadable":true}`)
	}

	plain := tool.RedactParameters(map[string]any{"": given}, nil)[""]
	if object, is := plain.(map[string]any); is {
		tidyCitations(object)
		if metadata, is := object["metadata"].(map[string]any); is {
			tidyCitations(metadata)
		}
	}

	text := value.EncodeText(plain)
	if most := s.limits.ToolJSON; most > 0 && len(text) > most {
		text = value.EncodeText(map[string]any{"truncated": true, "original_bytes": len(raw)})
	}
	return json.RawMessage(text)
}

func tidyCitations(object map[string]any) {
	if list, has := object[tool.CitationsKey]; has {
		object[tool.CitationsKey] = envelope.Citations(list)
	}
}

// citationsOf reads the citations of a call's result: from the metadata of the part, and from those of a result that has
// metadata of its own.
func citationsOf(part normalized.Part) (list []normalized.Citation) {
	for _, metadata := range []map[string]any{objectOf(part.Metadata), value.Assoc(objectOf(part.Result)["metadata"])} {
		for _, one := range envelope.Citations(metadata[tool.CitationsKey]) {
			if citation, ok := normalized.CitationOf(value.Assoc(one)); ok {
				list = append(list, citation)
			}
		}
	}
	return list
}

func objectOf(raw json.RawMessage) map[string]any {
	if len(raw) == 0 {
		return nil
	}
	given, err := value.Decode(raw, value.Limits{Bytes: len(raw)})
	if err != nil {
		return nil
	}
	return value.Assoc(given)
}
