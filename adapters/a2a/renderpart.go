package a2a

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/normalized"
)

// maxSentBytes is the largest file that is put into an answer; above it the peer is told its name and size.
const maxSentBytes = 8 << 20

// renderParts writes parts; withBytes puts the content of stored files in, which the echo of a caller's own message
// does not need.
func (c codec) renderParts(ctx context.Context, parts []normalized.Part, withBytes bool) (a2a.ContentParts, error) {
	list := make(a2a.ContentParts, 0, len(parts))
	for _, part := range parts {
		rendered, err := c.renderPart(ctx, part, withBytes)
		if err != nil {
			return nil, err
		}
		if rendered != nil {
			list = append(list, rendered)
		}
	}
	return list, nil
}

// renderPart returns nil for what a peer does not get: tool calls (they are the agent's own business unless its
// operator exposes them), policy parts (the status carries them) and kinds of a newer contract.
func (c codec) renderPart(ctx context.Context, part normalized.Part, withBytes bool) (*a2a.Part, error) {
	switch part.Kind {
	case normalized.PartText:
		return &a2a.Part{Content: a2a.Text(part.Content), MediaType: part.MIME}, nil
	case normalized.PartLink:
		return &a2a.Part{
			Content: a2a.URL(part.URL), MediaType: normalized.MIMEHTML, Filename: part.Title, Metadata: described(part.Description),
		}, nil
	case normalized.PartFile, normalized.PartArtifact:
		if part.BytesRef != nil {
			return c.renderFile(ctx, part, withBytes)
		}
	}
	return nil, nil
}

func described(text string) map[string]any {
	if text == "" {
		return nil
	}
	return map[string]any{"description": text}
}

func (c codec) renderFile(ctx context.Context, part normalized.Part, withBytes bool) (*a2a.Part, error) {
	rendered := &a2a.Part{MediaType: part.MIME, Filename: part.Name, Metadata: described(part.Alt)}
	switch ref := part.BytesRef; {
	case ref.Kind == normalized.BytesInline:
		content, err := ref.Bytes()
		if err != nil {
			return nil, fmt.Errorf("read inline bytes: %w", err)
		}
		rendered.Content = fileContent(rendered, content)
	case ref.URL != "":
		rendered.Content = a2a.URL(ref.URL)
	case !withBytes:
		rendered.Content = a2a.URL(digestURI(ref.Digest))
	case part.Size > maxSentBytes:
		return tooLargeToSend(part), nil
	default:
		content, err := c.readBlob(ctx, ref.Digest)
		if err != nil {
			return nil, err
		}
		if content == nil {
			return tooLargeToSend(part), nil
		}
		rendered.Content = fileContent(rendered, content)
	}
	return rendered, nil
}

// fileContent makes a data part of unnamed JSON, which is how structured data came in.
func fileContent(part *a2a.Part, content []byte) a2a.PartContent {
	if part.MediaType == mimeJSON && part.Filename == "" {
		if value, is := exactValue(content); is {
			return a2a.Data{Value: value}
		}
	}
	return a2a.Raw(content)
}

// readBlob returns nil for a file over maxSentBytes.
func (c codec) readBlob(ctx context.Context, digest string) ([]byte, error) {
	reader, err := c.blobs.Open(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("open file of an answer: %w", err)
	}
	defer func() { _ = reader.Close() }()
	content, err := io.ReadAll(io.LimitReader(reader, maxSentBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read file of an answer: %w", err)
	}
	if len(content) > maxSentBytes {
		return nil, nil
	}
	return content, nil
}

func tooLargeToSend(part normalized.Part) *a2a.Part {
	name := part.Name
	if name == "" {
		name = "a file"
	}
	return a2a.NewTextPart(fmt.Sprintf("[%s (%s) is too large to be sent here]", name, part.MIME))
}

// digestURI names stored bytes without sending them (RFC 6920).
func digestURI(digest string) string {
	sum, err := hex.DecodeString(digest)
	if err != nil {
		return "ni:///sha-256;"
	}
	return "ni:///sha-256;" + base64.RawURLEncoding.EncodeToString(sum)
}
