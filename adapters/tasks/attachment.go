package tasks

import (
	"context"
	"encoding/base64"
	"strings"

	"inbox/agents/runtime/value"
	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/normalized"
)

const (
	mimeBytes         = "application/octet-stream"
	maxAttachmentName = 255
)

// attachment is a file with an address, or with its bytes as base64; its members may have any of the names that programs use.
func attachment(ctx context.Context, file map[string]any, field string, files exchange.Contents) (normalized.Part, error) {
	part := normalized.Part{
		Kind: normalized.PartFile, MIME: value.FirstWord(file["mime_type"], file["mime"], file["mimeType"], file["media_type"], file["type"]),
		Name: clip.Bytes(value.FirstWord(file["name"], file["label"], file["filename"]), maxAttachmentName),
	}
	if !strings.Contains(part.MIME, "/") {
		part.MIME = mimeBytes
	}

	if encoded := value.FirstWord(file["data_base64"], file["data"], file["bytes"]); encoded != "" {
		content, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return part, fault.InField(field+".data_base64", "is no base64")
		}
		return part.Carrying(ctx, content, files)
	}

	address := value.FirstWord(file["url"], file["uri"], file["href"])
	if address == "" {
		return part, fault.InField(field, "needs url, or data_base64")
	}
	part.BytesRef = normalized.At(address)
	return part, nil
}
