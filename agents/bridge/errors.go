package bridge

// Codes of Error.
const (
	// CodeInvalid is the generic code of a value that breaks a rule (agent runtime contract, section 6.4).
	CodeInvalid = "invalid_argument"
	// CodeFull is that of a queue or register without room; it can be repeated when a client has acknowledged.
	CodeFull = "agents_bridge_queue_full"
)

// Error is a refusal with a code.
type Error struct {
	Code string
	Text string
}

// Error gives the text.
func (e *Error) Error() string { return e.Text }

// ErrorCode gives the code.
func (e *Error) ErrorCode() string { return e.Code }

func invalid(text string) error { return &Error{CodeInvalid, text} }

// ErrForeign is what a Store returns for an item whose id another client's item has.
var ErrForeign error = &Error{CodeInvalid, "Cannot overwrite a queue item owned by another client."}

// ErrFull is what a Store returns when it has no room. Nothing is dropped to make some.
var ErrFull error = &Error{CodeFull, "The queue of this client is full until it acknowledges what it has."}
