package backup

import (
	"io"

	"inbox/engine/store/database"
)

// ReadRows reads the rows of a table with a text and a number, until one cannot be read.
func ReadRows(from io.Reader, visit func(values []any)) {
	reader := newRowReader(database.Table{Name: "t", Columns: []database.Column{{Name: "a"}, {Name: "b", Integer: true}}}, from)
	for {
		values, more, err := reader.next()
		if err != nil || !more {
			return
		}
		visit(values)
	}
}
