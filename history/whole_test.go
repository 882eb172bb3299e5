package history

import (
	"slices"
	"time"

	"inbox/normalized"
)

// Trim is TrimThread for all stored turns of a thread, oldest first. Policy.MaxAge counts back from now. A thread that
// begins with an assistant's turn is taken as opened by the agent.
func Trim(turns []normalized.HistoricalMessage, policy Policy, now time.Time) (kept []normalized.HistoricalMessage, cacheBreakpointAfter *int) {
	opened := len(turns) > 0 && turns[0].Role == normalized.RoleAssistant
	turns = dropOld(turns, policy.Since(now))
	return TrimThread(Thread{Tail: turns, Total: len(turns), Opened: opened}, policy)
}

// dropOld leaves out what is older than since.
func dropOld(turns []normalized.HistoricalMessage, since time.Time) []normalized.HistoricalMessage {
	if since.IsZero() {
		return turns
	}
	young := slices.IndexFunc(turns, func(h normalized.HistoricalMessage) bool { return !h.Timestamp.Before(since) })
	if young < 0 {
		return nil
	}
	return turns[young:]
}
