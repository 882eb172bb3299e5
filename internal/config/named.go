package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// NamedFiles lists the files that the settings name in keys that end with _file, but for secret_key_file at the top, in order. A copy of
// the configuration needs them too.
func (c *Config) NamedFiles() []string {
	found := map[string]bool{}
	collectFiles(reflect.ValueOf(c).Elem(), found)
	for _, one := range c.Hosted {
		collectFiles(reflect.ValueOf(one).Elem(), found)
	}
	delete(found, c.SecretKeyFile)

	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func collectFiles(table reflect.Value, found map[string]bool) {
	for key, field := range fieldsOf(table) {
		switch {
		case isTable(field.Type()):
			collectFiles(field, found)
		case isTableList(field.Type()):
			for i := range field.Len() {
				collectFiles(field.Index(i), found)
			}
		case strings.HasSuffix(key, "_file") && field.Kind() == reflect.String && field.String() != "":
			found[field.String()] = true
		}
	}
}

// SetTop writes a key with a text at the top of a document, in the place of the one that is there; comments and all else stay. The path is
// that of the file, for errors. A *Problem says what is in the way and where.
func SetTop(path, document, key, value string) (string, error) {
	before, err := treeOf(path, document)
	if err != nil {
		return "", err
	}

	lines := strings.SplitAfter(document, "\n")
	written := key + " = " + Quote(value)
	if number := keyLines(document)[key]; number > 0 {
		old := lines[number-1]
		comment := ""
		if _, rest, has := cutOutsideQuotes(strings.TrimRight(old, "\r\n"), '#'); has {
			comment = " #" + rest
		}
		lines[number-1] = written + comment + old[len(strings.TrimRight(old, "\r\n")):]
	} else {
		first := slices.IndexFunc(lines, func(line string) bool {
			line = strings.TrimSpace(line)
			return line != "" && line[0] != '#'
		})
		if first < 0 {
			first = len(lines)
			if document != "" && !strings.HasSuffix(document, "\n") {
				written = lineEnd(document) + written
			}
		}
		lines = slices.Insert(lines, first, written+lineEnd(document))
	}

	changed := strings.Join(lines, "")
	after, err := treeOf(path, changed)
	if err == nil && after[key] == value {
		delete(before, key)
		delete(after, key)
		if reflect.DeepEqual(before, after) {
			return changed, nil
		}
	}
	return "", &Problem{Place: filepath.Base(path), Key: key, Message: "the key cannot be written into this file", Remedy: fmt.Sprintf("write %s by hand", key)}
}

// Unset removes a key, such as a.b of the table a, with its line; comments and all else stay. A key that is missing needs no change. A *Problem says
// that the key is not on a line of its own.
func Unset(path, document, key string) (string, error) {
	before, err := treeOf(path, document)
	if err != nil {
		return "", err
	}
	if !remove(before, strings.Split(key, ".")) {
		return document, nil
	}

	if number := keyLines(document)[key]; number > 0 {
		lines := strings.SplitAfter(document, "\n")
		changed := strings.Join(slices.Delete(lines, number-1, number), "")
		if after, err := treeOf(path, changed); err == nil && reflect.DeepEqual(before, after) {
			return changed, nil
		}
	}
	return "", &Problem{Place: filepath.Base(path), Key: key, Message: "the key cannot be removed from this file", Remedy: fmt.Sprintf("remove %s by hand", key)}
}

// remove removes what a path of keys leads to, and reports whether it was there.
func remove(tree map[string]any, path []string) bool {
	for ; len(path) > 1; path = path[1:] {
		inner, is := tree[path[0]].(map[string]any)
		if !is {
			return false
		}
		tree = inner
	}
	_, there := tree[path[0]]
	delete(tree, path[0])
	return there
}
