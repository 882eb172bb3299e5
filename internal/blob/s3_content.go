package blob

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"
)

// s3Content is one content that is read. The connection is opened by the first Read after a Seek, so that asking for the size costs
// nothing. What is read from its beginning to its end has the digest, or the last Read fails.
type s3Content struct {
	ctx    context.Context
	store  *S3
	digest string
	key    string
	size   int64

	offset int64
	body   io.ReadCloser
	cancel context.CancelCauseFunc // of the request
	idle   *time.Timer             // cancels it
	sum    hash.Hash               // nil where the reading did not start at the beginning
}

var errIdleContent = fmt.Errorf("the server sent nothing for %s", s3Idle)

// Open implements Store. The content can be seeked.
func (s *S3) Open(ctx context.Context, digest string) (io.ReadCloser, error) {
	if err := checkDigest(digest); err != nil {
		return nil, err
	}

	content := &s3Content{ctx: ctx, store: s, digest: digest}
	if err := content.find(); err != nil {
		return nil, err
	}
	return content, nil
}

func (c *s3Content) find() error {
	found, err := c.store.copies(c.ctx, c.digest)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return noSuchContent("open blob", c.digest)
	}
	c.key, c.size = found[0].Key, found[0].Size
	return nil
}

// request asks for the content from the offset on. A copy that was replaced since it was found is looked for once more.
func (c *s3Content) request() error {
	for attempt := 0; ; attempt++ {
		ctx, cancel := context.WithCancelCause(c.ctx)
		idle := time.AfterFunc(s3Idle, func() { cancel(errIdleContent) })
		body, err := c.store.get(ctx, c.key, c.offset)
		if err == nil {
			c.body, c.cancel, c.idle, c.sum = body, cancel, idle, nil
			if c.offset == 0 {
				c.sum = sha256.New()
			}
			return nil
		}

		idle.Stop()
		cause := context.Cause(ctx)
		cancel(nil)
		if !isMissing(err) {
			return c.store.failed("read blob", errors.Join(err, cause))
		}
		if attempt > 0 {
			return noSuchContent("open blob", c.digest)
		}
		if err := c.find(); err != nil {
			return err
		}
	}
}

// Read reads on. Its errors are faults, apart from io.EOF.
func (c *s3Content) Read(into []byte) (int, error) {
	if c.offset >= c.size {
		return 0, c.end()
	}
	if c.body == nil {
		if err := c.request(); err != nil {
			return 0, err
		}
	}

	c.idle.Reset(s3Idle)
	n, err := c.body.Read(into[:min(int64(len(into)), c.size-c.offset)])
	c.offset += int64(n)
	if c.sum != nil {
		c.sum.Write(into[:n])
	}

	switch {
	case err == nil, errors.Is(err, io.EOF) && c.offset == c.size:
		if c.offset == c.size {
			return n, c.end()
		}
		return n, nil
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	}
	return n, c.store.failed("read blob", err)
}

// end compares the digest of what was read.
func (c *s3Content) end() error {
	if c.sum == nil {
		return io.EOF
	}
	if got := format(c.sum.Sum(nil)); got != c.digest {
		return c.store.failed("read blob", fmt.Errorf("object %s is damaged: its digest is %s; put it back from a backup", c.key, got))
	}
	return io.EOF
}

// Seek implements io.Seeker.
func (c *s3Content) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += c.offset
	case io.SeekEnd:
		offset += c.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning of a content")
	}

	if offset != c.offset {
		if err := c.Close(); err != nil {
			return 0, unavailable("read blob", err)
		}
		c.offset, c.sum = offset, nil
	}
	return offset, nil
}

// Close ends the request.
func (c *s3Content) Close() error {
	if c.body == nil {
		return nil
	}
	c.idle.Stop()
	c.cancel(nil) // before the close: no one waits for the rest
	err := c.body.Close()
	c.body = nil
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
