// Package openapi writes an OpenAPI 3.1 document (spec.openapis.org/oas/v3.1) of HTTP operations whose bodies are Go
// types. It describes what it is given: it routes nothing and checks no request.
package openapi

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Security of an Operation: schemes of the document, each with the scopes that are needed after a colon, and alternatives
// behind a bar: "bridge:send|bearer".
const (
	Bearer   = "bearer" // a token of a peer is needed
	Optional = "guest"  // a token of a peer, or none
)

// Operation is one method at one path.
type Operation struct {
	Method   string
	Path     string // with {names} of its parameters
	Tag      string
	Summary  string
	Security string
	Query    []string             // names of parameters; "!" at the end marks one that is needed, ":integer" before it another type than text
	Headers  []string             // likewise
	About    map[string]Parameter // what its parameters are here, by name; others are described by Info.Parameters
	Request  any                  // a value of the body's type, and its example unless it is zero; nil = no body
	Examples map[string]any       // more values of the body, by name, for a body of several forms; nil = that of Request alone
	Partial  bool                 // the body may be left out
	Media    string               // of the body; empty = application/json
	Response any                  // a value of the answer's type, and its example unless it is zero; nil = 204
	Status   int                  // of a success; 0 = 200, or 204 without Response
	Also     []int                // other statuses of successes, with the same answer; 204 has none
	Errors   []int                // statuses of errors beside those that every operation of its kind can have
	Bytes    bool                 // the answer is a file of any media type, or the range of it that was asked for; Response is nil
	Stream   bool                 // the answer can be an event stream
	Events   []Event              // of that stream
	Error    any                  // a value of the type of errors; nil = that of the document
}

// Parameter is what one parameter of an Operation may be.
type Parameter struct {
	Meaning string         // empty = that of Info.Parameters
	Schema  map[string]any // members of its JSON Schema beside the type
}

// Event is one kind of server-sent event.
type Event struct {
	Name    string // empty = message
	Summary string
	Data    any // a value of the type of its data
}

// Scheme is a way to prove who calls.
type Scheme struct {
	Header      string // empty = a bearer token
	Description string
}

// Info heads a document.
type Info struct {
	Title, Version, Description, Server string
	Error                               any               // a value of the type of errors
	Schemes                             map[string]Scheme // beside Bearer
	Parameters                          map[string]string // what parameters mean, by name
	Foreign                             map[reflect.Type]Foreign
}

type object = map[string]any

// writer writes one document.
type writer struct {
	info      Info
	types     *schemas
	responses object // of errors
}

// Document writes the operations, ordered by path and method, as indented JSON.
func Document(info Info, operations []Operation) ([]byte, error) {
	w := writer{info: info, types: newSchemas(info.Foreign), responses: object{}}
	paths := object{}
	operations = slices.Clone(operations)
	slices.SortFunc(operations, func(a, b Operation) int { return strings.Compare(a.Path+" "+a.Method, b.Path+" "+b.Method) })

	for _, operation := range operations {
		path := strings.ReplaceAll(operation.Path, "/*", "/{rest}")
		methods, _ := paths[path].(object)
		if methods == nil {
			methods = object{}
			paths[path] = methods
		}
		methods[strings.ToLower(operation.Method)] = w.operation(operation)
	}

	document := object{
		"openapi":           "3.1.0",
		"jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
		"info":              object{"title": info.Title, "version": info.Version, "description": info.Description, "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers":           []any{object{"url": info.Server}},
		"paths":             paths,
		"tags":              tags(operations),
		"components":        object{"schemas": w.types.named, "responses": w.responses, "securitySchemes": w.schemes()},
	}

	body, err := json.MarshalIndent(document, "", "  ")
	return append(body, '\n'), err
}

func (w *writer) schemes() object {
	list := object{Bearer: object{"type": "http", "scheme": "bearer"}}
	for name, scheme := range w.info.Schemes {
		written := object{"type": "http", "scheme": "bearer", "description": scheme.Description}
		if scheme.Header != "" {
			written = object{"type": "apiKey", "in": "header", "name": scheme.Header, "description": scheme.Description}
		}
		list[name] = written
	}
	return list
}

func tags(operations []Operation) []any {
	var names []string
	for _, operation := range operations {
		if !slices.Contains(names, operation.Tag) {
			names = append(names, operation.Tag)
		}
	}

	slices.Sort(names)
	list := make([]any, len(names))
	for i, name := range names {
		list[i] = object{"name": name}
	}
	return list
}

var parameter = regexp.MustCompile(`\{([^}:]+)[^}]*\}`)

func (w *writer) operation(operation Operation) object {
	written := object{
		"operationId": identifier(operation), "summary": operation.Summary, "tags": []any{operation.Tag},
		"responses": w.answers(operation), "security": security(operation.Security),
	}

	var parameters []any
	for _, match := range parameter.FindAllStringSubmatch(operation.Path, -1) {
		parameters = append(parameters, w.parameter(operation, "path", match[1]+"!"))
	}

	for _, name := range operation.Query {
		parameters = append(parameters, w.parameter(operation, "query", name))
	}

	for _, name := range operation.Headers {
		parameters = append(parameters, w.parameter(operation, "header", name))
	}

	if len(parameters) > 0 {
		written["parameters"] = parameters
	}

	if operation.Request != nil {
		media := operation.Media
		if media == "" {
			media = "application/json"
		}
		written["requestBody"] = object{"required": !operation.Partial, "content": object{media: w.request(operation)}}
	}

	return written
}

func (w *writer) parameter(operation Operation, where, written string) object {
	written, needed := strings.CutSuffix(written, "!")
	name, kind, typed := strings.Cut(written, ":")
	if !typed {
		kind = "string"
	}

	about := operation.About[name]
	schema := object{"type": kind}
	maps.Copy(schema, about.Schema)
	described := object{"name": name, "in": where, "required": needed, "schema": schema}
	if meaning := cmp.Or(about.Meaning, w.info.Parameters[name]); meaning != "" {
		described["description"] = meaning
	}
	return described
}

func security(written string) []any {
	list := []any{}
	for alternative := range strings.SplitSeq(written, "|") {
		scheme, scopes, _ := strings.Cut(alternative, ":")
		needed := []any{}
		for scope := range strings.FieldsFuncSeq(scopes, func(char rune) bool { return char == ',' }) {
			needed = append(needed, scope)
		}

		switch scheme {
		case "":
		case Optional:
			list = append(list, object{Bearer: needed}, object{})
		default:
			list = append(list, object{scheme: needed})
		}
	}

	return list
}

var words = regexp.MustCompile(`[A-Za-z0-9]+`)

// identifier is the method and the words of the path: stable, and unique where paths are.
func identifier(operation Operation) string {
	var name strings.Builder
	name.WriteString(strings.ToLower(operation.Method))
	for _, word := range words.FindAllString(strings.ReplaceAll(operation.Path, "/{", "/by_{"), -1) {
		name.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return name.String()
}

func text(status int) string { return strconv.Itoa(status) }

func statusText(status int) string { return http.StatusText(status) + "." }
