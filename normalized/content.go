package normalized

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// Keeper keeps bytes and gives their digest, lower-case hex SHA-256.
type Keeper interface {
	Put(ctx context.Context, r io.Reader) (digest string, size int64, err error)
}

// Carrying returns a copy of a file's part with its content and size: inline up to MaxInlineBytes, kept elsewhere above
// (message contract, section 3). Errors are those of the keeper.
func (p Part) Carrying(ctx context.Context, content []byte, keeper Keeper) (Part, error) {
	p.Size = int64(len(content))
	if len(content) <= MaxInlineBytes {
		p.BytesRef = Inline(content)
		return p, nil
	}
	digest, _, err := keeper.Put(ctx, bytes.NewReader(content))
	if err != nil {
		return p, fmt.Errorf("keep a file: %w", err)
	}
	p.BytesRef = Stored(digest)
	return p, nil
}
