package command

import (
	"fmt"
	"strings"
	"unicode"

	"inbox/agents/upstream"
	"inbox/internal/fault"
	"inbox/normalized"
)

// ExitRetry is the exit code of a program that asks to be run again later (EX_TEMPFAIL of sysexits.h).
const ExitRetry = 75

// sayFailed is what the sender of a message reads when the program fails for good. The cause, for the operator, says
// what happened; other words are those of upstream.
const sayFailed = "The agent could not answer this message."

func unreachable(cause error) error { return upstream.Down(0, cause) }

// notStarted classes a program that did not run: a lack of the machine passes, a wrong program does not.
func notStarted(err error) error {
	cause := fmt.Errorf("start program: %w", err)
	if passes(err) {
		return unreachable(cause)
	}
	return fault.GiveUp(sayFailed, cause).Coded(normalized.FailedAgent)
}

// verdict classes the end of a program by its exit code.
func verdict(state ending, stderr []byte) error {
	if state.Success() {
		return nil
	}
	cause := fmt.Errorf("the program ended with %s: %q", state, excerpt(string(stderr)))
	if state.ExitCode() == ExitRetry {
		return upstream.PutOff(0, upstream.Busy, cause)
	}
	return fault.GiveUp(sayFailed, cause).Coded(normalized.FailedAgent)
}

// excerpt makes the end of what a program said fit for one line of a log: printable characters, at most 200.
func excerpt(text string) string {
	clean := strings.Map(func(char rune) rune {
		if unicode.IsPrint(char) {
			return char
		}
		return ' '
	}, text[max(0, len(text)-1000):])
	short := []rune(strings.Join(strings.Fields(clean), " "))
	return string(short[max(0, len(short)-200):])
}
