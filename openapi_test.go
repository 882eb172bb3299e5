package inbox_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"inbox"
	"inbox/console"
	"inbox/inboxtest"
	"inbox/internal/httpserver"
	"inbox/internal/openapi"
)

var updateDescription = flag.Bool("update-openapi", false, "write docs/openapi.json anew")

// operations are what the rooms say about their routes, by method and path.
func operations() map[string]openapi.Operation {
	known := map[string]openapi.Operation{}
	for _, operation := range inbox.DescribeAPI("").Operations {
		known[operation.Method+" "+operation.Path] = operation
	}
	return known
}

//go:generate go test -run ^TestDescription$ . -update-openapi

// TestDescription: every route below /v1 and /api is described, nothing that is not there is, and the committed document
// is that of the code.
func TestDescription(t *testing.T) {
	t.Parallel()
	server := inboxtest.Start(t)
	known, there := operations(), map[string]bool{}
	for _, route := range server.Routes() {
		key := route.Method + " " + route.Pattern
		if there[key] = true; console.Described(route) && known[key].Summary == "" {
			t.Errorf("%s is not described: add it to the Operations beside the route", key)
		}
	}
	for key := range known {
		if !there[key] {
			t.Errorf("%s is described and not there", key)
		}
	}
	document, err := inbox.DescribeAPI("https://agents.example").Document(server.Routes())
	if err != nil {
		t.Fatal(err)
	}
	if *updateDescription {
		if err := os.WriteFile("docs/openapi.json", document, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile("docs/openapi.json")
	if err != nil || !bytes.Equal(committed, document) {
		t.Errorf("docs/openapi.json is not that of the code (%v); run: go generate .", err)
	}
	for _, path := range []string{"/openapi.json", "/api/openapi.json"} {
		response, body := fetch(t, server, path, "application/json")
		if response.StatusCode != http.StatusOK || len(body) < len(document)/2 {
			t.Errorf("%s: %d, %d bytes", path, response.StatusCode, len(body))
		}
		tag := response.Header.Get("ETag")
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.HTTPAddr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("If-None-Match", tag)
		again, err := inboxtest.Client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = again.Body.Close()
		if tag == "" || again.StatusCode != http.StatusNotModified {
			t.Errorf("%s with its tag %s: %d", path, tag, again.StatusCode)
		}
	}
}

// TestDescriptionIsTheSameEachTime: types of one name get theirs in the same order, whatever order Go gives to maps.
func TestDescriptionIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	var first []byte
	for i := range 100 {
		document, err := inbox.DescribeAPI("/").Document([]httpserver.Route{{Method: http.MethodPost, Pattern: "/v1/pull/{agent}/take"}, {Method: http.MethodGet, Pattern: "/api/v1/turns/{turn}"}})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = document
		}
		if !bytes.Equal(first, document) {
			t.Fatalf("document %d is another one", i)
		}
	}
}

func TestUnknownRoutesAreShown(t *testing.T) {
	t.Parallel()
	document, err := inbox.DescribeAPI("/").Document([]httpserver.Route{{Method: http.MethodGet, Pattern: "/v1/new"}, {Method: http.MethodOptions, Pattern: "/v1/new"}, {Pattern: "/a2a/{agent}"}})
	if err != nil || !bytes.Contains(document, []byte(`"Not described"`)) || bytes.Contains(document, []byte(`options`)) || bytes.Contains(document, []byte(`a2a`)) {
		t.Errorf("%s, %v", document, err)
	}
}

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
	body, err := inbox.DescribeAPI("https://agents.example").Document(routes)
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
	t.Parallel()
	server := inboxtest.Start(t)
	d := describedBy(t, server.Routes(), true)
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
	t.Parallel()
	d := describedBy(t, inboxtest.Start(t).Routes(), true)
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
