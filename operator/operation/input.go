package operation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// field is one parameter of an operation, or its body.
type field struct {
	index    []int
	place    string // path, query, header or body
	name     string
	kind     reflect.Kind
	of       reflect.Type
	meaning  string
	one      []string // the values that it may have; empty = any
	absent   string   // value of a parameter that is not there
	from, to int      // bounds of a number; to = 0: none
	required bool     // of a body
}

// fieldsOf reads the tags of a type.
func fieldsOf(of reflect.Type, index []int) (list []field) {
	for i := range of.NumField() {
		member := of.Field(i)
		at := append(slices.Clone(index), i)
		if member.Anonymous {
			list = append(list, fieldsOf(member.Type, at)...)
			continue
		}

		one := field{index: at, kind: member.Type.Kind(), of: member.Type, meaning: member.Tag.Get("doc"), one: strings.Fields(member.Tag.Get("one")), absent: member.Tag.Get("default")}
		one.from, one.to = number(member.Tag.Get("from")), number(member.Tag.Get("to"))
		for _, place := range []string{"path", "query", "header", "body"} {
			if name := member.Tag.Get(place); name != "" {
				one.place, one.name = place, name
			}
		}
		switch {
		case one.place == "body":
			one.required = one.name == "required"
		case one.place == "" || !slices.Contains([]reflect.Kind{reflect.String, reflect.Bool, reflect.Int}, one.kind):
			panic(fmt.Sprintf("the field %s of %s cannot be read from a request", member.Name, of)) // a declaration of ours
		}
		list = append(list, one)
	}
	return list
}

// schema is what a parameter may be, as members of its JSON Schema.
func (f field) schema() map[string]any {
	schema := map[string]any{}
	switch {
	case len(f.one) > 0:
		schema["enum"] = f.one
	case f.to > 0 && f.kind == reflect.Int:
		schema["minimum"], schema["maximum"] = f.from, f.to
	}
	if f.absent != "" {
		schema["default"] = f.absent
		if f.kind == reflect.Int {
			schema["default"] = number(f.absent)
		}
	}
	return schema
}

func number(text string) int {
	if text == "" {
		return 0
	}
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err) // a tag of ours
	}
	return value
}

// reader reads the input of one request.
type reader struct {
	w       http.ResponseWriter
	r       *http.Request
	maxBody int64
	hint    string
}

func (in reader) read(fields []field, into reflect.Value) error {
	query := in.r.URL.Query()
	for _, one := range fields {
		target := into.FieldByIndex(one.index)
		var text string
		switch one.place {
		case "path":
			text = httpserver.Param(in.r, one.name)
		case "query":
			text = query.Get(one.name)
		case "header":
			text = strings.TrimSpace(in.r.Header.Get(one.name))
		case "body":
			if err := ReadBody(in.w, in.r, in.maxBody, target.Addr().Interface(), one.required, in.hint); err != nil {
				return err
			}
			continue
		}
		if text == "" {
			text = one.absent
		}
		if err := one.set(target, text); err != nil {
			return err
		}
	}
	return nil
}

// set gives a field the value of its parameter. An empty text leaves it as it is.
func (f field) set(target reflect.Value, text string) error {
	if text == "" {
		return nil
	}
	switch f.kind {
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fault.InField(f.name, "must be true or false")
		}
		target.SetBool(text == "true")
	case reflect.Int:
		value, err := strconv.Atoi(text)
		if err != nil || f.to > 0 && (value < f.from || value > f.to) {
			return fault.InField(f.name, fmt.Sprintf("must be a number from %d to %d", f.from, f.to))
		}
		target.SetInt(int64(value))
	default:
		if len(f.one) > 0 && !slices.Contains(f.one, text) {
			return fault.InField(f.name, `must be "`+strings.Join(f.one, `" or "`)+`"`)
		}
		if f.to > 0 && len(text) > f.to {
			return fault.InField(f.name, fmt.Sprintf("must be at most %d bytes of text", f.to))
		}
		target.SetString(text)
	}
	return nil
}

// ReadBody reads a JSON object of at most limit bytes, which may be missing unless it is required. It refuses an unknown member: a misspelled one would be
// ignored in silence. The hint says what to send.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, into any, required bool, hint string) error {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge || err == nil || fault.Is(err, fault.Unavailable) {
		return err
	}
	if errors.Is(err, io.EOF) && !required {
		return nil
	}
	return Unreadable(err, hint)
}

// Unreadable refuses a body and names the member that is not known, where that is the reason.
func Unreadable(err error, hint string) error {
	if member, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown { // encoding/json has no type for it
		hint = "the member " + member + " is not known: " + hint
	}
	return fault.Wrap(fault.Malformed, hint, err)
}
