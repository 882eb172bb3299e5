package exchange

import (
	"context"

	"inbox/normalized"
)

// Historian is a Channel whose messages may answer something that this server never got: a conversation that it enters
// late.
type Historian interface {
	Channel
	// Late reports whether something was said before the message that is not stored here. It is pure.
	Late(turn TurnRecord) bool
	// Ancestors finds what was said before the message of the turn and may be shown in its history, oldest first. It
	// asks other servers, within bounds of its own, and returns what it got. Its error means that nothing was tried.
	Ancestors(ctx context.Context, turn TurnRecord) ([]normalized.HistoricalMessage, error)
}
