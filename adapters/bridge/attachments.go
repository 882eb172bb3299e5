package bridge

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"

	"inbox/adapters/bridge/contract"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
	"inbox/normalized"
)

const (
	maxAttachments    = 32
	maxAttachmentName = 255
	mimeBytes         = "application/octet-stream"
)

// parts are the text and the files of a message. A file is an object with an address or with its bytes as base64; its
// members may have any of the names that products use. Nothing is fetched.
func (a *Adapter) parts(ctx context.Context, message contract.Message) ([]normalized.Part, error) {
	var parts []normalized.Part
	if message.Text != "" {
		parts = append(parts, normalized.Text(message.Text))
	}
	if len(message.Attachments) > maxAttachments {
		return nil, fault.InField("attachments", fmt.Sprintf("has more than %d files", maxAttachments))
	}
	for i, one := range message.Attachments {
		part, err := a.file(ctx, value.Assoc(one), fmt.Sprintf("attachments[%d]", i))
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func (a *Adapter) file(ctx context.Context, file map[string]any, field string) (normalized.Part, error) {
	part := normalized.Part{
		Kind: normalized.PartFile, MIME: text(file, "mime", "mime_type", "mimeType", "mimetype", "content_type", "media_type", "type"),
		Name: text(file, "name", "filename", "title"), Alt: text(file, "alt", "alt_text"),
	}
	if !strings.Contains(part.MIME, "/") {
		part.MIME = mimeBytes
	}
	if len(part.Name) > maxAttachmentName {
		part.Name = strings.ToValidUTF8(part.Name[:maxAttachmentName], "")
	}
	if encoded := text(file, "data_base64", "data", "bytes", "content_base64"); encoded != "" {
		return a.keep(ctx, part, encoded, field)
	}
	address := text(file, "url", "uri", "url_private", "href")
	if address == "" {
		return part, fault.InField(field, "needs url, or data_base64")
	}
	part.BytesRef = normalized.At(address)
	return part, nil
}

func (a *Adapter) keep(ctx context.Context, part normalized.Part, encoded, field string) (normalized.Part, error) {
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return part, fault.InField(field+".data_base64", "is no base64")
	}
	return part.Carrying(ctx, content, a.options.Blobs)
}
