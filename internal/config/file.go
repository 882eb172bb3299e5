package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

const maxFileBytes = 1 << 20

// readDocument puts the keys of a file into the settings and notes where each was written.
func readDocument(path, document string, settings *Config, found *problems) error {
	tree := map[string]any{}
	if _, err := toml.Decode(document, &tree); err != nil {
		return fileProblem(path, err)
	}

	name := filepath.Base(path)
	for key, line := range keyLines(document) {
		found.origins[key] = fmt.Sprintf("%s:%d", name, line)
	}

	applyTable(reflect.ValueOf(settings).Elem(), "", tree, found)
	return nil
}

func readLimited(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}

	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err := errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	if len(content) > maxFileBytes {
		return "", fmt.Errorf("%s is over %d bytes", path, maxFileBytes)
	}
	return string(content), nil
}

func fileProblem(path string, err error) error {
	broken, ok := errors.AsType[toml.ParseError](err)
	if !ok {
		return fmt.Errorf("%s: %w", path, err)
	}
	message := broken.Message
	if message == "" {
		message = broken.Error()
	}
	return &Problem{Place: fmt.Sprintf("%s:%d", filepath.Base(path), broken.Position.Line), Message: message}
}

// replaced says what to write instead of keys of earlier versions.
var replaced = map[string]string{
	"agents.expose_tools": `write show_tools = "full" in place of true, and remove the line in place of false`,
}

// applyTable sets the fields of one table, in the order of the file's keys so that messages keep that order.
func applyTable(table reflect.Value, path string, tree map[string]any, found *problems) {
	fields := fieldsOf(table)
	for _, key := range keysInOrder(tree, path, found) {
		name := join(path, key)
		field, ok := fields[key]
		if remedy, was := replaced[strings.TrimRight(path, "[]0123456789")+"."+key]; was && !ok {
			found.add(name, "is not a key any more", remedy)
			continue
		}
		if !ok {
			found.add(name, "unknown key", suggestion(path, key, fields))
			continue
		}
		applyField(field, name, tree[key], found)
	}
}

func applyField(field reflect.Value, name string, raw any, found *problems) {
	switch _, isText := raw.(string); {
	case isTable(field.Type()) && (!isText || !isShort(field)):
		tree, ok := raw.(map[string]any)
		if !ok {
			found.add(name, "is a table", "write ["+name+"] and its keys below")
			return
		}
		applyTable(field, name, tree, found)
	case isTableList(field.Type()):
		applyList(field, name, raw, found)
	default:
		if err := setField(field, raw, false); err != nil {
			found.add(name, "wrong kind of value", err.Error())
		}
	}
}

func applyList(list reflect.Value, name string, raw any, found *problems) {
	trees, ok := tables(raw)
	if !ok {
		found.add(name, "is a list of tables", "write [["+name+"]] before each")
		return
	}

	list.Set(reflect.MakeSlice(list.Type(), len(trees), len(trees)))
	for i, tree := range trees {
		setDefaults(list.Index(i))
		applyTable(list.Index(i), element(name, i), tree, found)
	}
}

// tables takes [[name]] headers and arrays of inline tables.
func tables(raw any) ([]map[string]any, bool) {
	if trees, ok := raw.([]map[string]any); ok {
		return trees, true
	}

	items, ok := raw.([]any)
	trees := make([]map[string]any, 0, len(items))
	for _, item := range items {
		tree, isTree := item.(map[string]any)
		ok = ok && isTree
		trees = append(trees, tree)
	}
	return trees, ok
}

func setDefaults(value reflect.Value) {
	if target, ok := reflect.TypeAssert[interface{ setDefaults() }](value.Addr()); ok {
		target.setDefaults()
	}
}

func keysInOrder(tree map[string]any, path string, found *problems) []string {
	keys := make([]string, 0, len(tree))
	for key := range tree {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return comparePlaces(found.place(join(path, a)), found.place(join(path, b)), a, b)
	})
	return keys
}

