package exchange

import "inbox/normalized"

// FailureOf returns why a turn has no answer: the error of its response. Nil where it has none.
func FailureOf(turn TurnRecord) *normalized.ResponseError {
	if turn.Response == nil || turn.Response.Status != normalized.StatusFailed {
		return nil
	}
	return turn.Response.Error
}
