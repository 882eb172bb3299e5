package pull

import (
	"strings"
	"unicode"

	"inbox/internal/fault"
)

// What the sender of a message reads when no answer comes. The cause, for the operator, says what happened.
const (
	sayAbsent   = "The agent cannot be reached right now. Please try again later."
	sayBusy     = "The agent is busy right now. Please try again later."
	sayLate     = "The agent did not answer in time. Please try again later."
	sayRefused  = "The agent could not take this message."
	sayUnusable = "The agent gave an answer that could not be used."
)

// over is the answer to who holds no lease, with the same words for one that never was.
func over(kind fault.Kind) error {
	return fault.New(kind, "the lease is over: stop working on this turn and take the next one")
}

func unavailable(doing string, cause error) error {
	if f := fault.Of(cause); f.Kind == fault.Unavailable {
		return cause
	}
	return fault.Wrap(fault.Unavailable, doing+" is not possible right now; try again", cause)
}

// excerpt makes text of a program fit for a log: one line of printable characters, at most 500.
func excerpt(text string) string {
	printable := strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) {
			return char
		}
		return ' '
	}, text)
	short := []rune(strings.Join(strings.Fields(printable), " "))
	return string(short[:min(len(short), 500)])
}
