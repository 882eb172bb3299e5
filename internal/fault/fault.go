// Package fault carries one failure through the server: what kind it is, what a stranger may be told, what
// really happened and when a retry makes sense. Adapters turn the kind into their protocol's status; the cause
// stays in our log. It does not log and it does not format for any protocol.
package fault

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says which of the cases of the message contract (section 12) a failure is.
type Kind string

// The kinds. Every adapter maps each of them to exactly one protocol answer.
const (
	Malformed       Kind = "malformed"       // the input breaks a rule; Field names it
	TooLarge        Kind = "too_large"       // over a size limit
	Unauthenticated Kind = "unauthenticated" // proof of the sender is missing or wrong
	Forbidden       Kind = "forbidden"       // sender is known and may not do this
	NotFound        Kind = "not_found"       // no such agent, task or object (or not yours)
	Gone            Kind = "gone"            // existed and was removed
	Conflict        Kind = "conflict"        // same id with other content, or a state that excludes the request
	RateLimited     Kind = "rate_limited"    // over a rate or a budget; RetryAfter is set
	Unsupported     Kind = "unsupported"     // a form, media type or operation that we do not offer
	Unavailable     Kind = "unavailable"     // our store, queue or a needed peer is down; a retry may succeed
	Internal        Kind = "internal"        // a defect of ours
)

// Fault is an error with a kind, a text that may leave the server, and the private cause.
type Fault struct {
	Kind       Kind
	Public     string        // safe for a peer: what was wrong and what to change; never internals
	Field      string        // the input field at fault, for Malformed and TooLarge
	RetryAfter time.Duration // zero = unknown
	Quota      Quota         // the limit that was reached, for RateLimited and Unavailable; zero = not told
	Permanent  bool          // for work that we repeat: true = another attempt cannot succeed
	Code       string        // stable name of the reason, for programs; empty = that of Kind
	Cause      error         // private; reached through errors.Is and errors.As
}

// Quota is a limit as peers may know it.
type Quota struct {
	Name   string        // of the limit, in ASCII; empty = there is none to tell
	Amount int64         // units in a window; 0 = not told
	Unit   string        // empty = requests; content-bytes, concurrent-requests
	Window time.Duration // zero = the limit has none
}

// New makes a fault with a public text and no cause.
func New(kind Kind, public string) *Fault { return &Fault{Kind: kind, Public: public} }

// Newf is New with formatting; every argument becomes public.
func Newf(kind Kind, format string, args ...any) *Fault {
	return &Fault{Kind: kind, Public: fmt.Sprintf(format, args...)}
}

// InField makes a Malformed fault that names the field.
func InField(field, public string) *Fault {
	return &Fault{Kind: Malformed, Field: field, Public: public}
}

// Wrap makes a fault of the kind around a private cause.
func Wrap(kind Kind, public string, cause error) *Fault {
	return &Fault{Kind: kind, Public: public, Cause: cause}
}

// RetryIn classes the failure of an outgoing attempt as worth repeating after d (zero = the caller's schedule).
func RetryIn(d time.Duration, reason string, cause error) *Fault {
	return &Fault{Kind: Unavailable, Public: reason, RetryAfter: d, Cause: cause}
}

// Coded sets the code and returns the fault.
func (f *Fault) Coded(code string) *Fault {
	f.Code = code
	return f
}

// CodeOf returns the code of the outermost fault in the chain that has one. Without one it is the kind of the outermost fault.
func CodeOf(err error) string {
	outer := Of(err)
	for f, is := outer, true; is; f, is = errors.AsType[*Fault](f.Cause) {
		if f.Code != "" {
			return f.Code
		}
	}
	return string(outer.Kind)
}

// ErrStore is in the chain of every failure of our own database to do its work.
var ErrStore = errors.New("the database of this server did not do its work")

// ErrDamaged is in the chain of a failure, beside ErrStore, whose cause is that stored pages are not what was written. Waiting does not help.
var ErrDamaged = errors.New("the database of this server is damaged")

// ErrUnknown is in the chain of a failure after which our own database may have stored the change.
var ErrUnknown = errors.New("the outcome of the transaction is not known")

// Outcome is what became of a transaction. It follows from what the database reported, not from what was requested.
type Outcome string

// The outcomes.
const (
	// Done: the change is committed and survives a crash.
	Done Outcome = "done"
	// NotDone: no part of the change is stored, now or after a crash. The same work may run again.
	NotDone Outcome = "not done"
	// Unknown: COMMIT was sent and its answer is missing or does not say. The change is stored whole or not at all. A caller must
	// assume neither: it reads what is stored, repeats work that has a natural key, or treats an at-most-once claim as used.
	Unknown Outcome = "unknown"
)

// OutcomeOf returns the outcome of a transaction that ended with err.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Done
	case errors.Is(err, ErrUnknown):
		return Unknown
	}
	return NotDone
}

// GiveUp classes the failure of an outgoing attempt as final, with the reason that the operator reads. Where our own database
// is the cause it is not final: what cannot be read or written now says nothing about the peer, nor about what is sent.
func GiveUp(reason string, cause error) *Fault {
	return &Fault{Kind: Unavailable, Public: reason, Permanent: !errors.Is(cause, ErrStore), Cause: cause}
}

// Error returns the private text for logs: the public text and the cause, whose words are not repeated where the public text ends with them.
func (f *Fault) Error() string {
	text := f.Public
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Cause == nil {
		return text
	}
	if cause := f.Cause.Error(); !strings.HasSuffix(text, cause) {
		text = strings.TrimSuffix(text, ".") + ": " + cause
	}
	return text
}

// Unwrap returns the private cause.
func (f *Fault) Unwrap() error { return f.Cause }

// Of finds the fault in an error chain; an error without one is Internal with a neutral public text.
func Of(err error) *Fault {
	if f, ok := errors.AsType[*Fault](err); ok {
		return f
	}
	return &Fault{Kind: Internal, Public: "internal error", Cause: err}
}

// Is reports whether err carries a fault of the kind.
func Is(err error, kind Kind) bool {
	f, ok := errors.AsType[*Fault](err)
	return ok && f.Kind == kind
}
