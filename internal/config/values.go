package config

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes. In the file it is a number or a string with a unit: "25MiB", "64KiB", "1GB".
type Size int64

var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseSize reads a number of bytes with an optional unit: B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB
// (powers of 1024). Negative and fractional sizes are refused.
func ParseSize(text string) (Size, error) {
	digits, factor := strings.TrimSpace(text), int64(1)
	for _, unit := range units {
		if cut, ok := cutSuffixFold(digits, unit.suffix); ok {
			digits, factor = strings.TrimSpace(cut), unit.bytes
			break
		}
	}

	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || number < 0 || number > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is not a size", text)
	}
	return Size(number * factor), nil
}

func cutSuffixFold(text, suffix string) (string, bool) {
	if len(text) < len(suffix) || !strings.EqualFold(text[len(text)-len(suffix):], suffix) {
		return text, false
	}
	return text[:len(text)-len(suffix)], true
}

// String returns the size in the largest unit that needs no fraction, in the form that ParseSize reads.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if s > 0 && int64(s)%units[i].bytes == 0 {
			return strconv.FormatInt(int64(s)/units[i].bytes, 10) + units[i].suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText writes the size as String does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

const redacted = "[redacted]"

// Secret is a value that never shows itself: printing, logging and encoding it write "[redacted]".
type Secret string

// Reveal returns the secret itself, for the one place that needs it.
func (s Secret) Reveal() string { return string(s) }

// String returns "[redacted]", or nothing for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// GoString keeps %#v from showing the secret.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText keeps encoders from showing the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue keeps slog from showing the secret.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// SecretURL is an address that may carry a user name and a password; it shows itself without the password.
type SecretURL string

// Reveal returns the address with its password, for the one place that needs it.
func (u SecretURL) Reveal() string { return string(u) }

// String returns the address with the password replaced. Of an address that may have it where net/url does not look, nothing is shown.
func (u SecretURL) String() string {
	parsed, err := url.Parse(string(u))
	if err != nil || parsed.User == nil && parsed.Port() != "" && strings.Contains(string(u), "@") {
		return redacted
	}
	parsed.RawQuery = withoutPasswords(parsed.RawQuery)
	return parsed.Redacted()
}

// withoutPasswords serves postgres://…?password=… and s3://…?secret_key=…. It does not use net/url, which leaves out what it cannot read.
func withoutPasswords(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
		name = strings.ToLower(name)
		if strings.Contains(name, "pass") || strings.Contains(name, "secret") || strings.Contains(name, "key") {
			pairs[i] = name + "=xxxxx"
		}
	}
	return strings.Join(pairs, "&")
}

// GoString keeps %#v from showing the password.
func (u SecretURL) GoString() string { return strconv.Quote(u.String()) }

// MarshalText keeps encoders from showing the password.
func (u SecretURL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// LogValue keeps slog from showing the password.
func (u SecretURL) LogValue() slog.Value { return slog.StringValue(u.String()) }

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
