package exchange

// List is one page of a list, as the operator API and --json of the commands write it.
type List[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next" doc:"value of before for the following page; empty = this is the last one"`
}

// NewList returns the page with these items. Next is the cursor of the following page; empty = there is none.
func NewList[T any](items []T, next string) List[T] {
	if items == nil {
		items = []T{} // [] in JSON, not null
	}
	return List[T]{Items: items, Next: next}
}

// CutList returns the first size of the rows. A caller reads size+1 rows: the row too many says that there is a following page, so that no page
// is empty because the one before was full.
func CutList[T any](rows []T, size int, cursor func(T) string) List[T] {
	return NewList(NextPage(rows, size, cursor))
}
