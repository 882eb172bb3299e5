package loop

import (
	"encoding/json"
	"maps"
	"regexp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/value"
)

// DefaultTruncateBytes is the limit of one tool result in bytes of JSON when the caller names none.
const DefaultTruncateBytes = 8192

// Truncation is what a truncator did to a result. Metadata goes into the event tool_result_truncated.
type Truncation struct {
	Result    map[string]any
	Truncated bool
	Metadata  map[string]any
}

// Truncator keeps tool results at a size that a model can read.
type Truncator interface {
	// Truncate returns the result itself or a shorter one; it never changes the one that it gets. An error ends the run.
	Truncate(result map[string]any, toolName string, toolContext map[string]any) (Truncation, error)
}

// ByteTruncator is the default truncator: a result whose JSON is longer than the limit becomes an excerpt of that JSON
// with the citations that fit (agent runtime contract, section 3.6).
type ByteTruncator struct{ limit int }

// NewByteTruncator makes a truncator; a limit of 0 is DefaultTruncateBytes.
func NewByteTruncator(limit int) *ByteTruncator {
	if limit == 0 {
		limit = DefaultTruncateBytes
	}
	return &ByteTruncator{limit: max(1, limit)}
}

// Truncate implements Truncator.
func (t *ByteTruncator) Truncate(result map[string]any, _ string, _ map[string]any) (Truncation, error) {
	if mostBytes(result, t.limit) <= t.limit {
		return Truncation{Result: result}, nil
	}

	size := len(tool.Canonical(result))
	if size <= t.limit {
		return Truncation{Result: result, Metadata: map[string]any{"original_bytes": size}}, nil
	}

	facts := map[string]any{"original_bytes": size, "excerpt_bytes": t.limit}
	body := map[string]any{"truncated": true, "excerpt": t.excerpt(result)}
	maps.Copy(body, facts)
	metadata := maps.Clone(value.Assoc(result["metadata"]))
	delete(metadata, "citations_dropped")
	dropped := t.citations(value.Assoc(result["result"]), body) + t.citations(metadata, metadata)
	metadata["truncated"] = true
	maps.Copy(metadata, facts)

	if dropped > 0 {
		for _, target := range []map[string]any{body, metadata, facts} {
			target["citations_dropped"] = dropped
		}
	}

	short := maps.Clone(result)
	short["result"], short["metadata"] = body, metadata
	return Truncation{Result: short, Truncated: true, Metadata: facts}, nil
}

// mostBytes is an upper bound of the JSON's size, for most results are far below the limit and need not be written to
// know that. It stops counting above the limit.
func mostBytes(value any, limit int) int {
	switch value := value.(type) {
	case string:
		return 6*len(value) + 2 // every byte an escape
	case json.Number:
		return max(len(value), 32)
	case nil, bool, int, int64, float64:
		return 32
	case map[string]any:
		size := 2
		for name, member := range value {
			if size += 6*len(name) + 4 + mostBytes(member, limit); size > limit {
				break
			}
		}
		return size
	case []any:
		size := 2
		for _, item := range value {
			if size += 1 + mostBytes(item, limit); size > limit {
				break
			}
		}
		return size
	}
	return limit + 1
}

// excerpt returns at most the limit of the result's JSON. What the model looks for comes first; the JSON is ASCII, so a
// rune can be cut only inside of its escape.
func (t *ByteTruncator) excerpt(result map[string]any) string {
	text := []byte{'{'}
	for _, name := range []string{"success", "tool_name", "error", "result"} {
		if value, has := result[name]; has && len(text) <= t.limit {
			text = append(append(text, '"'), name...)
			text = append(append(append(text, `":`...), tool.Canonical(value)...), ',')
		}
	}

	rest := maps.Clone(result)
	maps.DeleteFunc(rest, func(name string, _ any) bool {
		return name == "success" || name == "tool_name" || name == "error" || name == "result"
	})

	if len(rest) > 0 {
		text = append(text, tool.Canonical(rest)[1:]...)
	} else {
		text[len(text)-1] = '}'
	}

	return string(wholeRunes(text[:min(len(text), t.limit)]))
}

// brokenEscape finds an escape at the end that lacks digits, or the first half of a surrogate pair without the second.
var brokenEscape = regexp.MustCompile(`(?:\\u[dD][89abAB][0-9a-fA-F]{2})?\\(?:u[0-9a-fA-F]{0,3})?$|\\u[dD][89abAB][0-9a-fA-F]{2}$`)

func wholeRunes(text []byte) []byte {
	at := brokenEscape.FindIndex(text[max(0, len(text)-12):])
	if at == nil {
		return text
	}

	cut := max(0, len(text)-12) + at[0]
	slashes := 0
	for cut-slashes > 0 && text[cut-slashes-1] == '\\' {
		slashes++
	}

	if slashes%2 == 1 { // the backslash is itself escaped: "\\u12" is text
		return text
	}
	return text[:cut]
}

// citations copies the citations of one place into another, in order, until their JSON would exceed the limit, and
// returns how many it dropped.
func (t *ByteTruncator) citations(from, into map[string]any) (dropped int) {
	value, present := from[tool.CitationsKey]
	if !present {
		return 0
	}

	kept, size := []any{}, len("[]")
	for _, citation := range envelope.Citations(value) {
		length := len(tool.Canonical(citation))
		if len(kept) > 0 {
			length++ // the comma
		}
		if dropped > 0 || size+length > t.limit {
			dropped++
			continue
		}
		kept, size = append(kept, citation), size+length
	}

	delete(into, tool.CitationsKey)
	if len(kept) > 0 || dropped == 0 {
		into[tool.CitationsKey] = kept
	}

	return dropped
}
