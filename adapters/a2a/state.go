package a2a

import (
	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/policypart"
)

// taskStates says which task state a standing is.
var taskStates = map[string]a2a.TaskState{
	exchange.StandingSubmitted: a2a.TaskStateSubmitted,
	exchange.StandingWorking:   a2a.TaskStateWorking,
	exchange.StandingInput:     a2a.TaskStateInputRequired,
	exchange.StandingAuthorize: a2a.TaskStateAuthRequired,
	exchange.StandingCompleted: a2a.TaskStateCompleted,
	exchange.StandingFailed:    a2a.TaskStateFailed,
	exchange.StandingRefused:   a2a.TaskStateRejected,
	exchange.StandingCancelled: a2a.TaskStateCanceled,
}

// stateOf is the state of a task whose newest turn this is.
func stateOf(turn exchange.TurnRecord) a2a.TaskState { return taskStates[exchange.StandingOf(turn)] }

// standingOf is the standing of the newest turn of a task in the state; none = there is no such task state.
func standingOf(state a2a.TaskState) (standing string, known bool) {
	for standing, of := range taskStates {
		if of == state {
			return standing, true
		}
	}
	return "", false
}

// policyOf returns the demand or refusal in the answer.
func policyOf(turn exchange.TurnRecord) *policypart.Part {
	if turn.Response == nil {
		return nil
	}
	return turn.Response.Policy()
}
