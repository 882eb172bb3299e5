package request

import (
	"context"
	"errors"
	"time"

	"inbox/agents/runtime/value"
)

// timeForms are the forms in which timeout_at and the bounds of a list may be written; without zone they are UTC.
var timeForms = []string{time.RFC3339Nano, "2006-01-02T15:04:05", time.DateTime, time.DateOnly}

func parseTime(given string) (time.Time, bool) {
	for _, form := range timeForms {
		if at, err := time.Parse(form, value.Trim(given)); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}

// TimeoutAt gives the time at which the request ends by itself; false when it names none that can be read, so that it
// waits for as long as the store keeps it.
func TimeoutAt(request map[string]any) (time.Time, bool) {
	return parseTime(value.Text(request["timeout_at"]))
}

// Expire times out every request that is due at now, each with the continuation, which may be nil. It gives the number
// of those that it ended itself. The errors are joined; one failure does not keep the others waiting.
func (l Lifecycle) Expire(ctx context.Context, now time.Time, resume Continuation, callerContext map[string]any) (int, error) {
	due, err := l.Pending(ctx, Query{DueBy: now})
	if err != nil {
		return 0, err
	}
	ended := 0
	var failures []error
	for _, one := range due {
		answer, err := l.Timeout(ctx, value.Text(one["request_id"]), resume, callerContext)
		if err != nil {
			failures = append(failures, err)
		}
		if answer != nil && !answer.Duplicate {
			ended++
		}
	}
	return ended, errors.Join(failures...)
}
