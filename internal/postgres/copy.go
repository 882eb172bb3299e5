package postgres

import (
	"context"
	"errors"
	"io"
	"strings"
)

// copyAtOnce is how many bytes of rows are made before PostgreSQL is sent them.
const copyAtOnce = 64 << 10

// Copy writes rows into a table by COPY and returns how many; next returns false after the last one. After an error of next, nothing is
// written.
func (c *Connection) Copy(ctx context.Context, table string, columns []string, next func() ([]any, bool, error)) (int64, error) {
	quoted := make([]string, len(columns))
	for i, column := range columns {
		quoted[i] = Quote(column)
	}

	source := &copySource{next: next, columns: len(columns)}
	tag, err := c.wire.CopyFrom(ctx, source, "COPY "+Quote(table)+" ("+strings.Join(quoted, ", ")+") FROM STDIN")
	if source.failure != nil {
		err = errors.Join(source.failure, err)
	}
	return tag.RowsAffected(), err
}

// copySource is the text format of COPY (PostgreSQL manual, COPY, "Text Format"), made as it is read.
type copySource struct {
	next    func() ([]any, bool, error)
	columns int
	text    []byte // what was made
	rest    []byte // the part of it that is not read yet
	value   []byte
	ended   bool
	failure error
}

// Read implements io.Reader.
func (s *copySource) Read(into []byte) (int, error) {
	if len(s.rest) == 0 {
		if err := s.fill(); err != nil {
			s.failure = err
			return 0, err
		}
		if len(s.rest) == 0 {
			return 0, io.EOF
		}
	}
	n := copy(into, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *copySource) fill() error {
	s.text = s.text[:0]
	for !s.ended && len(s.text) < copyAtOnce {
		row, more, err := s.next()
		if err != nil {
			return err
		}
		if !more {
			s.ended = true
			break
		}
		if len(row) != s.columns {
			return wrongCount("columns", s.columns, len(row))
		}
		if err := s.add(row); err != nil {
			return err
		}
	}
	s.rest = s.text
	return nil
}

func (s *copySource) add(row []any) error {
	for i, value := range row {
		if i > 0 {
			s.text = append(s.text, '\t')
		}
		var null bool
		var err error
		if s.value, null, err = appendValue(s.value[:0], value); err != nil {
			return err
		}
		if null {
			s.text = append(s.text, `\N`...)
			continue
		}
		s.text = appendEscaped(s.text, s.value)
	}
	s.text = append(s.text, '\n')
	return nil
}

// appendEscaped appends a value in which nothing ends a column or a row.
func appendEscaped(text, value []byte) []byte {
	for _, b := range value {
		switch b {
		case '\\':
			text = append(text, `\\`...)
		case '\n':
			text = append(text, `\n`...)
		case '\r':
			text = append(text, `\r`...)
		case '\t':
			text = append(text, `\t`...)
		default:
			text = append(text, b)
		}
	}
	return text
}
