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
	short          map[int][]int
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

	over := w.bytes(turns) - policy.MaxBytes
	for over > 0 && w.start+policy.Slide <= w.n-protected { // whole blocks
		over -= w.drop(turns, policy.Slide)
	}

	if over > 0 {
		over -= w.shorten(turns, over)
	}

	if rest := w.n - protected - w.start; over > 0 && rest > 0 { // the last block is not a whole one
		w.drop(turns, rest)
		w.short = nil
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
		total += turns.at(i).text
	}
	return total
}

// drop moves the start of the window and returns the bytes that this saves.
func (w *window) drop(turns excerpt[turnOutline], count int) (saved int) {
	for i := w.start; i < w.start+count; i++ {
		saved += turns.at(i).text
	}
	w.start += count
	return saved
}

// shorten marks long tool results, the oldest first, until enough bytes are saved.
func (w *window) shorten(turns excerpt[turnOutline], enough int) (saved int) {
	w.short = map[int][]int{}
	for i := w.start; i < w.n-protected; i++ {
		for _, long := range turns.at(i).results {
			if saved >= enough {
				return saved
			}
			w.short[i] = append(w.short[i], long.part)
			saved += long.size - shortResult
		}
	}
	return saved
}
