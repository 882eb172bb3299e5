package inbox

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"inbox/internal/httpserver"
)

// description is an OpenAPI document as tests read it.
type description struct {
	t        *testing.T
	document map[string]any
	compiler *jsonschema.Compiler
	known    map[string]*jsonschema.Schema
}

// describedBy reads the document of a server. Strict refuses members that its types do not have; the contract's own schemas
// leave room for later versions.
func describedBy(t *testing.T, routes []httpserver.Route, strict bool) *description {
	t.Helper()
	body, err := apiDescription("https://agents.example").Document(routes)
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	d := &description{t: t, document: document.(map[string]any), compiler: jsonschema.NewCompiler(), known: map[string]*jsonschema.Schema{}}
	if strict {
		for name, schema := range d.schemas() {
			object := schema.(map[string]any)
			if _, is := object["properties"]; is && object["title"] == nil && object["additionalProperties"] == nil {
				object["additionalProperties"] = false
			}
			d.schemas()[name] = object
		}
	}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	if err := d.compiler.AddResource("https://agents.example/openapi.json", d.document); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *description) schemas() map[string]any {
	return d.document["components"].(map[string]any)["schemas"].(map[string]any)
}

// check validates a JSON text against the schema at a place of the document.
func (d *description) check(what string, body []byte, place ...string) {
	d.t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		d.t.Errorf("%s: %v in %.200s", what, err, body)
		return
	}
	if err := d.schema(place...).Validate(value); err != nil {
		d.t.Errorf("%s: %v\nin %.2000s", what, err, body)
	}
}

func (d *description) schema(place ...string) *jsonschema.Schema {
	d.t.Helper()
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	pointer := "#"
	for _, step := range place {
		pointer += "/" + escape.Replace(step)
	}
	if d.known[pointer] == nil {
		schema, err := d.compiler.Compile("https://agents.example/openapi.json" + pointer)
		if err != nil {
			d.t.Fatalf("%s: %v", pointer, err)
		}
		d.known[pointer] = schema
	}
	return d.known[pointer]
}

// find looks for members along a path; nil where one is missing.
func (d *description) find(place ...string) any {
	var value any = d.document
	for _, step := range place {
		object, is := value.(map[string]any)
		if !is {
			return nil
		}
		value = object[step]
		inner, _ := value.(map[string]any)
		if reference, is := inner["$ref"].(string); is {
			value = d.find(strings.Split(strings.TrimPrefix(reference, "#/"), "/")...)
		}
	}
	return value
}

// TestDescriptionOfTypes: all schemas are schemas, no body is a free object, and all examples are what they are examples of: of
// requests also strictly decoded by the type that the handler reads.
func TestDescriptionOfTypes(t *testing.T) {
	server := startServer(t)
	d := describedBy(t, server.routes, true)
	for name := range d.schemas() {
		d.schema("components", "schemas", name)
	}
	for key, operation := range operations() {
		method, path, _ := strings.Cut(key, " ")
		place := []string{"paths", path, strings.ToLower(method)}
		for what, value := range map[string]any{"request": operation.Request, "response": operation.Response} {
			if value == nil || reflect.TypeOf(value).Kind() == reflect.String {
				continue
			}
			if kind := reflect.TypeOf(value).Kind(); kind != reflect.Struct {
				t.Errorf("%s: the %s is a %s and no type", key, what, kind)
			}
			at := append(slices.Clone(place), "requestBody", "content", "application/json", "schema")
			if what == "response" {
				at = append(slices.Clone(place), "responses", text(operation.Status, http.StatusOK), "content", "application/json", "schema")
			}
			if reflect.ValueOf(value).IsZero() {
				d.schema(at...)
				continue
			}
			body, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			d.check(key+": the example of the "+what, body, at...)
			again := reflect.New(reflect.TypeOf(value))
			decoder := json.NewDecoder(bytes.NewReader(body))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(again.Interface()); err != nil {
				t.Errorf("%s: the %s cannot be read: %v", key, what, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.schemas())) {
		if schema := d.schemas()[name].(map[string]any); schema["properties"] == nil && schema["oneOf"] == nil && schema["allOf"] == nil {
			t.Errorf("%s is free: %v", name, schema)
		}
	}
}

func text(status, otherwise int) string {
	if status == 0 {
		status = otherwise
	}
	return strconv.Itoa(status)
}

// TestDescriptionNotices: what the other tests hold to the document would be noticed if it were wrong.
func TestDescriptionNotices(t *testing.T) {
	d := describedBy(t, startServer(t).routes, true)
	good := map[string]any{"client_id": "relay", "acked": json.Number("1")}
	schema := d.schema("paths", "/v1/bridge/ack", "post", "responses", "200", "content", "application/json", "schema")
	if err := schema.Validate(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(map[string]any){
		"a member more": func(v map[string]any) { v["more"] = "x" }, "a member less": func(v map[string]any) { delete(v, "acked") },
		"another type": func(v map[string]any) { v["acked"] = "one" }, "null": func(v map[string]any) { v["client_id"] = nil },
	} {
		bad := maps.Clone(good)
		change(bad)
		if schema.Validate(bad) == nil {
			t.Errorf("%s is not noticed", name)
		}
	}
}
