// Package upstream tells how a program elsewhere failed that answers for an agent: what the sender of the message reads,
// whether another attempt may help, and when. It makes no request itself. Models have words of their own, in agents/llm.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

// What the sender of a message reads. The cause, for the operator, says what happened.
const (
	Unreachable = "The agent cannot be reached right now. Please try again later."
	Busy        = "The agent is busy right now. Please try again later."
	Late        = "The agent did not answer in time. Please try again later."
	Refused     = "The agent could not take this message."
	Unusable    = "The agent gave an answer that could not be used."
)

// ErrDown is in the chain of failures that no message can cause: there was no connection, so that nothing of the message was sent. Any
// other failure may be that of one message, also if a gateway reports it: 502 and 504 for a request that makes the program crash or
// takes too long, 429 and 503 for one that is too expensive.
var ErrDown = errors.New("the program does not answer")

// ErrBusy is in the chain of failures that say that the program has no room now: others may have taken it.
var ErrBusy = errors.New("the program is busy")

// busy adds ErrBusy to the chain of an error and keeps its text.
type busy struct{ error }

// Is reports whether target is ErrBusy.
func (busy) Is(target error) bool { return target == ErrBusy }

// Unwrap returns the error.
func (b busy) Unwrap() error { return b.error }

// PutOff is the failure of a program that is busy; public is what the sender of the message reads.
func PutOff(after time.Duration, public string, cause error) *fault.Fault {
	return fault.RetryIn(after, public, busy{cause}).Coded(normalized.FailedBusy)
}

// Down is the failure of a program that cannot be reached now, or breaks off.
func Down(after time.Duration, cause error) error {
	return fault.RetryIn(after, Unreachable, cause).Coded(normalized.FailedUnreachable)
}

// Misconfigured is the failure of a program that cannot be reached until the operator changes something.
func Misconfigured(cause error) error {
	return fault.GiveUp(Unreachable, cause).Coded(normalized.FailedUnreachable)
}

// Overdue is the failure of a program that took too long.
func Overdue(cause error) error { return fault.RetryIn(0, Late, cause).Coded(normalized.FailedTimeout) }

// NotTaken is the failure of a program that refuses the message; another attempt would be refused, too.
func NotTaken(cause error) error { return fault.GiveUp(Refused, cause).Coded(normalized.FailedRefused) }

// Unconnected puts ErrDown into the chain of an error of an HTTP exchange, or of a dial, that had no connection.
func Unconnected(err error) error {
	if safehttp.Unconnected(err) {
		return fmt.Errorf("%w: %w", ErrDown, err)
	}
	return err
}

// Dial reports whether a program takes connections at an address, host and port. Errors are those of Unconnected.
func Dial(ctx context.Context, client *safehttp.Client, address string) error {
	connection, err := client.DialContext(ctx, "tcp", address)
	if err != nil {
		return Unconnected(err)
	}
	return connection.Close()
}

// Probe sends a request without a message, and reports why the program behind it does not work: it takes no connection, cuts it or does not
// answer, or a gateway says that nothing behind it does. Any other answer shows a working program, whatever it says about the request.
func Probe(client *safehttp.Client, request *http.Request) error {
	response, err := client.Do(request)
	if err != nil {
		return Unconnected(err)
	}
	_ = response.Body.Close()
	if nothingBehind(response.StatusCode) {
		return fmt.Errorf("%s %s: %s", request.Method, WithoutQuery(request.URL.String()), response.Status)
	}
	return nil
}

// nothingBehind reports whether a gateway says with a status that the program behind it does not work. 520 to 530 are those of Cloudflare.
func nothingBehind(status int) bool {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return status >= 520 && status <= 530
}

// MaxRetryAfter is the longest pause that the other side can ask for.
const MaxRetryAfter = 24 * time.Hour

// NotUsable is the failure of an answer that came and means nothing to us; another attempt would bring the same.
func NotUsable(cause error) error {
	return fault.GiveUp(Unusable, cause).Coded(normalized.FailedInvalidAnswer)
}

// Outcome is what became of one exchange with the program, for metrics: answered, failed, or retry where another attempt may help.
func Outcome(err error) string {
	switch {
	case err == nil:
		return "answered"
	case fault.Of(err).Permanent:
		return "failed"
	}
	return "retry"
}

// Destination returns host and port of the operator's URL, the only destination that it opens. The faults name the field url: instead
// says what to use in place of a user and password in it, example is an address as it should be.
func Destination(address, example, instead string) (string, error) {
	target, err := url.Parse(address)
	switch {
	case err != nil || target.Hostname() == "":
		return "", fault.InField("url", "must be an address such as "+example)
	case target.Scheme != "http" && target.Scheme != "https":
		return "", fault.InField("url", "must begin with https:// or http://")
	case target.User != nil:
		return "", fault.InField("url", "must not carry a user or password: "+instead)
	case target.Fragment != "":
		return "", fault.InField("url", "must not have a fragment")
	}

	port := target.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[target.Scheme]
	}
	return net.JoinHostPort(target.Hostname(), port), nil
}

// WithoutQuery returns an address without its query, its fragment and a user, which may be secrets; one that cannot be read as it is.
func WithoutQuery(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// Interrupted classes an exchange that ended before the answer was whole: by a limit of ours when ctx is over, by the
// rules for addresses and sizes, or by the network. A fault in the chain stays what it is.
func Interrupted(ctx context.Context, err error) error {
	if known, is := errors.AsType[*fault.Fault](err); is {
		return known
	}

	switch {
	case ctx.Err() != nil:
		return Overdue(context.Cause(ctx))
	case errors.Is(err, safehttp.ErrRefused), errors.Is(err, safehttp.ErrRedirects):
		return Misconfigured(err)
	case errors.Is(err, safehttp.ErrTooLarge):
		return NotUsable(err)
	}
	return Down(0, Unconnected(err))
}

// Status classes an answer with another status than those of success. after is a pause that the other side asked for.
func Status(status int, after time.Duration, cause error) error {
	switch {
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return PutOff(after, Busy, cause)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusInternalServerError,
		status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return Down(after, cause)
	case status >= 300 && status < 400:
		return Misconfigured(fmt.Errorf("%w; redirects are not followed: configure the final address", cause))
	case status >= 400 && status < 500:
		return NotTaken(cause)
	}
	return NotUsable(cause)
}

// RetryAfter reads seconds or a date (RFC 9110, section 10.2.3), at most MaxRetryAfter; zero when there is neither.
func RetryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, MaxRetryAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(0, min(time.Until(at), MaxRetryAfter))
}

// maxExcerpt bounds what Excerpt looks at, in bytes.
const maxExcerpt = 4 << 10

// Excerpt makes text of a stranger fit for a log or a sentence: one line of printable characters, at most so many.
func Excerpt(text string, characters int) string {
	if len(text) > maxExcerpt {
		text = text[:maxExcerpt]
	}

	printable := strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) {
			return char
		}
		return ' '
	}, strings.ToValidUTF8(text, ""))

	short := []rune(strings.Join(strings.Fields(printable), " "))
	return string(short[:min(len(short), characters)])
}
