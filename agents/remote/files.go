package remote

import (
	"context"
	"fmt"
	"io"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/normalized"
)

// renderFile puts a file into the message when it is small enough, gives an address of it otherwise, and names it where
// there is none.
func (a *Agent) renderFile(ctx context.Context, part normalized.Part) (*a2a.Part, error) {
	rendered := &a2a.Part{MediaType: part.MIME, Filename: part.Name, Metadata: described(part.Alt)}
	ref := part.BytesRef
	switch {
	case ref.Kind == normalized.BytesInline:
		content, err := ref.Bytes()
		if err != nil {
			return nil, fault.GiveUp(upstream.Refused, fmt.Errorf("read file of the message: %w", err))
		}
		rendered.Content = a2a.Raw(content)
		return rendered, nil
	case ref.Kind == normalized.BytesContentAddressed && a.options.Blobs != nil && part.Size <= a.options.MaxFileBytes:
		content, err := a.readBlob(ctx, ref.Digest)
		if err != nil {
			return nil, err
		}
		if content != nil {
			rendered.Content = a2a.Raw(content)
			return rendered, nil
		}
	}
	address := ref.URL
	if address == "" && ref.Digest != "" && a.options.FileURL != nil {
		address = a.options.FileURL(ref.Digest, part.Name)
	}
	if address == "" {
		return a2a.NewTextPart(fmt.Sprintf("[%s (%s) is too large to be sent here]", orElse(part.Name, "A file"), part.MIME)), nil
	}
	rendered.Content = a2a.URL(address)
	return rendered, nil
}

// readBlob returns nil for a file that is larger than its part said and than may be sent.
func (a *Agent) readBlob(ctx context.Context, digest string) ([]byte, error) {
	reader, err := a.options.Blobs.Open(ctx, digest)
	if err != nil {
		return nil, fault.RetryIn(0, "A file of the message cannot be read right now.", fmt.Errorf("open file of the message: %w", err))
	}
	defer func() { _ = reader.Close() }()
	content, err := io.ReadAll(io.LimitReader(reader, a.options.MaxFileBytes+1))
	if err != nil {
		return nil, fault.RetryIn(0, "A file of the message cannot be read right now.", fmt.Errorf("read file of the message: %w", err))
	}
	if int64(len(content)) > a.options.MaxFileBytes {
		return nil, nil
	}
	return content, nil
}
