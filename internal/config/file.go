package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/BurntSushi/toml"
)

const maxFileBytes = 1 << 20

// readFile puts the keys of the file into the settings and notes where each was written.
func readFile(path string, settings *Config, found *problems) error {
	document, err := readLimited(path)
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
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

// applyTable sets the fields of one table, in the order of the file's keys so that messages keep that order.
func applyTable(table reflect.Value, path string, tree map[string]any, found *problems) {
	fields := fieldsOf(table)
	for _, key := range keysInOrder(tree, path, found) {
		name := join(path, key)
		field, ok := fields[key]
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
