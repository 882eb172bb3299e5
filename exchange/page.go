package exchange

// NextPage cuts what was read of a list to one page and returns the cursor of the page after it; empty = this is the last
// one. Who lists reads size+1 rows: the row too many says that there is more, so that no page is empty because the one
// before was full. All lists end here.
func NextPage[T any](rows []T, size int, cursor func(T) string) (page []T, next string) {
	if len(rows) <= size {
		return rows, ""
	}
	page = rows[:size]
	return page, cursor(page[size-1])
}
