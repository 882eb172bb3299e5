package openapi

import (
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// body is a JSON value, with its example unless it is zero.
func (w *writer) body(value any) object {
	written := object{"schema": w.types.of(value)}
	if given := reflect.ValueOf(value); !given.IsZero() && (given.Kind() != reflect.Map || given.Len() > 0) {
		written["example"] = value
	}
	return written
}

// request is the body of an operation. A document has one example or several named ones, never both.
func (w *writer) request(operation Operation) object {
	written := w.body(operation.Request)
	if len(operation.Examples) == 0 {
		return written
	}

	named := object{}
	for name, example := range operation.Examples {
		named[name] = object{"value": example}
	}
	delete(written, "example")
	written["examples"] = named
	return written
}

func (w *writer) answers(operation Operation) object {
	list := object{"default": w.failure(operation)}
	for _, status := range failures(operation) {
		list[text(status)] = w.failure(operation)
	}

	status := operation.Status
	switch {
	case operation.Bytes:
		operation.Also = append(slices.Clip(operation.Also), http.StatusPartialContent)
		status = http.StatusOK
	case status == 0 && operation.Response == nil:
		status = http.StatusNoContent
	case status == 0:
		status = http.StatusOK
	}

	for _, one := range append(operation.Also, status) {
		list[text(one)] = w.success(operation, one)
	}

	return list
}

func (w *writer) success(operation Operation, status int) object {
	answer := object{"description": statusText(status)}
	if operation.Bytes {
		answer["content"] = object{"*/*": object{}}
		return answer
	}
	if operation.Response == nil || status == http.StatusNoContent {
		return answer
	}

	content := object{"application/json": w.body(operation.Response)}
	if operation.Stream && status == http.StatusOK {
		content["text/event-stream"] = w.events(operation.Events)
	}

	answer["content"] = content
	return answer
}

// events describes a stream. JSON Schema cannot say what stands in the lines, so x-events names the type of each one's data.
func (w *writer) events(events []Event) object {
	lines, typed := []string{"Server-sent events; comments keep the connection alive."}, object{}
	for _, event := range events {
		name := event.Name
		if name == "" {
			name = "message"
		}
		lines = append(lines, "`"+name+"`: "+event.Summary)
		typed[name] = w.types.of(event.Data)
	}

	described := object{"schema": object{"type": "string", "description": strings.Join(lines, "\n\n")}}
	if len(typed) > 0 {
		described["x-events"] = typed
	}

	return described
}

// failures are the statuses of errors that an operation of this kind can have.
func failures(operation Operation) []int {
	list := append([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable}, operation.Errors...)
	if operation.Security != "" {
		list = append(list, http.StatusUnauthorized, http.StatusForbidden)
	}
	if strings.Contains(operation.Path, "{") {
		list = append(list, http.StatusNotFound)
	}
	if operation.Request != nil || len(operation.Query) > 0 {
		list = append(list, http.StatusBadRequest)
	}
	if operation.Request != nil {
		list = append(list, http.StatusRequestEntityTooLarge)
	}

	return list
}

// failure refers to the answer that all errors of one form have.
func (w *writer) failure(operation Operation) object {
	value := w.info.Error
	if operation.Error != nil {
		value = operation.Error
	}

	schema := w.types.of(value)
	reference, _ := schema["$ref"].(string)
	name := reference[strings.LastIndex(reference, "/")+1:]
	if name == "" {
		name = "Error"
	}

	w.responses[name] = object{
		"description": "An error, in words and with a code for programs.",
		"headers":     object{"Retry-After": object{"description": "Seconds after which the request may succeed.", "schema": object{"type": "integer"}}},
		"content":     object{"application/json": object{"schema": schema}},
	}

	return object{"$ref": "#/components/responses/" + name}
}
