package normalized

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// raw writes free-form JSON as it stands; nothing and null count as absent.
func (w *writer) raw(key string, value json.RawMessage) {
	value = bytes.TrimSpace(value)
	if len(value) == 0 || string(value) == "null" {
		return
	}
	if !json.Valid(value) {
		w.fail(key, "is not JSON")
		return
	}
	w.name(key)
	w.buf = append(w.buf, value...)
}

// rawMap writes an object of free-form JSON, ordered by key.
func (w *writer) rawMap(key string, values map[string]json.RawMessage) {
	if len(values) == 0 {
		return
	}
	w.name(key)
	w.open('{')
	for _, name := range slices.Sorted(maps.Keys(values)) {
		value := bytes.TrimSpace(values[name])
		if !json.Valid(value) {
			w.fail(key+"."+name, "is not JSON")
			return
		}
		w.member(name, value)
	}
	w.close('}')
}

// member writes a key that may need escapes, and its value.
func (w *writer) member(key string, value []byte) {
	w.text(key)
	w.buf = append(append(w.buf, ':'), value...)
}

// unknown writes the keys of a newer contract, in the order in which they came.
func (w *writer) unknown(list members) {
	for _, m := range list {
		w.member(m.key, m.value)
	}
}

// standard writes a rare value with encoding/json.
func (w *writer) standard(key string, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		w.fail(key, err.Error())
		return
	}
	w.name(key)
	w.buf = append(w.buf, body...)
}
