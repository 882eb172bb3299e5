package chat

import (
	"bytes"
	"io"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"inbox/internal/await"
)

// ending reports when all of a body was read.
type ending struct {
	io.Reader

	ended chan<- struct{}
}

func (e *ending) Read(into []byte) (int, error) {
	n, err := e.Reader.Read(into)
	if err == io.EOF {
		e.ended <- struct{}{}
	}
	return n, err
}

// TestLargeRequestsOfGuestsWaitOutsideMemory: while one is decoded, the others are in files. Each is whole when its turn comes.
func TestLargeRequestsOfGuestsWaitOutsideMemory(t *testing.T) {
	const waiting, size = 20, 5 << 20
	a := &access{site: &site{options: Options{Spool: t.TempDir()}}, decoding: make(chan struct{}, 1)}
	a.decoding <- struct{}{} // one is decoded

	content := bytes.Repeat([]byte("x"), size)
	ended := make(chan struct{}, waiting)
	heap := func() uint64 {
		var statistics runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&statistics)
		return statistics.HeapAlloc
	}
	before := heap()
	var all sync.WaitGroup
	for range waiting {
		all.Go(func() {
			body, done, err := a.readInTurn(httptest.NewRequestWithContext(t.Context(), "POST", "/v1/chat", &ending{bytes.NewReader(content), ended}), size)
			if err != nil || !bytes.Equal(body, content) {
				t.Errorf("%d bytes, %v", len(body), err)
				return
			}
			done()
		})
	}
	for range waiting {
		await.Receive(t, ended, "the end of a body")
	}
	if grown := int64(heap()) - int64(before); grown > 2*size {
		t.Errorf("%d waiting requests take %d bytes of memory", waiting, grown)
	}
	<-a.decoding
	all.Wait()
}
