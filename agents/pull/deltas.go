package pull

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
)

// Bounds of the deltas of one turn: a batch every batchPause makes at most 2,560 deltas a second.
const (
	batchPause  = 25 * time.Millisecond
	batchDeltas = 64
	batchBytes  = 256 << 10
	beatPause   = time.Second // between signs of life that empty lines give

	maxDeltaBytes = 4 * MaxAnswerBytes // that are kept of one run; what has no room in an answer is left out of it long before
)

// received is the answer to a request with deltas.
type received struct {
	Next  int   `json:"next"` // number of the next delta: so many were taken in this lease
	Lease Lease `json:"lease"`
}

// handDeltas takes deltas: one per line, as they grow, or one JSON document. Whole batches are kept when a later line is
// refused. With the parameter first, the number of the first delta, a request can be repeated.
func (s *Service) handDeltas(w http.ResponseWriter, r *http.Request, agent *Agent) error {
	lease, err := s.working(r, agent, fault.Conflict)
	if err != nil {
		return err
	}

	known, release, err := s.sessions.take(lease.run)
	if err != nil {
		return err
	}

	err = s.receive(w, r, lease, known)
	next := known.next
	release(err != nil)
	if err != nil {
		return err
	}

	httpserver.WriteJSON(w, http.StatusOK, received{Next: next, Lease: leaseOf(lease.run, agent.settings.Lease)})
	return nil
}

func (s *Service) receive(w http.ResponseWriter, r *http.Request, lease holding, known *session) error {
	if _, err := s.catchUp(r.Context(), lease.run, known); err != nil {
		return unavailable("reading the deltas", err)
	}

	skip, err := repeated(r.URL.Query().Get("first"), known.next)
	if err != nil {
		return err
	}

	b := &batch{service: s, ctx: r.Context(), lease: lease, known: known, skip: skip}
	if mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); mediaType == "application/json" {
		return b.document(r.Body)
	}

	httpserver.StreamBody(r)
	controller := http.NewResponseController(w)
	defer func() { _ = controller.SetReadDeadline(time.Time{}) }()
	return b.lines(newLineReader(r.Body, func() {
		_ = controller.SetReadDeadline(time.Now().Add(lease.agent.settings.Lease)) // a recorder in a test has no connection
	}))
}

// repeated returns how many deltas of the request are here already.
func repeated(first string, next int) (skip int, err error) {
	if first == "" {
		return 0, nil
	}

	number, err := strconv.Atoi(first)
	if err != nil || number < 0 {
		return 0, fault.InField("first", "must be the number of the first delta of the request, counted from 0")
	}
	if number > next {
		return 0, fault.InField("first", "must be at most "+strconv.Itoa(next)+": the deltas from there on are missing")
	}
	return next - number, nil
}

// batch gathers deltas that are written together.
type batch struct {
	service *Service
	ctx     context.Context
	lease   holding
	known   *session
	skip    int // deltas that were taken before

	deltas []json.RawMessage
	size   int
}

// document takes a body that is one delta.
func (b *batch) document(body io.Reader) error {
	content, err := io.ReadAll(io.LimitReader(body, maxLineBytes+1))
	if err != nil {
		return unread(err)
	}
	if len(content) > maxLineBytes {
		return errLineTooLong
	}
	if err := b.add(content); err != nil {
		return err
	}
	return b.write()
}

// lines takes a body of JSON lines. What is there is written before the next read can block.
func (b *batch) lines(lines *lineReader) error {
	for {
		if !lines.ready() {
			if err := b.write(); err != nil {
				return err
			}
		}

		line, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return b.write()
		case err != nil:
			return errors.Join(unread(err), b.write())
		case len(bytes.TrimSpace(line)) == 0:
			err = b.sign()
		default:
			err = b.add(line)
		}

		if err != nil {
			return err
		}
	}
}

