package history

import (
	"slices"
	"time"

	"inbox/normalized"
)

// Trim gives the turns that an agent sees, of all stored turns of a thread, oldest first, and the index in them after
// which the prefix will be the same at the next run: the place for a prompt cache to break. The index is nil when there
// is no such prefix. Turns come back without inline bytes, policy addresses and all of an evidence but issuer, subject
// and method; the input is not changed. now matters only with Policy.MaxAge.
func Trim(turns []normalized.HistoricalMessage, policy Policy, now time.Time) (kept []normalized.HistoricalMessage, cacheBreakpointAfter *int) {
	policy = policy.normal()
	opened := len(turns) > 0 && turns[0].Role == normalized.RoleAssistant
	turns = dropOld(turns, policy.MaxAge, now)
	outlines := outline(turns)
	plan := arrange(outlines, policy, opened)
	for _, group := range plan.groups {
		kept = append(kept, plan.write(turns, group))
	}
	return kept, breakpoint(plan, outlines, policy, opened)
}

// dropOld leaves out what is older than maxAge.
func dropOld(turns []normalized.HistoricalMessage, maxAge time.Duration, now time.Time) []normalized.HistoricalMessage {
	if maxAge <= 0 {
		return turns
	}
	oldest := now.Add(-maxAge)
	young := slices.IndexFunc(turns, func(h normalized.HistoricalMessage) bool { return !h.Timestamp.Before(oldest) })
	if young < 0 {
		return nil
	}
	return turns[young:]
}

// breakpoint looks ahead: at the next run the thread has one or two turns more, the message that is answered now and
// its answer. What both arrangements share with the present one is the prefix that stays.
func breakpoint(plan arrangement, turns []turnOutline, policy Policy, opened bool) *int {
	if len(plan.groups) == 0 {
		return nil
	}
	stays := len(plan.groups)
	for _, role := range []string{normalized.RoleUser, normalized.RoleAssistant} {
		turns = append(turns, turnOutline{role: role})
		stays = min(stays, plan.shared(arrange(turns, policy, opened)))
	}
	if stays == 0 {
		return nil
	}
	last := stays - 1
	return &last
}
