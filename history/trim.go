package history

import "inbox/normalized"

// Thread is what is known of a thread of Total turns, oldest first: the first turns and the newest ones. Between them
// turns may be left out (Policy.Need and Policy.Enough say how many are not needed); where both overlap they say the
// same. A complete thread may have all turns in Tail. Where less is known than the policy needs, the window begins
// later, still by whole slides.
type Thread struct {
	Head, Tail []normalized.HistoricalMessage
	Total      int
	Opened     bool // the agent opened the thread, so that the history may begin with its turn
}

// TrimThread returns the turns that an agent sees of a thread and the index in them after which the prefix will be the
// same at the next run: the place for a prompt cache to break. The index is nil when there is no such prefix. Turns come
// back without inline bytes, policy addresses and all of an evidence but issuer, subject and method; the input is not
// changed. Policy.MaxAge is for the caller that reads the thread: turns before Policy.Since are no part of it.
func TrimThread(thread Thread, policy Policy) (kept []normalized.HistoricalMessage, cacheBreakpointAfter *int) {
	policy = policy.normal()
	turns := excerpt[normalized.HistoricalMessage]{head: thread.Head, tail: thread.Tail, total: thread.Total}.normal()
	outlines := outline(turns)
	plan := arrange(outlines, policy, thread.Opened)
	for _, group := range plan.groups {
		kept = append(kept, plan.write(turns, group))
	}
	return kept, breakpoint(plan, outlines, policy, thread.Opened)
}

// breakpoint looks ahead: at the next run the thread has one or two turns more, the message that is answered now and
// its answer. What both arrangements share with the present one is the prefix that stays.
func breakpoint(plan arrangement, turns excerpt[turnOutline], policy Policy, opened bool) *int {
	if len(plan.groups) == 0 {
		return nil
	}

	stays := len(plan.groups)
	for _, role := range []string{normalized.RoleUser, normalized.RoleAssistant} {
		turns = turns.with(turnOutline{role: role})
		stays = min(stays, plan.shared(arrange(turns, policy, opened)))
	}

	if stays == 0 {
		return nil
	}

	last := stays - 1
	return &last
}