// add checks one delta; a refused one is named by its number, and those before it are kept.
func (b *batch) add(encoded []byte) error {
	if b.skip > 0 {
		b.skip--
		return nil
	}

	delta, err := normalized.DecodeDelta(encoded, b.service.options.Limits)
	if err == nil && b.known.size+b.size+len(encoded) > maxDeltaBytes {
		err = fault.Newf(fault.TooLarge, "the deltas of the run are over %d bytes; send the answer", maxDeltaBytes)
	}
	if err == nil {
		err = b.known.fold.Add(delta)
	}
	if err != nil {
		number := b.known.next + len(b.deltas)
		if err := b.write(); err != nil {
			return err
		}
		broken := *fault.Of(err)
		broken.Public = "delta " + strconv.Itoa(number) + ": " + broken.Public
		return &broken
	}

	b.deltas = append(b.deltas, bytes.Clone(encoded))
	b.size += len(encoded)
	if len(b.deltas) < batchDeltas && b.size < batchBytes {
		return nil
	}

	return b.write()
}

// write stores the batch, after a pause when the last one is too near. It fails when the run is over.
func (b *batch) write() error {
	if len(b.deltas) == 0 {
		return nil
	}
	if err := b.pause(); err != nil {
		return err
	}

	s, run := b.service, b.lease.run
	if err := b.check(); err != nil {
		return err
	}

	key := deltaKey(b.known.next)
	fresh, err := s.rows.first(b.ctx, runSpace+run, key, b.deltas, nil, b.lease.until)
	if err != nil {
		return unavailable("keeping the deltas", err)
	}
	if !fresh {
		return fault.New(fault.RateLimited, "another request is bringing deltas of this turn: send them one after the other")
	}

	b.known.next, b.known.size = b.known.next+len(b.deltas), b.known.size+b.size
	b.known.last, b.known.sent = key, time.Now()
	b.deltas, b.size = nil, 0
	s.notifier.notifyAll(runTopic(run))
	return nil
}

func (b *batch) pause() error {
	timer := time.NewTimer(time.Until(b.known.sent.Add(batchPause)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

// check refuses deltas of a run that is over.
func (b *batch) check() error {
	found, err := b.service.rows.status(b.ctx, b.lease.run)
	if err != nil {
		return unavailable("looking at the lease", err)
	}
	if found.end != nil || found.claim == nil {
		return over(fault.Conflict)
	}
	return nil
}

// sign takes an empty line as a sign of life.
func (b *batch) sign() error {
	if time.Since(b.known.beat) < beatPause {
		return nil
	}

	b.known.beat = time.Now()
	if err := b.check(); err != nil {
		return err
	}
	if err := b.service.rows.beat(b.ctx, b.lease.run, b.lease.until); err != nil {
		return unavailable("prolonging the lease", err)
	}

	b.service.notifier.notifyAll(runTopic(b.lease.run))
	return nil
}

// maxLineBytes bounds one delta.
const maxLineBytes = 1 << 20

var errLineTooLong = fault.New(fault.TooLarge, "a delta is over 1 MiB")

// lineReader reads lines that end with LF or CR LF; the last one may end with the body.
type lineReader struct {
	source *bufio.Reader
	before func() // every read that may block
}

func newLineReader(source io.Reader, before func()) *lineReader {
	return &lineReader{source: bufio.NewReaderSize(source, 64<<10), before: before}
}

// ready reports whether a whole line is here, so that next does not block.
func (l *lineReader) ready() bool {
	here, _ := l.source.Peek(l.source.Buffered()) // only fails for more than is there
	return bytes.IndexByte(here, '\n') >= 0
}

// next returns a line without its end, valid until the following call; io.EOF when there are no more.
func (l *lineReader) next() ([]byte, error) {
	var long []byte
	for {
		if !l.ready() {
			l.before()
		}

		piece, err := l.source.ReadSlice('\n')
		if len(long)+len(piece) > maxLineBytes {
			return nil, errLineTooLong
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, piece...)
			continue
		}

		if long != nil {
			piece = append(long, piece...)
		}
		if err != nil && (!errors.Is(err, io.EOF) || len(piece) == 0) {
			return nil, err
		}

		return bytes.TrimSuffix(bytes.TrimSuffix(piece, []byte("\n")), []byte("\r")), nil
	}
}
