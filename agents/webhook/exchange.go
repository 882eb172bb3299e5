package webhook

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/normalized"
)

// emit hands one delta to the engine; false = it wants no more.
type emit func(normalized.Delta) bool

var (
	errTimeLimit = errors.New("the webhook did not finish its answer within the time limit")
	errIdleLimit = errors.New("the webhook sent nothing for too long; a comment line (\": wait\") keeps a stream alive")
)

// exchange does one request and one answer. Its errors are faults, except for the end of ctx.
func (a *Agent) exchange(ctx context.Context, turn agents.Turn, emit emit) error {
	limited, stop := context.WithTimeoutCause(ctx, a.options.TimeLimit, errTimeLimit)
	defer stop()
	limited, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	request, err := a.request(limited, turn)
	if err != nil {
		return upstream.NotUsable(err)
	}

	response, err := a.options.Client.Do(request)
	if err != nil {
		return interrupted(ctx, limited, err)
	}
	defer response.Body.Close()

	body := &patientReader{source: response.Body, limit: a.options.IdleLimit, giveUp: func() { cancel(errIdleLimit) }}
	err = a.read(response, body, turn.Message, emit)
	if errors.Is(err, errReading) {
		return interrupted(ctx, limited, err)
	}

	return err
}

// read takes the answer in the form that the webhook chose.
func (a *Agent) read(response *http.Response, body io.Reader, question normalized.Message, emit emit) error {
	if response.StatusCode == http.StatusNoContent {
		emit(whole(normalized.Response{InReplyTo: question.ID, ThreadID: question.ThreadID, Silent: true}))
		return nil
	}
	if response.StatusCode != http.StatusOK {
		return a.refusal(response, body)
	}
	switch mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); {
	case mediaType == "text/event-stream":
		return a.readStream(body, reliableEnd(response), question, emit)
	case mediaType == "application/json", mediaType == "text/json", strings.HasSuffix(mediaType, "+json"):
		return a.readDocument(body, question, emit)
	case mediaType == "text/plain", mediaType == "text/markdown":
		return a.readText(body, mediaType, question, emit)
	default:
		return upstream.NotUsable(errors.New("the webhook answered with Content-Type \"" + excerpt(mediaType) +
			"\"; want application/json, text/event-stream, text/plain or text/markdown"))
	}
}

// reliableEnd reports whether the end of the body proves that all of it came. A body that only ends with its connection
// (HTTP/1.0, as Python's http.server speaks by default) looks the same when the agent dies in the middle.
func reliableEnd(response *http.Response) bool {
	return response.ContentLength >= 0 || response.ProtoMajor >= 2 || len(response.TransferEncoding) > 0
}

// patientReader fails when one read takes longer than the limit. The clock stands still between reads, because
// the time that the engine needs for a delta is not the agent's.
type patientReader struct {
	source io.Reader
	limit  time.Duration
	giveUp func()
	timer  *time.Timer
}

func (p *patientReader) Read(into []byte) (int, error) {
	if p.timer == nil {
		p.timer = time.AfterFunc(p.limit, p.giveUp)
	} else {
		p.timer.Reset(p.limit)
	}
	defer p.timer.Stop()
	return p.source.Read(into)
}
