package history

import "inbox/normalized"

// answerWithin is how many turns behind the head may belong to it because they answer its last question, or stand before that
// answer.
const answerWithin = 4

// protected turns at the end are never shortened, or dropped for their size.
const protected = 2

// window is the choice of turns [0,head) and [start,n).
type window struct {
	head, start, n int
	short          map[int][]cut // by turn
}

// selectTurns applies rules 2 and 3 of section 4.
func selectTurns(turns excerpt[turnOutline], policy Policy) window {
	head := min(policy.KeepHead, turns.total)
	if policy.Alternation != AlternationOff {
		head = answered(turns, head)
	}

	w := byCount(turns.total, head, policy)
	w.skipUnknown(turns, policy.Slide)

	if policy.MaxBytes <= 0 {
		return w
	}

	w.shortenLong(turns, policy.MaxBytes)
	over := w.bytes(turns) - policy.MaxBytes
	for over > 0 && w.start+policy.Slide <= w.n-protected { // whole blocks
		over -= w.drop(turns, policy.Slide)
	}

	if over > 0 {
		over -= w.shorten(turns, over)
	}

	if rest := w.n - protected - w.start; over > 0 && rest > 0 { // the last block is not a whole one
		w.drop(turns, rest)
	}

	return w
}

// answered extends the head to the end of the answers to its last question. A head that ended with a question would become one
// turn with the question that the window begins with, and so change with each move of the window. A question that is not
// answered within answerWithin turns, or whose answer was not read, extends nothing.
func answered(turns excerpt[turnOutline], head int) int {
	if head == 0 {
		return 0
	}

	limit := min(head+answerWithin, turns.total)
	if turns.end() < limit && turns.begin() > turns.end() {
		limit = turns.end()
	}

	for end := head; end <= limit; end++ {
		if turns.at(end-1).role != normalized.RoleAssistant {
			continue
		}
		for end < limit && turns.at(end).role == normalized.RoleAssistant {
			end++
		}
		return end
	}
	return head
}

// byCount moves the start of the window only every Slide turns, so that the prefix is the same in between.
func byCount(n, head int, policy Policy) window {
	slide := policy.Slide
	if n <= head+policy.Window {
		return window{head: head, start: head, n: n}
	}
	start := head + slide*((n-head-policy.Window+slide-1)/slide)
	return window{head: head, start: min(start, n), n: n}
}

// skipUnknown moves the start of the window behind turns that were not read, because those after them are too long already.
func (w *window) skipUnknown(turns excerpt[turnOutline], slide int) {
	begin, end := turns.begin(), turns.end()
	if begin <= end {
		return
	}
	w.head = min(w.head, end)
	for w.start < begin {
		w.start += slide
	}
	w.start = min(w.start, w.n)
}

func (w *window) kept() []int {
	kept := make([]int, 0, w.head+w.n-w.start)
	for i := range w.head {
		kept = append(kept, i)
	}
	for i := w.start; i < w.n; i++ {
		kept = append(kept, i)
	}
	return kept
}

func (w *window) bytes(turns excerpt[turnOutline]) (total int) {
	for _, i := range w.kept() {
		total += w.size(turns, i)
	}
	return total
}

// size is the text of a turn after what is shortened.
func (w *window) size(turns excerpt[turnOutline], i int) int {
	return turns.at(i).text - saved(w.short[i])
}

// drop moves the start of the window and returns the bytes that this saves.
func (w *window) drop(turns excerpt[turnOutline], count int) (saved int) {
	for i := w.start; i < w.start+count; i++ {
		saved += w.size(turns, i)
	}
	w.start += count
	return saved
}

// shortenLong bounds the head to half of the budget and each turn of the window to a quarter, so that one long message does not take the
// place of all others. It depends on the head and on the turn alone: the same turn is shortened in the same way from run to run.
func (w *window) shortenLong(turns excerpt[turnOutline], budget int) {
	end := w.n - protected
	head := make([]*turnOutline, 0, w.head)
	for i := range max(0, min(w.head, end)) {
		head = append(head, turns.at(i))
	}
	for i, cuts := range fit(head, budget/2) {
		w.cut(i, cuts)
	}

	for i := w.start; i < end; i++ {
		w.cut(i, inWindow(turns.at(i), budget))
	}
}

func (w *window) cut(turn int, cuts []cut) {
	if len(cuts) == 0 {
		return
	}
	if w.short == nil {
		w.short = map[int][]cut{}
	}
	w.short[turn] = cuts
}

// inWindow returns what is cut of a turn of the window that is too long for the budget.
func inWindow(turn *turnOutline, budget int) []cut {
	if turn.text <= budget/4 {
		return nil
	}
	return fit([]*turnOutline{turn}, budget/4)[0]
}

// shorten marks what tools were given and gave, if it is long, the oldest first, until enough bytes are saved.
func (w *window) shorten(turns excerpt[turnOutline], enough int) (gained int) {
	for i := w.start; i < w.n-protected; i++ {
		before := saved(w.short[i])
		for _, long := range turns.at(i).long {
			if gained >= enough {
				return gained
			}
			if long.field.ofTool() {
				w.cut(i, withCut(w.short[i], long.to(shortResult)))
				gained += saved(w.short[i]) - before
				before = saved(w.short[i])
			}
		}
	}
	return gained
}
