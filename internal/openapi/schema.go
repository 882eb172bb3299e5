package openapi

import (
	"encoding"
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
)

// schemas are the JSON Schemas of Go types as encoding/json writes them (draft 2020-12).
type schemas struct {
	named   object
	names   map[reflect.Type]string
	foreign map[reflect.Type]Foreign
}

// Foreign is a type that writes itself and has a JSON Schema.
type Foreign struct {
	File   string // by which other schemas refer to it
	Schema []byte
}

func newSchemas(foreign map[reflect.Type]Foreign) *schemas {
	return &schemas{named: object{}, names: map[reflect.Type]string{}, foreign: foreign}
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
	timeType      = reflect.TypeFor[time.Time]()
	rawType       = reflect.TypeFor[json.RawMessage]()
)

func (s *schemas) of(value any) object { return s.schema(reflect.TypeOf(value)) }

func (s *schemas) schema(t reflect.Type) object {
	if _, is := s.foreign[t]; is {
		return s.reference(t)
	}

	switch {
	case t == timeType:
		return object{"type": "string", "format": "date-time"}
	case t == rawType:
		return object{}
	case t.Kind() == reflect.Struct && !t.Implements(marshaler) && !t.Implements(textMarshaler):
		return s.reference(t)
	case t.Implements(marshaler):
		return s.written(t)
	case t.Implements(textMarshaler):
		return object{"type": "string"}
	}

	return s.plain(t)
}

// written is a type that writes itself: an instant is one that holds a time, everything else is an object of its own.
func (s *schemas) written(t reflect.Type) object {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}

	if t.Kind() == reflect.Struct {
		if t == timeType || t.NumField() == 1 && t.Field(0).Type == timeType {
			return object{"type": "string", "format": "date-time"}
		}
		return object{"type": "object"}
	}
	return object{}
}

func (s *schemas) plain(t reflect.Type) object {
	switch t.Kind() {
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Pointer:
		if t.Elem().Kind() == reflect.Pointer { // told, and null
			return object{"anyOf": []any{s.schema(t.Elem()), object{"type": "null"}}}
		}
		return s.schema(t.Elem())
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.schema(t.Elem())}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": s.schema(t.Elem())}
	}
	return object{}
}

// reference puts a struct among the components, under the name of its type; two of one name get their package in front.
func (s *schemas) reference(t reflect.Type) object {
	if t.Name() == "" {
		return s.fields(t)
	}

	name, known := s.names[t]
	if !known {
		name = componentName(t)
		if _, taken := s.named[name]; taken {
			owner := path.Base(t.PkgPath())
			name = strings.ToUpper(owner[:1]) + owner[1:] + name
		}

		s.names[t] = name
		s.named[name] = object{} // types may hold themselves

		if foreign, is := s.foreign[t]; is {
			s.named[name] = s.adopt(name, foreign)
		} else {
			s.named[name] = s.fields(t)
		}
	}

	return object{"$ref": "#/components/schemas/" + name}
}

// componentName is the name of a type; one with a parameter has the parameter's name in front: List[exchange.Token] is TokenList.
func componentName(t reflect.Type) string {
	name, parameter, _ := strings.Cut(strings.TrimSuffix(t.Name(), "]"), "[")
	parameter = parameter[strings.LastIndexAny(parameter, "./")+1:]
	if parameter != "" {
		parameter = strings.ToUpper(parameter[:1]) + parameter[1:]
	}
	return parameter + strings.ToUpper(name[:1]) + name[1:]
}

// adopt takes a JSON Schema among the components. What it refers to is there, too.
func (s *schemas) adopt(name string, foreign Foreign) any {
	var schema object
	if err := json.Unmarshal(foreign.Schema, &schema); err != nil {
		panic(err) // a schema of ours
	}
	delete(schema, "$schema")
	return s.refer(schema, name)
}

// refer rewrites the references of a schema, in the order of its members: of two types with one name the first to be met
// keeps it.
func (s *schemas) refer(value any, name string) any {
	switch value := value.(type) {
	case object:
		for _, member := range slices.Sorted(maps.Keys(value)) {
			inner := value[member]
			value[member] = s.refer(inner, name)
			if text, is := inner.(string); is && member == "$ref" {
				value[member] = s.target(text, name)
			}
		}
	case []any:
		for i := range value {
			value[i] = s.refer(value[i], name)
		}
	}
	return value
}

func (s *schemas) target(reference, name string) string {
	file, place, _ := strings.Cut(reference, "#")
	if file == "" {
		return "#/components/schemas/" + name + place
	}

	for t, foreign := range s.foreign {
		if foreign.File == file {
			return s.reference(t)["$ref"].(string) + place
		}
	}
	return reference
}

func (s *schemas) fields(t reflect.Type) object {
	properties, required := object{}, []string{}
	s.add(t, properties, &required)
	slices.Sort(required)
	written := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		written["required"] = required
	}
	return written
}

// add writes the fields of a struct, those of embedded structs among them. The tag doc describes a field.
func (s *schemas) add(t reflect.Type, properties object, required *[]string) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" && field.Type.Kind() == reflect.Struct {
			s.add(field.Type, properties, required)
			continue
		}
		if !field.IsExported() || name == "-" {
			continue
		}

		if name == "" {
			name = field.Name
		}

		optional := strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		schema := s.schema(field.Type)
		if field.Type.Kind() == reflect.Pointer && !optional {
			schema = object{"anyOf": []any{schema, object{"type": "null"}}}
		}

		if text := field.Tag.Get("doc"); text != "" {
			schema["description"] = text
		}

		properties[name] = schema
		if !optional {
			*required = append(*required, name)
		}
	}
}
