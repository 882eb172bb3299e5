package history

// excerpt is a list of total elements of which the first and the last are known.
type excerpt[T any] struct {
	head, tail []T
	total      int
}

// normal makes the total at least what is known.
func (e excerpt[T]) normal() excerpt[T] {
	e.total = max(e.total, len(e.head), len(e.tail))
	return e
}

// begin is the index of the first element of the tail; when it is at most end, nothing is unknown.
func (e excerpt[T]) begin() int { return e.total - len(e.tail) }

// end is the index behind the head.
func (e excerpt[T]) end() int { return len(e.head) }

// at returns a known element.
func (e excerpt[T]) at(i int) *T {
	if begin := e.begin(); i >= begin {
		return &e.tail[i-begin]
	}
	return &e.head[i]
}

// with returns the list with one element more.
func (e excerpt[T]) with(element T) excerpt[T] {
	return excerpt[T]{head: e.head, tail: append(e.tail, element), total: e.total + 1}
}
