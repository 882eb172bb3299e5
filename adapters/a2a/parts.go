package a2a

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/url"
	"strings"

	htmltomarkdown "github.com/JohannesKaufmann/html-to-markdown/v2"
	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/normalized"
)

const (
	mimeJSON  = "application/json"
	mimeBytes = "application/octet-stream"
)

// normalizeParts turns the parts of a message into ours. Text of only whitespace is no part.
func (a *Adapter) normalizeParts(ctx context.Context, parts a2a.ContentParts) ([]normalized.Part, error) {
	list := make([]normalized.Part, 0, len(parts))
	for i, part := range parts {
		field := fmt.Sprintf("message.parts[%d]", i)
		if part == nil {
			return nil, inField(field, "must be an object")
		}
		converted, keep, err := a.normalizePart(ctx, part, field)
		if err != nil {
			return nil, err
		}
		if keep {
			list = append(list, converted)
		}
	}
	if len(list) == 0 {
		return nil, inField("message.parts", "has no content: text of only whitespace counts as none")
	}
	return list, nil
}

func (a *Adapter) normalizePart(ctx context.Context, part *a2a.Part, field string) (converted normalized.Part, keep bool, err error) {
	switch content := part.Content.(type) {
	case a2a.Text:
		converted = normalizeText(string(content), part.MediaType)
		return converted, strings.TrimSpace(converted.Content) != "", nil
	case a2a.Raw:
		converted, err = a.normalizeFile(ctx, content, part.MediaType, part.Filename)
		return converted, true, err
	case a2a.URL:
		converted, err = normalizeURL(string(content), part, field)
		return converted, true, err
	case a2a.Data:
		encoded, err := json.Marshal(content.Value)
		if err != nil {
			return converted, false, inField(field, "is not JSON")
		}
		converted, err = a.normalizeFile(ctx, encoded, mimeJSON, part.Filename)
		return converted, true, err
	}
	return converted, false, inField(field, "must have exactly one of text, raw, url and data")
}

func normalizeText(text, mediaType string) normalized.Part {
	switch baseType(mediaType) {
	case normalized.MIMEMarkdown:
		return normalized.Markdown(text)
	case normalized.MIMEHTML: // the original stays in raw; agents and the console see no foreign markup
		if markdown, err := htmltomarkdown.ConvertString(text); err == nil {
			return normalized.Markdown(markdown)
		}
	}
	return normalized.Text(text)
}

// normalizeFile keeps small content inline and moves larger content to the blob store.
func (a *Adapter) normalizeFile(ctx context.Context, content []byte, mediaType, name string) (normalized.Part, error) {
	if mediaType == "" {
		mediaType = mimeBytes
	}
	part := normalized.Part{Kind: normalized.PartFile, MIME: mediaType, Name: name, Size: int64(len(content))}
	if len(content) <= normalized.MaxInlineBytes {
		part.BytesRef = &normalized.BytesRef{
			Kind: normalized.BytesInline, DataBase64: base64.StdEncoding.EncodeToString(content),
		}
		return part, nil
	}
	digest, _, err := a.options.Blobs.Put(ctx, bytes.NewReader(content))
	if err != nil {
		return part, fmt.Errorf("keep file part: %w", err)
	}
	part.BytesRef = &normalized.BytesRef{Kind: normalized.BytesContentAddressed, Algo: "sha256", Digest: digest}
	return part, nil
}

// normalizeURL makes a link of a page and a file of everything else; neither is fetched.
func normalizeURL(address string, part *a2a.Part, field string) (normalized.Part, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" || parsed.User != nil {
		return normalized.Part{}, inField(field+".url", "must be an absolute https URL")
	}
	if baseType(part.MediaType) == normalized.MIMEHTML {
		return normalized.Part{Kind: normalized.PartLink, URL: address, Title: part.Filename}, nil
	}
	if parsed.Scheme != "https" {
		return normalized.Part{}, inField(field+".url", "must be an absolute https URL")
	}
	mediaType := part.MediaType
	if mediaType == "" {
		mediaType = mimeBytes
	}
	return normalized.Part{
		Kind: normalized.PartFile, MIME: mediaType, Name: part.Filename,
		BytesRef: &normalized.BytesRef{Kind: normalized.BytesURL, URL: address},
	}, nil
}

func baseType(mediaType string) string {
	base, _, err := mime.ParseMediaType(mediaType)
	if err != nil {
		return ""
	}
	return base
}
