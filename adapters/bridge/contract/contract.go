// Package contract is what bridges and connectors agree on with the reference runtime (agent runtime contract, sections
// 6.2 to 6.4): the normalized message of another messaging product, the key of its conversation, and the protocol of
// remote bridges, which register, have answers queued, read what is pending and acknowledge what they have. It speaks no
// HTTP, parses the payload of no product and keeps nothing.
package contract

import (
	"regexp"
	"strings"
	"time"

	"inbox/agents/runtime/value"
)

// Codes of Error (agent runtime contract, sections 6.2 and 6.4).
const (
	// CodeInvalid is the generic code of a value that breaks a rule.
	CodeInvalid = "invalid_argument"
	// CodeFull is that of a queue or register without room; it can be repeated when a client has acknowledged.
	CodeFull = "agents_bridge_queue_full"
	// CodeSilentSkip marks a message that is dropped without a word: one of our own that came back, or no chat at all.
	CodeSilentSkip = "silent_skip"
	// CodeEmptyMessage marks a message without text; nothing is said about it either.
	CodeEmptyMessage = "empty_message"
)

// Error is a refusal with a code of the contract. Its text may be shown to the person who wrote.
type Error struct {
	Code string
	Text string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// ErrorCode returns the code.
func (e *Error) ErrorCode() string { return e.Code }

func invalid(text string) error { return &Error{CodeInvalid, text} }

// Bounds of what strangers name and write, in bytes.
const (
	MaxIDBytes      = 255
	MaxContentBytes = 1 << 20
)

var separators = regexp.MustCompile(`[^a-z0-9-]+`)

// Slug is the one form of the names of clients, connectors and agents in the protocol of bridges: small letters, digits
// and single runs of other characters as "-", none at the ends.
func Slug(name string) string {
	return strings.Trim(separators.ReplaceAllString(dashed(name), "-"), "-")
}

// dashed is the form of the names of connectors, providers and agents in external messages and session keys, where
// other characters are refused or kept instead of replaced.
func dashed(name string) string {
	return value.Trim(value.Lower(strings.ReplaceAll(name, "_", "-")))
}

func slugOf(given any) string { return Slug(value.Scalar(given)) }

// timestamp returns the member as it is, or now when it is missing or null.
func timestamp(given any) string {
	if given == nil {
		return time.Now().UTC().Format("2006-01-02T15:04:05-07:00")
	}
	return value.Scalar(given)
}
