package main

import (
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/normalized"
	"inbox/operator"
)

// TestWhyAnAgentGaveNoAnswer: inbox show and inbox agents test name the reason, and what was wrong with the answer of the program.
func TestWhyAnAgentGaveNoAnswer(t *testing.T) {
	t.Parallel()
	const wrong = "The agent gave an answer that could not be used: parts[0].kind: must be text, file, link, artifact, tool_call or policy"
	turn := exchange.TurnRecord{State: exchange.StateFailed, Reason: wrong, Response: &normalized.Response{
		Status: normalized.StatusFailed, Parts: []normalized.Part{normalized.Text("Sorry.")}, Error: &normalized.ResponseError{Code: normalized.FailedInvalidAnswer, Message: "Sorry."},
	}}
	for name, write := range map[string]func(*strings.Builder){
		"show":        func(out *strings.Builder) { printShown(out, operator.Shown{Turn: turn}) },
		"agents test": func(out *strings.Builder) { printTried(out, operator.Tried{Shown: operator.Shown{Turn: turn}}) },
	} {
		var out strings.Builder
		write(&out)
		if said := out.String(); !strings.Contains(said, "Failure   agent:invalid_answer, not retryable") || !strings.Contains(said, "parts[0].kind: must be text") {
			t.Errorf("%s: %s", name, said)
		}
	}

	turn.Response.Error.Code = normalized.FailedTimeout
	var out strings.Builder
	if printFailure(&out, turn); !strings.HasPrefix(out.String(), "Failure   agent:timeout, retryable") {
		t.Error(out.String())
	}
}
