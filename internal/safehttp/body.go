package safehttp

import (
	"context"
	"io"
	"sync"
)

// body caps what is read and frees the request's slots exactly once: on Close, or when its time is over.
type body struct {
	from io.ReadCloser
	ctx  context.Context // of the request; says why a read was cut off
	left int64
	done func()
	stop func() bool
}

func newBody(ctx context.Context, from io.ReadCloser, limit int64, done func()) *body {
	once := sync.OnceFunc(done)
	return &body{from: from, ctx: ctx, left: limit, done: once, stop: context.AfterFunc(ctx, once)}
}

// Read returns ErrTooLarge once more than the limit has arrived and ErrTimeout when the total time is over.
func (b *body) Read(into []byte) (int, error) {
	if b.left < 0 {
		return 0, ErrTooLarge
	}

	if int64(len(into)) > b.left+1 {
		into = into[:b.left+1]
	}

	n, err := b.from.Read(into)
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, ErrTooLarge
	}

	switch {
	case err == io.EOF: //nolint:errorlint // readers return io.EOF itself
		b.end()
	case err != nil:
		err = explain(b.ctx, err)
	}

	return n, err
}

// Close ends the request and frees its slots.
func (b *body) Close() error {
	defer b.end()
	return b.from.Close()
}

func (b *body) end() {
	b.stop()
	b.done()
}
