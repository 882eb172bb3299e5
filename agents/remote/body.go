package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

func replaceBody(response *http.Response, content []byte) {
	response.Body = struct {
		io.Reader
		io.Closer
	}{bytes.NewReader(content), response.Body}
	response.ContentLength = int64(len(content))
}

// watchedBody remembers why reading failed and gives up when one read takes longer than the limit. The clock stands
// still between reads, because the time that the engine needs for a delta is not the agent's.
type watchedBody struct {
	source io.ReadCloser
	seen   *sighting
	limit  time.Duration
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (b *watchedBody) Read(into []byte) (int, error) {
	if b.timer == nil {
		b.timer = time.AfterFunc(b.limit, func() { b.cancel(errIdle) })
	} else {
		b.timer.Reset(b.limit)
	}
	n, err := b.source.Read(into)
	b.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		b.seen.cut = err
	}
	return n, err
}

// Close ends the request.
func (b *watchedBody) Close() error {
	if b.timer != nil {
		b.timer.Stop()
	}
	err := b.source.Close()
	b.cancel(nil)
	return err
}
