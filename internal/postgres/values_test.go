package postgres

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"
)

type word string

func TestAppendValue(t *testing.T) {
	text := "text"
	var missing *string
	for name, c := range map[string]struct {
		argument any
		want     string
		null     bool
	}{
		"nothing":           {nil, "", true},
		"text":              {"a'b", "a'b", false},
		"empty text":        {"", "", false},
		"named text":        {word("w"), "w", false},
		"pointer":           {&text, "text", false},
		"nil pointer":       {missing, "", true},
		"whole number":      {int64(math.MinInt64), "-9223372036854775808", false},
		"int":               {7, "7", false},
		"small number":      {uint8(7), "7", false},
		"floating number":   {0.1, "0.1", false},
		"truth":             {true, "true", false},
		"bytes":             {[]byte{0, 1}, "\x00\x01", false},
		"no bytes":          {[]byte(nil), "", true},
		"time":              {time.Date(2026, 11, 26, 5, 4, 3, 2000, time.UTC), "2026-11-26T05:04:03.000002Z", false},
		"array":             {[]string{"a", `"\,{}`, "", "NULL"}, `{"a","\"\\,{}","","NULL"}`, false},
		"array of numbers":  {[]int64{1, -2}, `{"1","-2"}`, false},
		"array of nothing":  {[]*string{nil, &text}, `{NULL,"text"}`, false},
		"empty array":       {[]string{}, `{}`, false},
		"no array":          {[]string(nil), "", true},
		"valuer":            {sql.NullInt64{Int64: 4, Valid: true}, "4", false},
		"valuer of nothing": {sql.NullInt64{}, "", true},
	} {
		got, null, err := appendValue([]byte("before"), c.argument)
		if err != nil || string(got) != "before"+c.want || null != c.null {
			t.Errorf("%s: got %q, null %t, %v; want %q, null %t", name, got, null, err, c.want, c.null)
		}
	}

	if _, _, err := appendValue(nil, struct{}{}); err == nil {
		t.Error("a struct is no value, and no error says so")
	}
}

func TestEncodeCounts(t *testing.T) {
	s := &statement{description: &pgconn.StatementDescription{ParamOIDs: []uint32{typeInt8, typeBytes}}}
	if _, _, _, err := s.encode(nil, []any{1}); err == nil || !strings.Contains(err.Error(), "has 2 arguments, and 1 are given") {
		t.Errorf("one argument of two: %v", err)
	}

	if values, _, _, err := s.encode(nil, []any{"", []byte{}}); err != nil || values[0] == nil || values[1] == nil {
		t.Errorf("empty values became NULL: %v, %v", values, err)
	}
	values, formats, _, err := s.encode(nil, []any{12, []byte("ab")})
	if err != nil || string(values[0]) != "12" || string(values[1]) != "ab" || formats[0] != formText || formats[1] != formBinary {
		t.Errorf("got %q in the forms %v, %v", values, formats, err)
	}
}

func column(kind uint32) *pgconn.FieldDescription {
	field := pgconn.FieldDescription{Name: "c", DataTypeOID: kind}
	field.Format = formatsOf([]pgconn.FieldDescription{field})[0]
	return &field
}

func eight(number int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(number)) }

