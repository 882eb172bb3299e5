package httpserver

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/admission"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/uniquejson"
)

var bodiesRefused = promauto.NewCounter(prometheus.CounterOpts{
	Name: "inbox_http_bodies_refused_total", Help: "Requests refused because too many bytes of request bodies were in memory.",
})

const (
	stepBytes    = 16 << 10         // of a body must arrive in stepTime
	stepTime     = 15 * time.Second // which is a rate of about 1 KiB in a second
	firstRoom    = 4 << 10          // made for a body first; it grows as bytes arrive
	bodyQuota    = "bodies"         // the limit of bytes under way
	budgetReturn = 2 * time.Second  // after which another attempt makes sense
)

// limitBody caps the size of the request body, the time to read it, and with it what all bodies take together. The read
// deadline ends with the body, because a deadline that runs out later would end the context of a handler that waits for an
// agent.
func (a *access) limitBody(w http.ResponseWriter, r *http.Request) *meteredBody {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}

	now := time.Now()
	body := &meteredBody{
		ReadCloser: http.MaxBytesReader(w, r.Body, a.maxBody), controller: http.NewResponseController(w),
		ends: now.Add(a.maxTime), bytes: a.bodies, source: ClientSource(r), limit: a.maxBody, time: a.maxTime,
	}

	unread := r.Body
	body.widen = func(limit int64) { body.ReadCloser = http.MaxBytesReader(w, unread, limit) }

	body.await(now)
	r.Body = body
	return body
}

// meteredBody is a request body that arrives at a least rate, and whose bytes are counted as they arrive.
type meteredBody struct {
	io.ReadCloser
	controller *http.ResponseController // nil = no deadline is set
	ends       time.Time                // at which the whole body must be there
	source     admission.Source
	bytes      *admission.Bytes
	step       int // bytes since the deadline was moved
	discarding bool
	limit      int64             // of its size
	time       time.Duration     // for a body of that size
	widen      func(limit int64) // sets another limit, before anything was read

	mu     sync.Mutex
	proven bool
	freed  bool
	taken  int64
}

// await returns the next step its deadline.
func (b *meteredBody) await(now time.Time) {
	if b.controller == nil {
		return
	}

	deadline := now.Add(stepTime)
	if deadline.After(b.ends) {
		deadline = b.ends
	}
	if b.controller.SetReadDeadline(deadline) != nil {
		b.controller = nil // a recorder in a test has no connection
	}
}

func (b *meteredBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	if b.step += n; b.step >= stepBytes {
		b.step = 0
		b.await(time.Now())
	}

	if n > 0 && !b.discarding && !b.take(int64(n)) {
		bodiesRefused.Inc()
		return 0, overBudget(b.bytes.Limit())
	}

	if err == io.EOF {
		b.release()
	}
	return n, err
}

func overBudget(limit int64) error {
	return &fault.Fault{
		Kind: fault.Unavailable, Public: "too many requests are being read at the same time: try again later", RetryAfter: budgetReturn,
		Quota: fault.Quota{Name: bodyQuota, Amount: limit, Unit: "content-bytes"},
	}
}

// take counts bytes that arrived. After the answer began they are counted no more: nothing keeps them.
func (b *meteredBody) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.freed {
		return true
	}
	if !b.bytes.Take(b.source, b.proven, n) {
		return false
	}

	b.taken += n
	return true
}

// free returns the bytes. It may be called again, and on nil.
func (b *meteredBody) free() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freed = true
	b.bytes.Give(b.source, b.taken)
	b.taken = 0
}

func (b *meteredBody) Close() error {
	b.release()
	return b.ReadCloser.Close()
}

func (b *meteredBody) release() {
	if b.controller != nil {
		_ = b.controller.SetReadDeadline(time.Time{}) // the connection is gone: nothing to free
		b.controller = nil
	}
}

// ReadBody reads the whole body of a request. Room grows as bytes arrive: the length that a client announces is its word
// and reserves nothing. Faults: TooLarge above limit, Unavailable when too many bytes of all clients are in memory,
// Malformed when the body ended early.
func ReadBody(r *http.Request, limit int64) ([]byte, error) {
	tooLarge := fault.Newf(fault.TooLarge, "the request body is over %d bytes", limit)
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}

	first := int64(firstRoom)
	if r.ContentLength >= 0 { // a byte more, so that the end is seen without more room
		first = min(first, r.ContentLength+1)
	}

	body := make([]byte, 0, first)
	for {
		if len(body) == cap(body) {
			room := min(2*int64(cap(body)), limit+1)
			if r.ContentLength >= 0 {
				room = min(room, max(r.ContentLength, int64(cap(body)))+1)
			}
			body = append(make([]byte, 0, room), body...)
		}

		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return nil, tooLarge
		case errors.Is(err, io.EOF):
			return body, nil
		case err != nil:
			return nil, bodyFault(err)
		}
	}
}

