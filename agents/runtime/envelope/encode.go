package envelope

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Encode writes a value as compact JSON: no spaces, members sorted by name, "<", ">" and "&" as they are, a nil map as
// {} and a nil list as []. It is the form of tool_result contents.
func Encode(value any) ([]byte, error) { return appendValue(nil, value) }

// EncodeText is Encode as a string; what cannot be written as JSON gives "null".
func EncodeText(value any) string {
	data, err := Encode(value)
	if err != nil {
		return "null"
	}
	return string(data)
}

func appendValue(to []byte, value any) (_ []byte, err error) {
	switch v := value.(type) {
	case nil:
		return append(to, "null"...), nil
	case bool:
		return strconv.AppendBool(to, v), nil
	case string:
		return appendText(to, v), nil
	case int:
		return strconv.AppendInt(to, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(to, v, 10), nil
	case map[string]any:
		return appendObject(to, v)
	case []any:
		to = append(to, '[')
		for i, item := range v {
			if i > 0 {
				to = append(to, ',')
			}
			if to, err = appendValue(to, item); err != nil {
				return nil, err
			}
		}
		return append(to, ']'), nil
	}
	data, err := marshal(value)
	return append(to, data...), err
}

func appendObject(to []byte, object map[string]any) (_ []byte, err error) {
	to = append(to, '{')
	for i, key := range slices.Sorted(maps.Keys(object)) {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(appendText(to, key), ':')
		if to, err = appendValue(to, object[key]); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

func appendText(to []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			data, _ := marshal(text)
			return append(to, data...)
		}
	}
	return append(append(append(to, '"'), text...), '"')
}

func marshal(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}
