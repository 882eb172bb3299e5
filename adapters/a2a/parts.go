package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/internal/markup"
	"inbox/normalized"
)

const (
	mimeJSON  = "application/json"
	mimeBytes = "application/octet-stream"
)

// codec turns parts of the protocol into ours and back. Files that are too large for a message go through the blob
// store.
type codec struct{ blobs Blobs }

// normalizeParts turns the parts of a message into ours.
func (c codec) normalizeParts(ctx context.Context, parts a2a.ContentParts) ([]normalized.Part, error) {
	list := make([]normalized.Part, 0, len(parts))
	for i, part := range parts {
		field := fmt.Sprintf("message.parts[%d]", i)
		if part == nil {
			return nil, inField(field, "must be an object")
		}
		converted, err := c.normalizePart(ctx, part, field)
		if err != nil {
			return nil, err
		}
		list = append(list, converted)
	}
	return list, nil
}

func (c codec) normalizePart(ctx context.Context, part *a2a.Part, field string) (normalized.Part, error) {
	switch content := part.Content.(type) {
	case a2a.Text:
		return normalizeText(string(content), part.MediaType), nil
	case a2a.Raw:
		return c.normalizeFile(ctx, content, part.MediaType, part.Filename)
	case a2a.URL:
		return normalizeURL(string(content), part), nil
	case a2a.Data:
		encoded, err := json.Marshal(content.Value)
		if err != nil {
			return normalized.Part{}, inField(field, "is not JSON")
		}
		return c.normalizeFile(ctx, encoded, mimeJSON, part.Filename)
	}
	return normalized.Part{}, inField(field, "must have exactly one of text, raw, url and data")
}

func normalizeText(text, mediaType string) normalized.Part {
	switch baseType(mediaType) {
	case normalized.MIMEMarkdown:
		return normalized.Markdown(text)
	case normalized.MIMEHTML: // the original stays in raw; agents and the console see no foreign markup
		return normalized.Markdown(markdownOf(text))
	}
	return normalized.Text(text)
}

// markdownOf converts the HTML of a part, of which at most 512 KiB are read.
func markdownOf(text string) string {
	document, cut := markup.Parse(text, markup.Limits{})
	markdown, full := markup.Text(document, markup.Markdown, 0)
	if cut || full {
		markdown += "\n\n[The text was cut, because its HTML is very long; the original message is kept.]"
	}
	return markdown
}

// normalizeFile keeps small content inline and moves larger content to the blob store.
func (c codec) normalizeFile(ctx context.Context, content []byte, mediaType, name string) (normalized.Part, error) {
	part := normalized.Part{Kind: normalized.PartFile, MIME: orBytes(mediaType), Name: name}
	return part.Carrying(ctx, content, c.blobs)
}

// normalizeURL makes a link of a page and a file of everything else; neither is fetched.
func normalizeURL(address string, part *a2a.Part) normalized.Part {
	if baseType(part.MediaType) == normalized.MIMEHTML {
		return normalized.Part{Kind: normalized.PartLink, URL: address, Title: part.Filename}
	}
	return normalized.Part{
		Kind: normalized.PartFile, MIME: orBytes(part.MediaType), Name: part.Filename, BytesRef: normalized.At(address),
	}
}

func orBytes(mediaType string) string {
	if mediaType == "" {
		return mimeBytes
	}
	return mediaType
}

func baseType(mediaType string) string {
	base, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return ""
	}
	return base
}
