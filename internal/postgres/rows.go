package postgres

import (
	"database/sql/driver"
	"io"

	"github.com/jackc/pgx/v5/pgconn"
)

// Rows is the result of a statement.
type Rows struct {
	connection *Connection
	query      string
	reader     *pgconn.ResultReader
	ended      bool
	tag        pgconn.CommandTag
	err        error
}

// Next goes to the next row and reports whether there is one; end says why there is none.
func (r *Rows) Next() bool { return !r.ended && r.reader.NextRow() }

// Scan reads the row: into *string, *int64, *int, *bool, *float64, *[]byte, types of these kinds, pointers to them that become nil for NULL,
// and sql.Scanner.
func (r *Rows) Scan(destinations ...any) error {
	fields, values := r.reader.FieldDescriptions(), r.reader.Values()
	if len(destinations) != len(values) {
		return wrongCount("columns", len(values), len(destinations))
	}
	for i, destination := range destinations {
		if err := scan(&fields[i], values[i], destination); err != nil {
			return err
		}
	}
	return nil
}

// Changed reads what is left, and returns how many rows the statement changed or returned, and its command, such as "COMMIT".
func (r *Rows) Changed() (rows int64, command string, err error) {
	tag, err := r.end()
	return tag.RowsAffected(), tag.String(), err
}

// Err reads what is left and returns why the result ended, nil when it is whole.
func (r *Rows) Err() error {
	_, err := r.end()
	return err
}

func (r *Rows) end() (pgconn.CommandTag, error) {
	if !r.ended {
		r.ended = true
		r.tag, r.err = r.reader.Close()
		if r.err != nil {
			r.connection.statements.forget(r.query)
			r.err = unsent(r.err)
		}
	}
	return r.tag, r.err
}

// cursor is the result for database/sql.
type cursor struct {
	rows  *Rows
	ahead bool // the first row was read
}

// Columns implements driver.Rows.
func (c *cursor) Columns() []string {
	fields := c.rows.reader.FieldDescriptions()
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].Name
	}
	return names
}

// Close implements driver.Rows.
func (c *cursor) Close() error { return c.rows.Err() }

// Next implements driver.Rows.
func (c *cursor) Next(row []driver.Value) error {
	if !c.ahead && !c.rows.Next() {
		if err := c.rows.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	c.ahead = false

	fields := c.rows.reader.FieldDescriptions()
	for i, content := range c.rows.reader.Values() {
		value, err := decode(&fields[i], content)
		if err != nil {
			return err
		}
		row[i] = value
	}
	return nil
}
