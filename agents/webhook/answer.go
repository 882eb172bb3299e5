package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"inbox/agents/upstream"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// readDocument takes a whole NormalizedResponse. One that is too long to be read is an answer that says so.
func (a *Agent) readDocument(body io.Reader, question normalized.Message, emit emit) error {
	var left normalized.Left
	content, err := io.ReadAll(body)
	if errors.Is(err, safehttp.ErrTooLarge) { // the start of a document is none
		content, err = []byte("{}"), nil
		left.Rest = true
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errReading, err)
	}

	return a.document(content, left, question, emit)
}

func (a *Agent) document(content []byte, left normalized.Left, question normalized.Message, emit emit) error {
	response, err := normalized.DecodeResponse(content, a.options.Limits)
	if err != nil {
		return upstream.NotUsable(err)
	}
	return a.pass(response, left, question, emit)
}

func (a *Agent) pass(response normalized.Response, left normalized.Left, question normalized.Message, emit emit) error {
	response, err := response.Completed(question, a.options.Limits, left)
	if err != nil {
		return upstream.NotUsable(err)
	}

	emit(whole(response))
	return nil
}

// readText takes an answer that is text. Several libraries name text/plain where a program writes JSON and names no type, so an object
// with a member of a response is a document.
func (a *Agent) readText(body io.Reader, mediaType string, question normalized.Message, emit emit) error {
	var left normalized.Left
	content, err := io.ReadAll(body)
	if errors.Is(err, safehttp.ErrTooLarge) {
		left.Rest, err = true, nil
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errReading, err)
	}

	if isResponse(content) {
		return a.document(content, left, question, emit)
	}
	if content = bytes.TrimPrefix(content, []byte("\ufeff")); !utf8.Valid(content) && !left.Rest {
		return upstream.NotUsable(errors.New("the webhook answered with text that is not UTF-8"))
	}

	part := normalized.Part{Kind: normalized.PartText, MIME: mediaType, Content: strings.ToValidUTF8(string(content), "")}
	return a.pass(normalized.Response{Parts: []normalized.Part{part}}, left, question, emit)
}

// isResponse reports whether content is a JSON object that is empty or has a member of a response.
func isResponse(content []byte) bool {
	var members map[string]json.RawMessage
	if json.Unmarshal(bytes.TrimPrefix(content, []byte("\ufeff")), &members) != nil || members == nil {
		return false
	}
	for _, name := range []string{"parts", "silent", "status", "error", "dispatch"} {
		if members[name] != nil {
			return true
		}
	}
	return len(members) == 0
}

func whole(response normalized.Response) normalized.Delta {
	return normalized.Delta{Kind: normalized.DeltaResponse, Response: &response}
}

// Names of the events of a streamed answer. Events with other names are skipped, so that new ones can be added.
const (
	eventDelta    = "delta"    // data: a Delta
	eventResponse = "response" // data: the whole NormalizedResponse; ends the answer
	eventEnd      = "end"      // ends the answer
)

// answerStream reads the deltas of one streamed answer.
type answerStream struct {
	limits   normalized.Limits
	events   *eventReader
	question normalized.Message
	fold     *normalized.Fold
	emit     emit
}

var errStopped = errors.New("the engine wants no more deltas")

// readStream passes deltas on while they come. reliable says that the end of the body is the end of the answer.
func (a *Agent) readStream(body io.Reader, reliable bool, question normalized.Message, emit emit) error {
	stream := answerStream{
		limits: a.options.Limits, events: newEventReader(body), question: question,
		fold: normalized.NewFold(a.options.Limits), emit: emit,
	}
	for {
		next, err := stream.events.next()
		switch {
		case errors.Is(err, io.EOF) && reliable:
			return stream.finish()
		case errors.Is(err, safehttp.ErrTooLarge), errors.Is(err, errEventTooLarge):
			stream.fold.Cut()
			return stream.finish()
		case errors.Is(err, errCutEvent) && reliable:
			return upstream.NotUsable(err)
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%w: the stream ended without the event %q or %q, so it may be cut", errReading, eventEnd, eventResponse)
		case err != nil:
			return fmt.Errorf("%w: %w", errReading, err)
		}

		last, err := stream.take(next)
		if errors.Is(err, errStopped) {
			return nil
		}
		if err != nil || last {
			return err
		}
	}
}

// take handles one event; last = the answer is complete.
func (s answerStream) take(next event) (last bool, err error) {
	switch next.name {
	case eventDelta, "": // an event without a name is called "message" by the standard
		delta, err := normalized.DecodeDelta([]byte(next.data), s.limits)
		if err != nil {
			return false, upstream.NotUsable(fmt.Errorf("event %q: %w", eventDelta, err))
		}
		return false, s.pass(delta)
	case eventResponse:
		response, err := normalized.DecodeResponse([]byte(next.data), s.limits)
		if err != nil {
			return false, upstream.NotUsable(fmt.Errorf("event %q: %w", eventResponse, err))
		}
		if err := s.pass(whole(response)); err != nil {
			return false, err
		}
		return true, s.finish()
	case eventEnd:
		return true, s.finish()
	}
	return false, nil
}

// pass hands what has room of a delta to the engine when it fits what came before, with the ids that an agent may leave out.
func (s answerStream) pass(delta normalized.Delta) error {
	if delta.Kind == normalized.DeltaResponse && delta.Response != nil {
		complete := delta.Response.Answering(s.question)
		delta.Response = &complete
	}

	taken, some, err := s.fold.Take(delta)
	if err != nil {
		return upstream.NotUsable(fmt.Errorf("event %q: %w", eventDelta, err))
	}
	if some && !s.emit(taken) {
		return errStopped
	}
	return nil
}

// finish demands a valid answer and returns the engine what an agent may leave out of it.
func (s answerStream) finish() error {
	response, err := s.fold.Response()
	if err != nil {
		return upstream.NotUsable(err)
	}

	grown := s.fold.Whole() && response.Answering(s.question).Equal(response)
	complete, err := response.Completed(s.question, s.limits, normalized.Left{})
	if err != nil {
		return upstream.NotUsable(err)
	}

	if !grown {
		s.emit(whole(complete))
	}

	return nil
}
