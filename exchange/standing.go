package exchange

import (
	"strings"

	"inbox/normalized"
	"inbox/policypart"
)

// Standings of a turn: where it stands for its asker, whatever protocol they speak.
const (
	StandingSubmitted = "submitted" // stored, no run has begun
	StandingWorking   = "working"   // it runs, or goes on by itself
	StandingInput     = "input"     // the asker has to answer or to pay
	StandingAuthorize = "authorize" // a person has to agree, log in or let it in
	StandingCompleted = "completed" // answered, or meant to have no answer
	StandingFailed    = "failed"
	StandingRefused   = "refused"
	StandingCancelled = "cancelled" // taken back, or its question was given up
)

// Standings are all standings.
var Standings = []string{
	StandingSubmitted, StandingWorking, StandingInput, StandingAuthorize, StandingCompleted, StandingFailed, StandingRefused, StandingCancelled,
}

// Outcomes of a reply: what it is to its asker.
const (
	OutcomeAnswer      = ""            // an answer, or there is none
	OutcomeInput       = "input"       // a question
	OutcomeFailed      = "failed"      // words about a failure
	OutcomeAuthorize   = "authorize"   // a demand for consent or a login
	OutcomePay         = "pay"         // a demand for a payment
	OutcomeDemand      = "demand"      // a demand of another kind that the asker can meet
	OutcomeUnlawful    = "unlawful"    // a refusal for legal reasons
	OutcomeForbidden   = "forbidden"   // a refusal
	OutcomeUnavailable = "unavailable" // a refusal for now, or of a kind that is not known here
	OutcomeGivenUp     = "given_up"    // a question or demand that its asker wants no answer to any more
)

// OutcomeOf returns the outcome of a response; nil is none. A policy part decides before the status, and an unknown kind is
// never taken for success. GivenUp is nothing that a response says.
func OutcomeOf(response *normalized.Response) string {
	if response == nil {
		return OutcomeAnswer
	}

	policy := response.Policy()
	switch {
	case policy != nil:
		return outcomeOfPolicy(policy.Kind, response.Status)
	case response.Status == normalized.StatusInputRequired:
		return OutcomeInput
	case response.Status == normalized.StatusFailed:
		return OutcomeFailed
	}
	return OutcomeAnswer
}

func outcomeOfPolicy(kind, status string) string {
	switch kind {
	case policypart.ConsentRequired, policypart.Unauthorized:
		return OutcomeAuthorize
	case policypart.PaymentRequired:
		return OutcomePay
	case policypart.UnavailableForLegalReasons:
		return OutcomeUnlawful
	case policypart.Forbidden:
		return OutcomeForbidden
	case policypart.TooManyRequests, policypart.ServiceUnavailable:
		return OutcomeUnavailable
	}

	if status == normalized.StatusInputRequired {
		return OutcomeDemand
	}
	return OutcomeUnavailable
}

// StandingOf returns where a turn stands for its asker. Whether a question was given up is not in the record: such a turn
// stands as cancelled, and is given as what it asked. The index turns_tasks of the store says the same in SQL.
func StandingOf(turn TurnRecord) string {
	switch turn.State {
	case StateAccepted:
		if turn.ReplyID != "" || turn.Attempt > 0 { // its demand was met or other agents have answered: it runs again
			return StandingWorking
		}
		return StandingSubmitted
	case StateRunning:
		return StandingWorking
	case StateSilent:
		return StandingCompleted
	case StateCancelled:
		return StandingCancelled
	case StateHeld: // another person must let it pass
		return StandingAuthorize
	}

	if turn.State == StateWaiting && turn.Reason == WaitingAuthorization {
		return StandingAuthorize
	}
	if GoesOnByItself(turn) { // also after a demand that was met
		return StandingWorking
	}

	return standingOfOutcome(OutcomeOf(turn.Response), turn)
}

func standingOfOutcome(outcome string, turn TurnRecord) string {
	switch outcome {
	case OutcomeAuthorize:
		return StandingAuthorize
	case OutcomePay, OutcomeDemand:
		return StandingInput
	case OutcomeUnlawful:
		return StandingRefused
	case OutcomeForbidden:
		if turn.State == StateRefused {
			return StandingRefused
		}
		return StandingFailed
	case OutcomeUnavailable:
		return StandingFailed
	}

	switch turn.State {
	case StateWaiting:
		return standingOfWaiting(turn.Reason)
	case StateRefused:
		return StandingRefused
	case StateFailed:
		return StandingFailed
	}

	switch outcome {
	case OutcomeInput:
		return StandingInput
	case OutcomeFailed:
		return StandingFailed
	}

	return StandingCompleted
}

// standingOfWaiting reads what a parked turn waits for. A payment is an input of the asker; consent and approval are
// given elsewhere; a tool is our own work.
func standingOfWaiting(reason string) string {
	switch {
	case strings.HasPrefix(reason, "payment"), strings.HasPrefix(reason, "input"):
		return StandingInput
	case strings.HasPrefix(reason, WaitingTool):
		return StandingWorking
	}
	return StandingAuthorize
}
