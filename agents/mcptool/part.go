package mcptool

import (
	"context"
	"encoding/json"
	"net/url"
	"path"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"inbox/agents/runtime/value"
	"inbox/normalized"
)

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
	text := strings.ToValidUTF8(cut(resource.Text, s.options.MaxResultBytes), "\uFFFD")
	return map[string]any{
		"kind": normalized.PartText, "mime": textType(resource.MIMEType), "content": text, "uri": cut(plain(resource.URI), maxURLBytes),
	}
}

// link is a part of kind link for addresses of the web. Other addresses mean something only to the server and are passed
// on as what they are.
func link(block *mcp.ResourceLink) any {
	address := cut(plain(block.URI), maxURLBytes)
	title := block.Title
	if title == "" {
		title = block.Name
	}
	title, description := cut(plain(title), maxNameBytes), cut(plain(block.Description), maxDescriptionBytes)
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
	name = cut(plain(path.Base(name)), maxNameBytes)
	if name == "" || name == "." || name == "/" {
		return "resource"
	}
	return name
}

func mediaTypeOf(declared string) string {
	declared = cut(plain(declared), maxNameBytes)
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
