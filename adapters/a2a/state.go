package a2a

import (
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"inbox/exchange"
	"inbox/normalized"
	"inbox/policypart"
)

// stateOf is the state of a task whose newest turn this is.
func stateOf(turn exchange.TurnRecord) a2a.TaskState {
	switch turn.State {
	case exchange.StateAccepted:
		if turn.ReplyID != "" || turn.Attempt > 0 { // its demand was met or other agents have answered: it runs again
			return a2a.TaskStateWorking
		}
		return a2a.TaskStateSubmitted
	case exchange.StateRunning:
		return a2a.TaskStateWorking
	case exchange.StateSilent:
		return a2a.TaskStateCompleted
	case exchange.StateCancelled:
		return a2a.TaskStateCanceled
	case exchange.StateHeld: // somebody else must let it pass
		return a2a.TaskStateAuthRequired
	}
	if turn.State == exchange.StateWaiting && turn.Reason == exchange.WaitingAuthorization {
		return a2a.TaskStateAuthRequired
	}
	if exchange.GoesOnByItself(turn) { // also after a demand that was met
		return a2a.TaskStateWorking
	}
	if policy := policyOf(turn); policy != nil {
		return policyState(policy.Kind, turn)
	}
	switch turn.State {
	case exchange.StateWaiting:
		return waitingState(turn.Reason)
	case exchange.StateRefused:
		return a2a.TaskStateRejected
	case exchange.StateFailed:
		return a2a.TaskStateFailed
	}
	return answeredState(turn.Response)
}

func answeredState(response *normalized.Response) a2a.TaskState {
	switch {
	case response == nil:
		return a2a.TaskStateCompleted
	case response.Status == normalized.StatusInputRequired:
		return a2a.TaskStateInputRequired
	case response.Status == normalized.StatusFailed:
		return a2a.TaskStateFailed
	}
	return a2a.TaskStateCompleted
}

// waitingState reads what a parked turn waits for. A payment is an input of the asker; consent and approval are
// given elsewhere; a tool is our own work.
func waitingState(reason string) a2a.TaskState {
	switch {
	case strings.HasPrefix(reason, "payment"), strings.HasPrefix(reason, "input"):
		return a2a.TaskStateInputRequired
	case strings.HasPrefix(reason, "tool"):
		return a2a.TaskStateWorking
	}
	return a2a.TaskStateAuthRequired
}

// policyState follows the table of the message contract, section 8. An unknown kind is never taken for success.
func policyState(kind string, turn exchange.TurnRecord) a2a.TaskState {
	switch kind {
	case policypart.ConsentRequired, policypart.Unauthorized:
		return a2a.TaskStateAuthRequired
	case policypart.PaymentRequired:
		return a2a.TaskStateInputRequired
	case policypart.UnavailableForLegalReasons:
		return a2a.TaskStateRejected
	case policypart.Forbidden:
		if turn.State == exchange.StateRefused {
			return a2a.TaskStateRejected
		}
	case policypart.TooManyRequests, policypart.ServiceUnavailable:
	default:
		if turn.Response.Status == normalized.StatusInputRequired {
			return a2a.TaskStateInputRequired
		}
	}
	return a2a.TaskStateFailed
}

// policyOf gives the demand or refusal in the answer.
func policyOf(turn exchange.TurnRecord) *policypart.Part {
	if turn.Response == nil {
		return nil
	}
	return turn.Response.Policy()
}

// turnStates are the turn states that a task state can come from; nil = there is no such task state.
func turnStates(state a2a.TaskState) []string {
	switch state {
	case a2a.TaskStateSubmitted:
		return []string{exchange.StateAccepted}
	case a2a.TaskStateWorking:
		return []string{exchange.StateRunning, exchange.StateWaiting, exchange.StateAccepted}
	case a2a.TaskStateCompleted:
		return []string{exchange.StateAnswered, exchange.StateSilent}
	case a2a.TaskStateCanceled:
		return []string{exchange.StateCancelled, exchange.StateAnswered}
	case a2a.TaskStateFailed, a2a.TaskStateRejected:
		return []string{exchange.StateFailed, exchange.StateRefused, exchange.StateAnswered}
	case a2a.TaskStateInputRequired, a2a.TaskStateAuthRequired:
		return []string{exchange.StateAnswered, exchange.StateWaiting, exchange.StateHeld, exchange.StateFailed}
	}
	return nil
}
