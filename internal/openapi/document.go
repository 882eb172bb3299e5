// Package openapi writes an OpenAPI 3.1 document (spec.openapis.org/oas/v3.1) of HTTP operations whose bodies are Go
// types. It describes what it is given: it routes nothing and checks no request.
package openapi

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Security of an Operation.
const (
	Bearer   = "bearer" // a token is needed
	Optional = "guest"  // a token, or none
)

// Operation is one method at one path.
type Operation struct {
	Method   string
	Path     string // with {names} of its parameters
	Tag      string
	Summary  string
	Security string
	Query    []string // names of parameters; a "!" at the end marks one that is needed
	Headers  []string // likewise
	Request  any      // a value of the body's type; nil = no body
	Media    string   // of the body; empty = application/json
	Response any      // a value of the answer's type; nil = 204
	Status   int      // of a success; 0 = 200, or 204 without Response
	Stream   bool     // the answer can be an event stream
	Error    any      // a value of the type of errors; nil = that of the document
}

// Info heads a document.
type Info struct {
	Title, Version, Description, Server string
	Error                               any // a value of the type of errors
}

type object = map[string]any

// Document writes the operations, ordered by path and method, as indented JSON.
func Document(info Info, operations []Operation) ([]byte, error) {
	types := newSchemas()
	paths := object{}
	for _, operation := range operations {
		path := strings.ReplaceAll(operation.Path, "/*", "/{rest}")
		methods, _ := paths[path].(object)
		if methods == nil {
			methods = object{}
			paths[path] = methods
		}
		methods[strings.ToLower(operation.Method)] = write(operation, info, types)
	}
	document := object{
		"openapi": "3.1.0",
		"info":    object{"title": info.Title, "version": info.Version, "description": info.Description, "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers": []any{object{"url": info.Server}},
		"paths":   paths,
		"tags":    tags(operations),
		"components": object{
			"schemas":         types.named,
			"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}},
		},
	}
	body, err := json.MarshalIndent(document, "", "  ")
	return append(body, '\n'), err
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

func write(operation Operation, info Info, types *schemas) object {
	written := object{
		"operationId": identifier(operation), "summary": operation.Summary, "tags": []any{operation.Tag},
		"responses": responses(operation, info, types), "security": security(operation.Security),
	}
	var parameters []any
	for _, match := range parameter.FindAllStringSubmatch(operation.Path, -1) {
		parameters = append(parameters, object{"name": match[1], "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	parameters = append(parameters, named("query", operation.Query)...)
	parameters = append(parameters, named("header", operation.Headers)...)
	if len(parameters) > 0 {
		written["parameters"] = parameters
	}
	if operation.Request != nil {
		media := operation.Media
		if media == "" {
			media = "application/json"
		}
		written["requestBody"] = object{"required": true, "content": object{media: object{"schema": types.of(operation.Request)}}}
	}
	return written
}

func named(where string, names []string) (list []any) {
	for _, name := range names {
		name, needed := strings.CutSuffix(name, "!")
		list = append(list, object{"name": name, "in": where, "required": needed, "schema": object{"type": "string"}})
	}
	return list
}

func security(kind string) []any {
	switch kind {
	case Bearer:
		return []any{object{"bearer": []any{}}}
	case Optional:
		return []any{object{"bearer": []any{}}, object{}}
	}
	return []any{}
}

func responses(operation Operation, info Info, types *schemas) object {
	failure := info.Error
	if operation.Error != nil {
		failure = operation.Error
	}
	list := object{"default": object{"description": "An error.", "content": object{"application/json": object{"schema": types.of(failure)}}}}
	status := operation.Status
	if operation.Response == nil {
		if status == 0 {
			status = http.StatusNoContent
		}
		list[strconv.Itoa(status)] = object{"description": http.StatusText(status)}
		return list
	}
	if status == 0 {
		status = http.StatusOK
	}
	content := object{"application/json": object{"schema": types.of(operation.Response)}}
	if operation.Stream {
		content["text/event-stream"] = object{"schema": object{"type": "string"}}
	}
	list[strconv.Itoa(status)] = object{"description": http.StatusText(status), "content": content}
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
