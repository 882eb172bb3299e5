package backup

import (
	"io"

	"inbox/engine/store"
)

// ReadRows reads the rows of a table with a text and a number, until one cannot be read.
func ReadRows(from io.Reader, visit func(values []any)) {
	reader := newRowReader(store.Table{Name: "t", Columns: []store.Column{{Name: "a"}, {Name: "b", Integer: true}}}, from)
	for {
		values, more, err := reader.next()
		if err != nil || !more {
			return
		}
		visit(values)
	}
}
