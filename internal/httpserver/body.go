package httpserver

import (
	"io"
	"net/http"
	"time"
)

// limitBody caps the size of the request body and the time to read it. The read deadline ends with the body, because
// a deadline that runs out later would end the context of a handler that waits for an agent.
func (a *access) limitBody(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	controller := http.NewResponseController(w)
	if err := controller.SetReadDeadline(time.Now().Add(a.maxTime)); err != nil {
		controller = nil // a recorder in a test has no connection
	}
	r.Body = &timedBody{ReadCloser: http.MaxBytesReader(w, r.Body, a.maxBody), controller: controller}
}

type timedBody struct {
	io.ReadCloser
	controller *http.ResponseController
}

func (b *timedBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if err == io.EOF {
		b.release()
	}
	return n, err
}

func (b *timedBody) Close() error {
	b.release()
	return b.ReadCloser.Close()
}

func (b *timedBody) release() {
	if b.controller != nil {
		_ = b.controller.SetReadDeadline(time.Time{}) // the connection is gone: nothing to free
		b.controller = nil
	}
}
