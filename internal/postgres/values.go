package postgres

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Types of PostgreSQL (pg_type.dat) that are read in their binary form.
const (
	typeBool        = 16
	typeBytes       = 17
	typeInt8        = 20
	typeInt2        = 21
	typeInt4        = 23
	typeFloat4      = 700
	typeFloat8      = 701
	typeTimestamp   = 1114
	typeTimestampTZ = 1184
)

// Forms of a value (PostgreSQL manual, "Formats and Format Codes").
const (
	formText   = 0
	formBinary = 1
)

func formatsOf(fields []pgconn.FieldDescription) []int16 {
	formats := make([]int16, len(fields))
	for i := range fields {
		switch fields[i].DataTypeOID {
		case typeBool, typeBytes, typeInt8, typeInt2, typeInt4, typeFloat4, typeFloat8, typeTimestamp, typeTimestampTZ:
			formats[i] = formBinary
		}
	}
	return formats
}

func wrongCount(of string, want, got int) error {
	return fmt.Errorf("the statement has %d %s, and %d are given", want, of, got)
}

// encode appends arguments to buffer and returns where in it they lie. PostgreSQL reads all but bytes from their text: what type they have to
// be is for it to say.
func (s *statement) encode(buffer []byte, arguments []any) (values [][]byte, formats []int16, _ []byte, err error) {
	types := s.description.ParamOIDs
	if len(types) != len(arguments) {
		return nil, nil, nil, wrongCount("arguments", len(types), len(arguments))
	}

	if buffer == nil {
		buffer = make([]byte, 0, 256) // a part of nil would be NULL
	}
	values, formats = make([][]byte, len(arguments)), make([]int16, len(arguments))
	for i, argument := range arguments {
		if types[i] == typeBytes {
			formats[i] = formBinary
		}

		begin := len(buffer)
		var null bool
		if buffer, null, err = appendValue(buffer, argument); err != nil {
			return nil, nil, nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
		if !null {
			values[i] = buffer[begin:len(buffer):len(buffer)]
		}
	}
	return values, formats, buffer, nil
}

func appendValue(buffer []byte, argument any) (_ []byte, null bool, err error) {
	switch value := argument.(type) {
	case nil:
		return buffer, true, nil
	case string:
		return append(buffer, value...), false, nil
	case int64:
		return strconv.AppendInt(buffer, value, 10), false, nil
	case int:
		return strconv.AppendInt(buffer, int64(value), 10), false, nil
	case bool:
		return strconv.AppendBool(buffer, value), false, nil
	case float64:
		return strconv.AppendFloat(buffer, value, 'g', -1, 64), false, nil
	case []byte:
		return append(buffer, value...), value == nil, nil
	case time.Time:
		return value.AppendFormat(buffer, time.RFC3339Nano), false, nil
	}

	if list := reflect.ValueOf(argument); list.Kind() == reflect.Slice && list.Type().Elem().Kind() != reflect.Uint8 {
		return appendArray(buffer, list)
	}

	// Types of these kinds, pointers to them, and driver.Valuer become one of the above.
	converted, err := driver.DefaultParameterConverter.ConvertValue(argument)
	if err != nil {
		return nil, false, err
	}
	return appendValue(buffer, converted)
}

// appendArray appends an array of one dimension, with all elements in quotes (PostgreSQL manual, "Array Input and Output Syntax").
func appendArray(buffer []byte, list reflect.Value) (_ []byte, null bool, err error) {
	if list.IsNil() {
		return buffer, true, nil
	}

	buffer = append(buffer, '{')
	var element []byte
	for i := range list.Len() {
		if i > 0 {
			buffer = append(buffer, ',')
		}
		if element, null, err = appendValue(element[:0], list.Index(i).Interface()); err != nil {
			return nil, false, err
		}
		if null {
			buffer = append(buffer, "NULL"...)
			continue
		}

		buffer = append(buffer, '"')
		for _, b := range element {
			if b == '"' || b == '\\' {
				buffer = append(buffer, '\\')
			}
			buffer = append(buffer, b)
		}
		buffer = append(buffer, '"')
	}
	return append(buffer, '}'), false, nil
}

// epoch is where times of PostgreSQL begin.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// decode makes a value of database/sql, which keeps nothing of content.
func decode(field *pgconn.FieldDescription, content []byte) (driver.Value, error) {
	if content == nil {
		return nil, nil
	}
	if field.Format != formBinary {
		return string(content), nil
	}

	number, known := wholeNumber(content)
	switch field.DataTypeOID {
	case typeBytes:
		return bytes.Clone(content), nil
	case typeBool:
		return len(content) == 1 && content[0] != 0, nil
	case typeInt2, typeInt4, typeInt8:
		if known {
			return number, nil
		}
	case typeFloat4:
		if len(content) == 4 {
			return float64(math.Float32frombits(binary.BigEndian.Uint32(content))), nil
		}
	case typeFloat8:
		if len(content) == 8 {
			return math.Float64frombits(binary.BigEndian.Uint64(content)), nil
		}
	case typeTimestamp, typeTimestampTZ:
		if known && number != math.MaxInt64 && number != math.MinInt64 { // which are infinity
			return time.UnixMicro(epoch.UnixMicro() + number).UTC(), nil
		}
	}
	return nil, fmt.Errorf("column %s: a value of the type %d with %d bytes is not known", field.Name, field.DataTypeOID, len(content))
}

// wholeNumber reads a number of two, four or eight bytes.
func wholeNumber(content []byte) (int64, bool) {
	switch len(content) {
	case 2:
		return int64(int16(binary.BigEndian.Uint16(content))), true
	case 4:
		return int64(int32(binary.BigEndian.Uint32(content))), true
	case 8:
		return int64(binary.BigEndian.Uint64(content)), true
	}
	return 0, false
}

// scan reads a column. What most rows have is read without a value of database/sql between.
func scan(field *pgconn.FieldDescription, content []byte, destination any) error {
	if content != nil {
		switch into := destination.(type) {
		case *string:
			if field.Format == formText {
				*into = string(content)
				return nil
			}
		case *int64:
			if number, known := wholeNumber(content); known && isWhole(field) {
				*into = number
				return nil
			}
		}
	}

	value, err := decode(field, content)
	if err != nil {
		return err
	}
	if scanner, is := destination.(sql.Scanner); is {
		err = scanner.Scan(value)
	} else {
		err = assign(reflect.ValueOf(destination), value)
	}
	if err != nil {
		return fmt.Errorf("column %s: %w", field.Name, err)
	}
	return nil
}

func isWhole(field *pgconn.FieldDescription) bool {
	if field.Format != formBinary {
		return false
	}
	switch field.DataTypeOID {
	case typeInt2, typeInt4, typeInt8:
		return true
	}
	return false
}

// assign sets what pointer points to.
func assign(pointer reflect.Value, value driver.Value) error {
	if pointer.Kind() != reflect.Pointer || pointer.IsNil() {
		return fmt.Errorf("a value is read into a pointer, not into %s", pointer.Type())
	}
	into := pointer.Elem()

	switch into.Kind() {
	case reflect.Pointer:
		if value == nil {
			into.SetZero()
			return nil
		}
		into.Set(reflect.New(into.Type().Elem()))
		return assign(into, value)
	case reflect.Interface:
		if into.NumMethod() == 0 {
			into.Set(reflect.ValueOf(&value).Elem())
			return nil
		}
	case reflect.Slice:
		if into.Type().Elem().Kind() == reflect.Uint8 {
			return assignBytes(into, value)
		}
	}
	if value == nil {
		return fmt.Errorf("NULL is not a %s", into.Type())
	}

	switch into.Kind() {
	case reflect.String:
		var text sql.NullString
		err := text.Scan(value)
		into.SetString(text.String)
		return err
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		var number sql.NullInt64
		if err := number.Scan(value); err != nil {
			return err
		}
		if into.OverflowInt(number.Int64) {
			return fmt.Errorf("%d is too large for a %s", number.Int64, into.Type())
		}
		into.SetInt(number.Int64)
		return nil
	case reflect.Bool:
		var truth sql.NullBool
		err := truth.Scan(value)
		into.SetBool(truth.Bool)
		return err
	case reflect.Float32, reflect.Float64:
		var number sql.NullFloat64
		err := number.Scan(value)
		into.SetFloat(number.Float64)
		return err
	case reflect.Struct:
		if at, is := value.(time.Time); is && into.Type() == reflect.TypeFor[time.Time]() {
			into.Set(reflect.ValueOf(at))
			return nil
		}
	}
	return fmt.Errorf("a %T cannot become a %s", value, into.Type())
}

func assignBytes(into reflect.Value, value driver.Value) error {
	switch content := value.(type) {
	case nil:
		into.SetZero()
	case string:
		into.SetBytes([]byte(content))
	case []byte:
		into.SetBytes(content)
	default:
		return fmt.Errorf("a %T cannot become a %s", value, into.Type())
	}
	return nil
}
