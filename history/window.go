package history

// protected turns at the end are never shortened, or dropped for their size.
const protected = 2

// window is the choice of turns [0,head) and [start,n).
type window struct {
	head, start, n int
	short          map[int][]int
}

// selectTurns applies rules 2 and 3 of section 4.
func selectTurns(turns excerpt[turnOutline], policy Policy) window {
	w := byCount(turns.total, policy)
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

// byCount moves the start of the window only every Slide turns, so that the prefix is the same in between.
func byCount(n int, policy Policy) window {
	head, slide := min(policy.KeepHead, n), policy.Slide
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
