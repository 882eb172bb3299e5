package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"inbox/agents/upstream"
)

// errReading marks a failure to read the answer, as opposed to one to understand it.
var errReading = errors.New("read webhook answer")

// interrupted classes an exchange that ended before the answer was whole. outer is the engine's context, limited
// ours with the limits of time.
func interrupted(outer, limited context.Context, err error) error {
	if outer.Err() != nil {
		return fmt.Errorf("ask webhook: %w", context.Cause(outer))
	}
	return upstream.Interrupted(limited, fmt.Errorf("ask webhook: %w", err))
}

// refusal classes an answer with another status than 200 and 204. The body goes to the operator only.
func (a *Agent) refusal(response *http.Response, body io.Reader) error {
	start, _ := io.ReadAll(io.LimitReader(body, 512))
	cause, after := fmt.Errorf("the webhook answered %d: %q; want 200 or 204", response.StatusCode, excerpt(string(start))), upstream.RetryAfter(response.Header)
	switch status := response.StatusCode; {
	case status == http.StatusUnauthorized && a.options.rotates(): // the program is being given the new secret
		return upstream.Down(after, fmt.Errorf("%w; a secret is being changed: the program knows neither", cause))
	case status >= 300 && status < 400:
		cause = fmt.Errorf("%w; it points to %q", cause, excerpt(response.Header.Get("Location")))
	}
	return upstream.Status(response.StatusCode, after, cause)
}

func excerpt(text string) string { return upstream.Excerpt(text, 200) }