// SpoolBody is ReadBody into a file, for bodies that wait until there is memory for what is made of them. The file is in a directory, or in that
// of the operating system for temporary files; it has no name and ends with Close. Faults are those of ReadBody; Unavailable, too, when the file
// cannot be written.
func SpoolBody(r *http.Request, directory string, limit int64) (*os.File, error) {
	tooLarge := fault.Newf(fault.TooLarge, "the request body is over %d bytes", limit)
	if r.ContentLength > limit {
		return nil, tooLarge
	}
	file, err := os.CreateTemp(directory, "inbox-request-*")
	if err != nil {
		return nil, noSpool(err)
	}
	if err := os.Remove(file.Name()); err != nil { // a crash leaves nothing
		return nil, errors.Join(noSpool(err), file.Close())
	}

	from := &erringReader{Reader: io.LimitReader(r.Body, limit+1)}
	size, err := io.Copy(file, from)
	switch {
	case from.failure != nil:
		err = bodyFault(from.failure)
	case err != nil:
		err = noSpool(err)
	case size > limit:
		err = tooLarge
	default:
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func noSpool(err error) error {
	return fault.Wrap(fault.Unavailable, "the server cannot store a large request at the moment: try again later", err)
}

// erringReader remembers why reading failed, so that it is not taken for a failure to write.
type erringReader struct {
	io.Reader

	failure error
}

// Read implements io.Reader.
func (r *erringReader) Read(into []byte) (int, error) {
	n, err := r.Reader.Read(into)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failure = err
	}
	return n, err
}

// bodyFault returns what goes wrong while a body is read its kind.
func bodyFault(err error) error {
	if known, is := errors.AsType[*fault.Fault](err); is {
		return known
	}
	if tooLarge, over := errors.AsType[*http.MaxBytesError](err); over {
		return fault.Newf(fault.TooLarge, "the request body is over %d bytes", tooLarge.Limit)
	}
	return fault.Wrap(fault.Malformed, "the request body ended early", err)
}

// DiscardBody reads at most n bytes on and keeps nothing. Most clients write to the end before they read an answer, and
// would see a broken connection instead of a refusal.
func DiscardBody(r *http.Request, n int64) {
	if found, ok := r.Context().Value(requestKey{}).(*known); ok && found.body != nil {
		found.body.free()
		found.body.discarding = true
	}
	_, _ = io.CopyN(io.Discard, r.Body, n)
}

// StreamBody tells that the handler reads the body piece by piece for as long as it comes and keeps no more than a piece: it
// sets deadlines of its own, and the bytes count for nothing.
func StreamBody(r *http.Request) {
	if found, ok := r.Context().Value(requestKey{}).(*known); ok && found.body != nil {
		found.body.free()
		found.body.discarding, found.body.controller = true, nil
	}
}

// LargerBody lets the body of a request be larger than those of others, up to limit bytes, with more time in the same measure.
// It is for callers that proved who they are: call Proven, too, before the body is read. A smaller limit changes nothing.
func LargerBody(r *http.Request, limit int64) {
	found, ok := r.Context().Value(requestKey{}).(*known)
	if !ok || found.body == nil || limit <= found.body.limit {
		return
	}

	body := found.body
	body.ends = body.ends.Add(time.Duration(float64(body.time) * (float64(limit)/float64(body.limit) - 1)))
	body.limit = limit
	body.widen(limit)
}

// PassBody tells that the handler keeps no more than a piece of the body at a time: its bytes count for nothing, while the bounds of its
// size and time hold.
func PassBody(r *http.Request) {
	if found, ok := r.Context().Value(requestKey{}).(*known); ok && found.body != nil {
		found.body.free()
		found.body.discarding = true
	}
}

// Proven tells that the caller of a request has proven who it is. Its body may then take from what is kept for such
// callers, and more of the whole. Call it before the body is read.
func Proven(r *http.Request) {
	if found, ok := r.Context().Value(requestKey{}).(*known); ok && found.body != nil {
		found.body.mu.Lock()
		defer found.body.mu.Unlock()
		found.body.proven = true
	}
}

// RefuseDuplicates returns a Malformed fault if an object of a JSON body has a member twice: readers differ in which one counts (RFC 8259,
// section 4), so that one could check what another does not act on. Names of the outermost object are the same in any case. A body that
// nests too deeply to be looked at is refused as well.
func RefuseDuplicates(body []byte) error { return RefuseCostly(body, 0) }

// RefuseCostly is RefuseDuplicates for a body of at most so many values; 0 = any number. What a decoder makes of a value can take a hundred
// times its bytes.
func RefuseCostly(body []byte, values int) error {
	name, found, over := uniquejson.Examine(body, uniquejson.Names{Folded: 1}, uniquejson.Limits{Depth: maxBodyDepth, Values: values})
	switch {
	case over == uniquejson.TooDeep:
		return fault.Newf(fault.Malformed, "the body %s: at most %d levels are read", over, maxBodyDepth)
	case over != "":
		return fault.Newf(fault.Malformed, "the body %s: at most %d are read", over, values)
	case !found:
		return nil
	}
	return fault.Newf(fault.Malformed, "%q names a member that its object has already; send it once", clip.Bytes(name, maxShownName))
}

const (
	maxShownName = 100 // bytes of a name in an error
	maxBodyDepth = 500 // of objects and lists; decoders of requests take less
)
