package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Entry describes one key for documentation and help.
type Entry struct {
	Key      string // "http.listen"; "agents[].name" inside a list of tables
	Variable string // "INBOX_HTTP_LISTEN"; "INBOX_AGENTS_0_NAME" for the first table of a list
	Default  string // as written in the file, or words
}

// Entries lists every key in the order of the structure.
func Entries() []Entry {
	return entries(reflect.ValueOf(Default()).Elem(), "", prefix)
}

func entries(table reflect.Value, path, variable string) []Entry {
	var list []Entry
	for i := range table.NumField() {
		field := table.Type().Field(i)
		key := keyOf(field)
		name := variable + strings.ToUpper(key)
		switch {
		case key == "":
		case isTable(field.Type):
			list = append(list, entries(table.Field(i), join(path, key), name+"_")...)
		case isTableList(field.Type):
			fresh := reflect.New(field.Type.Elem()).Elem()
			setDefaults(fresh)
			list = append(list, entries(fresh, join(path, key)+"[]", name+"_0_")...)
		default:
			list = append(list, Entry{Key: join(path, key), Variable: name, Default: defaultText(field, table.Field(i))})
		}
	}
	return list
}

func defaultText(field reflect.StructField, value reflect.Value) string {
	if text := field.Tag.Get("default"); text != "" {
		return text
	}
	return tomlText(value)
}

// tomlText writes a value as it stands in the file.
func tomlText(value reflect.Value) string {
	switch v := value.Interface().(type) {
	case bool, int, float64:
		return fmt.Sprint(v)
	case time.Duration:
		return fmt.Sprintf("%q", shortDuration(v))
	case fmt.Stringer:
		return fmt.Sprintf("%q", v.String())
	case string:
		return fmt.Sprintf("%q", v)
	}
	items := make([]string, value.Len())
	for i := range items {
		items[i] = tomlText(value.Index(i))
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// shortDuration writes 24h for what time.Duration calls 24h0m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
