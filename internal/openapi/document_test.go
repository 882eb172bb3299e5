package openapi

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type failure struct {
	Message string `json:"message"`
}

type tree struct {
	Name     string            `json:"name"`
	At       time.Time         `json:"at,omitzero"`
	Children []tree            `json:"children,omitempty" doc:"oldest first"`
	Parent   *tree             `json:"parent" doc:"null at the root"`
	Raw      json.RawMessage   `json:"raw"`
	Labels   map[string]string `json:"labels,omitempty"`
	hidden   int
	Secret   string `json:"-"`
}

func TestDocument(t *testing.T) {
	body, err := Document(Info{Title: "t", Version: "1", Server: "/", Error: failure{}}, []Operation{
		{Method: http.MethodPost, Path: "/v1/trees/{tree}", Tag: "trees", Summary: "s", Security: Optional, Query: []string{"a!", "b"}, Request: tree{hidden: 1}, Response: tree{}, Status: 201, Stream: true},
		{Method: http.MethodDelete, Path: "/v1/trees/{tree}", Tag: "trees", Summary: "d", Security: Bearer},
	})
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		OpenAPI    string
		Paths      map[string]map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(body, &document); err != nil {
		t.Fatal(err)
	}
	var want any
	const schema = `{"type":"object","required":["name","parent","raw"],"properties":{
		"name":{"type":"string"},"at":{"type":"string","format":"date-time"},"children":{"type":"array","description":"oldest first","items":{"$ref":"#/components/schemas/Tree"}},
		"parent":{"description":"null at the root","anyOf":[{"$ref":"#/components/schemas/Tree"},{"type":"null"}]},"raw":{},"labels":{"type":"object","additionalProperties":{"type":"string"}}}}`
	if err := json.Unmarshal([]byte(schema), &want); err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(want, document.Components.Schemas["Tree"]); difference != "" {
		t.Error(difference)
	}
	post, remove := document.Paths["/v1/trees/{tree}"]["post"], document.Paths["/v1/trees/{tree}"]["delete"]
	if post["operationId"] != "postV1TreesByTree" || len(post["parameters"].([]any)) != 3 || len(post["security"].([]any)) != 2 {
		t.Errorf("post %v", post)
	}
	if _, is := remove["responses"].(map[string]any)["204"]; !is || remove["requestBody"] != nil {
		t.Errorf("delete %v", remove)
	}
	if document.OpenAPI != "3.1.0" {
		t.Error(document.OpenAPI)
	}
}