func TestScan(t *testing.T) {
	const text = 25
	moment := time.Date(2026, 11, 26, 5, 4, 3, 2000, time.UTC)
	for name, c := range map[string]struct {
		kind    uint32
		content []byte
		want    any // of the type to scan into
	}{
		"text":                {text, []byte("a"), "a"},
		"named text":          {text, []byte("a"), word("a")},
		"text of a number":    {text, []byte("12"), int64(12)},
		"number as text":      {typeInt8, eight(12), "12"},
		"eight bytes":         {typeInt8, eight(-3), int64(-3)},
		"four bytes":          {typeInt4, []byte{0xff, 0xff, 0xff, 0xfe}, int64(-2)},
		"two bytes":           {typeInt2, []byte{0xff, 0xfe}, -2},
		"unknown number type": {1700, []byte("12"), 12},
		"truth":               {typeBool, []byte{1}, true},
		"truth of a number":   {typeInt8, eight(1), true},
		"bytes":               {typeBytes, []byte{0, 1}, []byte{0, 1}},
		"bytes of a text":     {text, []byte("a"), []byte("a")},
		"no bytes":            {typeBytes, nil, []byte(nil)},
		"floating number":     {typeFloat8, eight(int64(math.Float64bits(0.5))), 0.5},
		"time":                {typeTimestampTZ, eight(moment.UnixMicro() - epoch.UnixMicro()), moment},
		"pointer to nothing":  {text, nil, (*string)(nil)},
		"scanner":             {typeInt8, eight(4), sql.NullInt64{Int64: 4, Valid: true}},
		"scanner of nothing":  {typeInt8, nil, sql.NullInt64{}},
	} {
		into := reflect.New(reflect.TypeOf(c.want))
		if err := scan(column(c.kind), c.content, into.Interface()); err != nil || !reflect.DeepEqual(into.Elem().Interface(), c.want) {
			t.Errorf("%s: got %v, %v; want %v", name, into.Elem().Interface(), err, c.want)
		}
	}

	for name, c := range map[string]struct {
		kind    uint32
		content []byte
		into    any
		want    string
	}{
		"NULL":             {text, nil, new(string), "column c: NULL is not a string"},
		"NULL number":      {typeInt8, nil, new(int64), "column c: NULL is not a int64"},
		"too large":        {typeInt8, eight(300), new(int8), "column c: 300 is too large for a int8"},
		"no number":        {text, []byte("x"), new(int64), "column c: "},
		"infinity":         {typeTimestampTZ, eight(math.MaxInt64), new(time.Time), "column c: a value of the type 1184"},
		"no pointer":       {text, []byte("x"), "", "column c: a value is read into a pointer, not into string"},
		"what is no value": {text, []byte("x"), new(struct{}), "column c: a string cannot become a struct {}"},
	} {
		if err := scan(column(c.kind), c.content, c.into); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestScanPointer(t *testing.T) {
	var text *string
	if err := scan(column(25), []byte("a"), &text); err != nil || text == nil || *text != "a" {
		t.Errorf("got %v, %v", text, err)
	}
	var value any
	if err := scan(column(typeInt8), eight(5), &value); err != nil || value != int64(5) {
		t.Errorf("got %v, %v", value, err)
	}
}

// TestCopySource reads what is made for COPY as PostgreSQL's manual says it is read.
func TestCopySource(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cell := rapid.Ptr(rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune("\\\n\r\tN.")), rapid.Rune())), true)
		rows := rapid.SliceOf(rapid.SliceOfN(cell, 2, 2)).Draw(t, "rows")

		next := 0
		source := &copySource{columns: 2, next: func() ([]any, bool, error) {
			if next == len(rows) {
				return nil, false, nil
			}
			next++
			return []any{rows[next-1][0], rows[next-1][1]}, true, nil
		}}
		text, err := io.ReadAll(source)
		if err != nil {
			t.Fatal(err)
		}

		lines := bytes.SplitAfter(text, []byte("\n"))
		if len(lines) != len(rows)+1 || len(lines[len(rows)]) != 0 {
			t.Fatalf("%d rows became the lines %q", len(rows), lines)
		}
		for i, row := range rows {
			cells := strings.Split(strings.TrimSuffix(string(lines[i]), "\n"), "\t")
			if len(cells) != 2 {
				t.Fatalf("two columns became %q", cells)
			}
			for j, want := range row {
				switch {
				case want == nil && cells[j] != `\N`:
					t.Fatalf("nothing became %q", cells[j])
				case want != nil && unescaped(cells[j]) != *want:
					t.Fatalf("%q became %q", *want, cells[j])
				}
			}
		}
	})
}

func unescaped(cell string) string {
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r", `\t`, "\t").Replace(cell)
}

func TestQuote(t *testing.T) {
	if got := Quote("a\"b\x00"); got != `"a""b"` {
		t.Errorf("got %s", got)
	}
}
