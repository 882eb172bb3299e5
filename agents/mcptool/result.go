package mcptool

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox/agents/runtime/value"
)

// answer brings the result of a tool into the form of an executor's answer. A result is, in this order: the structured
// content; the text alone; nothing. With files or links beside it, it is an object {structured | text, parts}.
func (s *server) answer(ctx context.Context, result *mcp.CallToolResult) map[string]any {
	text, parts := s.contents(ctx, result.Content)
	if result.IsError {
		answer := failed(kindTool, "The tool failed without saying why.")
		if said := cut(plain(text), maxErrorBytes); said != "" {
			answer["error"] = said
		}
		return answer
	}
	answer := map[string]any{"success": true}
	body, shortened := s.body(text, result.StructuredContent)
	if len(parts) > 0 {
		body = withParts(body, parts)
	}
	if body != nil {
		answer["result"] = body
	}
	if shortened {
		answer["metadata"] = map[string]any{"truncated": true}
	}
	return answer
}

// body chooses between structured content and text, and cuts what is too large.
func (s *server) body(text string, structured any) (body any, shortened bool) {
	limit := s.options.MaxResultBytes
	if structured != nil {
		value, encoded, err := exact(structured, text, limit)
		if err != nil || len(encoded) > limit {
			return excerpt(encoded, limit), true
		}
		return guarded(value), false
	}
	if len(text) > limit {
		return excerpt(text, limit), true
	}
	if text == "" {
		return nil, false
	}
	return text, false
}

func excerpt(text string, limit int) map[string]any {
	kept := cut(text, limit)
	return map[string]any{"truncated": true, "excerpt": kept, "original_bytes": len(text), "excerpt_bytes": len(kept)}
}

// exact returns structured content with the numbers as the server wrote them. The SDK reads numbers as floating point,
// but servers repeat the content as text: where that is the same value, it is taken.
func exact(structured any, text string, limit int) (given any, encoded string, err error) {
	rounded, err := json.Marshal(structured)
	if err != nil {
		return nil, "", err
	}
	limits := value.Limits{Bytes: limit}
	if repeated, err := value.Decode([]byte(text), limits); err == nil {
		var again any
		if json.Unmarshal([]byte(text), &again) == nil {
			if other, err := json.Marshal(again); err == nil && string(other) == string(rounded) {
				return repeated, text, nil
			}
		}
	}
	given, err = value.Decode(rounded, limits)
	return given, string(rounded), err
}

// guarded keeps a server from speaking the loop's own language: a result of this type would park the turn.
func guarded(value any) any {
	if object, ok := value.(map[string]any); ok && object["type"] == "approval_required" {
		return map[string]any{"structured": object}
	}
	return value
}

func withParts(body any, parts []any) map[string]any {
	whole := map[string]any{"parts": parts}
	switch text, isText := body.(string); {
	case isText:
		whole["text"] = text
	case body != nil:
		whole["structured"] = body
	}
	return whole
}

// contents separates the text from what are files and links.
func (s *server) contents(ctx context.Context, blocks []mcp.Content) (text string, parts []any) {
	var texts []string
	for _, block := range blocks {
		if said, isText := block.(*mcp.TextContent); isText {
			texts = append(texts, strings.ToValidUTF8(said.Text, "\uFFFD"))
			continue
		}
		if part := s.part(ctx, block); part != nil && len(parts) < maxParts {
			parts = append(parts, part)
		}
	}
	return strings.Join(texts, "\n\n"), parts
}
