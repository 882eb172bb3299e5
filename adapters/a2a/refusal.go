package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/identity"
	"inbox/internal/fault"
	"inbox/normalized"
)

const (
	maxSaidBytes  = 500 // of a peer's words in a response
	maxRetryAfter = time.Hour
)

// refusal turns a failed request into a response or a classed error. No text of ours about it holds the token: the
// SDK's errors name the method and the status only.
func (w *wire) refusal(to identity.Address, err error) (normalized.Response, error) {
	switch {
	case w.status == http.StatusUnauthorized, w.status == http.StatusForbidden,
		errors.Is(err, a2a.ErrUnauthenticated), errors.Is(err, a2a.ErrUnauthorized):
		return refused(to, w.said), nil
	case w.status == http.StatusTooManyRequests, w.status >= http.StatusInternalServerError:
		return normalized.Response{}, fault.RetryIn(w.retryAfter, "the other agent cannot take the message right now", err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return normalized.Response{}, fault.RetryIn(0, "the other agent did not answer in time", err)
	}
	if known, ok := errors.AsType[*fault.Fault](err); ok {
		return normalized.Response{}, known
	}
	if w.status == 0 {
		return normalized.Response{}, unreachable(err)
	}
	return normalized.Response{}, fault.GiveUp("the other agent does not understand the message", err)
}

// retryAfter reads the header in seconds, at most an hour; a date is not read.
func retryAfter(header http.Header) time.Duration {
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, maxRetryAfter)
}

// errorText reads what a refusing server says, in one line.
func errorText(body io.Reader) string {
	var answer struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.NewDecoder(body).Decode(&answer) != nil {
		return ""
	}
	return oneLine(answer.Error.Message)
}

func textOf(message *a2a.Message) string {
	if message == nil {
		return ""
	}
	for _, part := range message.Parts {
		if part != nil && part.Text() != "" {
			return oneLine(part.Text())
		}
	}
	return ""
}

func oneLine(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if len(text) > maxSaidBytes {
		text = strings.ToValidUTF8(text[:maxSaidBytes], "") + "…"
	}
	return text
}
