package tool

import (
	"time"

	"inbox/agents/runtime/envelope"
)

// The changes of a pending action, for every PendingStore. Each says whether it was one; a final action never changes.

// Decide makes the action accepted or rejected, unless its time is over.
func (a *PendingAction) Decide(resolution Resolution, moment time.Time) bool {
	if a.Final() || a.ExpiredAt(moment) {
		return false
	}
	a.end(resolution.Decision, resolution.Resolver, moment)
	a.ResolutionMetadata = object(resolution.Metadata)
	if resolution.Remember {
		a.ResolutionMetadata["remember"] = true
	}
	return true
}

// Expire makes the action expired when its time is over.
func (a *PendingAction) Expire(moment time.Time) bool {
	if a.Final() || !a.ExpiredAt(moment) {
		return false
	}
	a.end(StateExpired, "", moment)
	return true
}

// Drop makes the action deleted.
func (a *PendingAction) Drop(resolver string, moment time.Time) bool {
	if a.Final() {
		return false
	}
	a.end(StateDeleted, resolver, moment)
	return true
}

func (a *PendingAction) end(state, resolver string, moment time.Time) {
	a.Status, a.Resolver, a.ResolvedAt = state, envelope.Trim(resolver), moment.UTC().Format(time.RFC3339Nano)
}
