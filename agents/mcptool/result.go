package mcptool

import (
	"context"
	"encoding/json"
	"net/url"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox/agents/runtime/value"
	"inbox/internal/clip"
	"inbox/normalized"
)

// answer brings the result of a tool into the form of an executor's answer. A result is, in this order: the structured
// content; the text alone; nothing. With files or links beside it, it is an object {structured | text, parts}.
func (s *server) answer(ctx context.Context, result *mcp.CallToolResult) map[string]any {
	text, parts := s.contents(ctx, result.Content)
	if result.IsError {
		answer := failed(kindTool, "The tool failed without saying why.")
		if said := clip.Bytes(plain(text), maxErrorBytes); said != "" {
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
	metadata := map[string]any{}
	if shortened {
		metadata["truncated"] = true
	}
	if citations := s.citations(result.Meta); citations != nil {
		metadata[CitationsMeta] = citations
	}
	if len(metadata) > 0 {
		answer["metadata"] = metadata
	}

	return answer
}

// CitationsMeta is the member of _meta in which a server says where its result comes from: a list in the form of the agent
// runtime contract, section 4.5.
const CitationsMeta = "citations"

// citations are read from _meta; nil without any, and when they are larger than a result may be.
func (s *server) citations(meta mcp.Meta) any {
	list, is := meta[CitationsMeta].([]any)
	if !is || len(list) == 0 {
		return nil
	}
	encoded, err := json.Marshal(list)
	if err != nil || len(encoded) > s.options.MaxResultBytes {
		return nil
	}
	given, err := value.Decode(encoded, value.Limits{Bytes: s.options.MaxResultBytes})
	if err != nil {
		return nil
	}
	return given
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
	kept := clip.Bytes(text, limit)
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

// plain makes text of a stranger fit for a log or a description: valid, trimmed, without control characters other than
// line ends and tabs, and without the invisible ones that change how text is read.
func plain(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError) {
			return -1
		}
		return r
	}, text))
}

const (
	maxParts       = 32
	maxInlineBytes = 64 << 10
	maxNameBytes   = 256
	maxURLBytes    = 2 << 10
)

// part turns a block that is no text into a part of a message (message contract, section 3).
func (s *server) part(ctx context.Context, block mcp.Content) any {
	switch block := block.(type) {
	case *mcp.ImageContent:
		return s.file(ctx, "image", block.MIMEType, block.Data)
	case *mcp.AudioContent:
		return s.file(ctx, "audio", block.MIMEType, block.Data)
	case *mcp.ResourceLink:
		return link(block)
	case *mcp.EmbeddedResource:
		return s.resource(ctx, block.Resource)
	default: // kinds that no tool may return
		return nil
	}
}

// file is a part of kind file. Its bytes are kept where the options say; those that cannot be are left out.
func (s *server) file(ctx context.Context, name, mediaType string, content []byte) any {
	part := normalized.Part{Kind: normalized.PartFile, MIME: mediaTypeOf(mediaType), Name: name, Size: int64(len(content))}
	switch {
	case s.options.Keep != nil:
		kept, err := s.options.Keep(ctx, name, part.MIME, content)
		if err != nil {
			s.log.WarnContext(ctx, "file of a tool not kept", "reason", err)
			return named(part)
		}
		part.BytesRef = kept
	case len(content) > maxInlineBytes:
		return named(part)
	default:
		part.BytesRef = normalized.Inline(content)
	}

	return partValue(part)
}

// named says that there was a file, where its content cannot be given.
func named(part normalized.Part) map[string]any {
	return map[string]any{"kind": part.Kind, "mime": part.MIME, "name": part.Name, "size": part.Size, "omitted": true}
}

func (s *server) resource(ctx context.Context, resource *mcp.ResourceContents) any {
	if resource == nil {
		return nil
	}
	if resource.Blob != nil {
		return s.file(ctx, resourceName(resource.URI), resource.MIMEType, resource.Blob)
	}

	text := strings.ToValidUTF8(clip.Bytes(resource.Text, s.options.MaxResultBytes), "\uFFFD")
	return map[string]any{
		"kind": normalized.PartText, "mime": textType(resource.MIMEType), "content": text, "uri": clip.Bytes(plain(resource.URI), maxURLBytes),
	}
}

// link is a part of kind link for addresses of the web. Other addresses mean something only to the server and are passed
// on as what they are.
func link(block *mcp.ResourceLink) any {
	address := clip.Bytes(plain(block.URI), maxURLBytes)
	title := block.Title
	if title == "" {
		title = block.Name
	}

	title, description := clip.Bytes(plain(title), maxNameBytes), clip.Bytes(plain(block.Description), maxDescriptionBytes)
	if target, err := url.Parse(address); err == nil && (target.Scheme == "https" || target.Scheme == "http") && target.Host != "" {
		return partValue(normalized.Part{Kind: normalized.PartLink, URL: address, Title: title, Description: description})
	}
	return map[string]any{"kind": "resource", "uri": address, "title": title, "description": description}
}

// resourceName is the last piece of an address, which is what people call the file.
func resourceName(address string) string {
	name := address
	if target, err := url.Parse(address); err == nil && target.Path != "" {
		name = target.Path
	}
	name = clip.Bytes(plain(path.Base(name)), maxNameBytes)
	if name == "" || name == "." || name == "/" {
		return "resource"
	}
	return name
}

func mediaTypeOf(declared string) string {
	declared = clip.Bytes(plain(declared), maxNameBytes)
	if !strings.Contains(declared, "/") {
		return "application/octet-stream"
	}
	return declared
}

func textType(declared string) string {
	if declared == "" {
		return normalized.MIMEPlain
	}
	return mediaTypeOf(declared)
}

// partValue writes a part as a JSON value.
func partValue(part normalized.Part) any {
	text, err := json.Marshal(&part)
	if err != nil {
		return named(part)
	}
	decoded, err := value.Decode(text, value.Limits{Bytes: len(text)})
	if err != nil {
		return named(part)
	}
	return decoded
}
