package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// fieldsOf returns the fields of a table by their TOML key.
func fieldsOf(table reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range table.NumField() {
		if key := keyOf(table.Type().Field(i)); key != "" {
			fields[key] = table.Field(i)
		}
	}
	return fields
}

// keyOf returns the TOML key of a field; empty for fields that are not settings.
func keyOf(field reflect.StructField) string {
	key := field.Tag.Get("toml")
	if key == "-" {
		return ""
	}
	return key
}

// isTable tells a section from a value: netip.Prefix is a struct, too.
func isTable(kind reflect.Type) bool {
	return kind.Kind() == reflect.Struct && kind.PkgPath() == reflect.TypeFor[Config]().PkgPath()
}

func isTableList(kind reflect.Type) bool {
	return kind.Kind() == reflect.Slice && isTable(kind.Elem())
}

func isValue(kind reflect.Type) bool { return !isTable(kind) && !isTableList(kind) }

// short is a table that may also be written as one text.
type short interface{ setShort(text string) }

func isShort(field reflect.Value) bool {
	_, ok := reflect.TypeAssert[short](field.Addr())
	return ok
}

// suggestion names the nearest key of the same table, or a table that has the key.
func suggestion(path, key string, fields map[string]reflect.Value) string {
	if best := nearest(key, sortedKeys(fields)); best != "" {
		return "did you mean " + join(path, best) + "?"
	}
	if home := homes(key); len(home) > 0 {
		return "it belongs to [" + strings.Join(home, "] or [") + "]"
	}
	if path == "" {
		return "known are " + strings.Join(sortedKeys(fields), ", ")
	}
	return "known in [" + strings.TrimRight(path, "[]0123456789") + "] are " + strings.Join(sortedKeys(fields), ", ")
}

func sortedKeys(fields map[string]reflect.Value) []string {
	keys := make([]string, 0, len(fields))
	for key := range fields {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// homes finds the sections at the top that have the key.
func homes(key string) []string {
	var found []string
	settings := reflect.TypeFor[Config]()
	for section := range settings.Fields() {
		if !isTable(section.Type) {
			continue
		}
		for field := range section.Type.Fields() {
			if keyOf(field) == key {
				found = append(found, keyOf(section))
			}
		}
	}
	return found
}

// nearest returns the candidate that a typing error would explain; empty when none is near.
func nearest(text string, candidates []string) string {
	best, bestDistance := "", len(text)/3+2
	for _, candidate := range candidates {
		if distance := editDistance(text, candidate); distance < bestDistance {
			best, bestDistance = candidate, distance
		}
	}
	return best
}

// editDistance counts inserted, deleted and replaced bytes (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, corner+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// comparePlaces orders keys by their line; without lines by name.
func comparePlaces(placeA, placeB, keyA, keyB string) int {
	return cmp.Or(cmp.Compare(lineOf(placeA), lineOf(placeB)), cmp.Compare(keyA, keyB))
}

func lineOf(place string) int {
	line := 0
	_, _ = fmt.Sscanf(place[strings.LastIndexByte(place, ':')+1:], "%d", &line)
	return line
}