// keyLines finds the line of every key and table of a TOML document that was parsed without error. The TOML library
// reports lines only for errors of its own. Inline tables and values over several lines count as the line of their key.
func keyLines(document string) map[string]int {
	s := &lineScanner{lines: map[string]int{}, counts: map[string]int{}}
	for number, line := range strings.Split(document, "\n") {
		s.scan(strings.TrimSpace(line), number+1)
	}
	return s.lines
}

type lineScanner struct {
	lines  map[string]int
	counts map[string]int // array of tables → tables so far
	table  string         // path of the table that we are in
	until  string         // delimiter of a multi-line string that is open
	depth  int            // brackets of a value that are open
}

func (s *lineScanner) scan(line string, number int) {
	if s.until != "" || s.depth > 0 {
		s.value(line)
		return
	}
	switch {
	case line == "" || line[0] == '#':
	case strings.HasPrefix(line, "[["):
		list := s.resolve(keyParts(line[2:]))
		s.note(list, number)
		s.table = element(list, s.counts[list])
		s.counts[list]++
		s.note(s.table, number)
	case line[0] == '[':
		s.table = s.resolve(keyParts(line[1:]))
		s.note(s.table, number)
	default:
		s.keyValue(line, number)
	}
}

func (s *lineScanner) keyValue(line string, number int) {
	path := s.table
	for _, part := range keyParts(line) {
		path = join(path, part)
		s.note(path, number)
	}
	if _, value, ok := cutOutsideQuotes(line, '='); ok {
		s.value(value)
	}
}

func (s *lineScanner) note(path string, number int) {
	if s.lines[path] == 0 {
		s.lines[path] = number
	}
}

// resolve returns the path of a header: an array of tables inside of it means its newest table.
func (s *lineScanner) resolve(parts []string) string {
	path := ""
	for i, part := range parts {
		path = join(path, part)
		if count := s.counts[path]; count > 0 && i < len(parts)-1 {
			path = element(path, count-1)
		}
	}
	return path
}

// value follows brackets and strings, to know whether the next line still belongs to the value.
func (s *lineScanner) value(text string) {
	for text != "" {
		if s.until != "" {
			end := endOfLong(text, s.until)
			if end < 0 {
				return
			}
			text, s.until = text[end:], ""
			continue
		}
		text = s.step(text)
	}
}

func (s *lineScanner) step(text string) (rest string) {
	for _, long := range []string{`"""`, `'''`} {
		if strings.HasPrefix(text, long) {
			s.until = long
			return text[3:]
		}
	}

	switch text[0] {
	case '"', '\'':
		return text[quoted(text):]
	case '[', '{':
		s.depth++
	case ']', '}':
		s.depth = max(0, s.depth-1)
	case '#':
		return ""
	}

	return text[1:]
}

// endOfLong returns where a multi-line string ends in a line of it, after its delimiter; -1 = not in this line. Up to two quotes before
// the delimiter belong to the string (TOML 1.0, section String).
func endOfLong(text, delimiter string) int {
	for i := 0; i+len(delimiter) <= len(text); i++ {
		switch {
		case delimiter == `"""` && text[i] == '\\':
			i++
		case strings.HasPrefix(text[i:], delimiter):
			end := i + len(delimiter)
			for extra := 0; extra < 2 && end < len(text) && text[end] == delimiter[0]; extra++ {
				end++
			}
			return end
		}
	}
	return -1
}

// quoted returns the length of the string that text starts with, with its quotes.
func quoted(text string) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[0] == '"' && text[i] == '\\':
			i++
		case text[i] == text[0]:
			return i + 1
		}
	}
	return len(text)
}

// keyParts reads a dotted key up to "=" or "]".
func keyParts(text string) []string {
	for _, end := range []byte{'=', ']', '#'} {
		if before, _, ok := cutOutsideQuotes(text, end); ok {
			text = before
		}
	}

	var parts []string
	for more := true; more; {
		var part string
		part, text, more = cutOutsideQuotes(text, '.')
		parts = append(parts, strings.Trim(strings.TrimSpace(part), `"'`))
	}
	return parts
}

func cutOutsideQuotes(text string, separator byte) (before, after string, found bool) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case separator:
			return text[:i], text[i+1:], true
		case '"', '\'':
			i += quoted(text[i:]) - 1
		}
	}
	return text, "", false
}
