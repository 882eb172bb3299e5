package inbox

import (
	"bytes"
	"flag"
	"net/http"
	"os"
	"testing"

	"inbox/console"
	"inbox/internal/httpserver"
	"inbox/internal/openapi"
)

var updateDescription = flag.Bool("update-openapi", false, "write docs/openapi.json anew")

// operations are what the rooms say about their routes, by method and path.
func operations() map[string]openapi.Operation {
	known := map[string]openapi.Operation{}
	for _, operation := range apiDescription("").Operations {
		known[operation.Method+" "+operation.Path] = operation
	}
	return known
}

//go:generate go test -run ^TestDescription$ . -update-openapi

// TestDescription: every route below /v1 and /api is described, nothing that is not there is, and the committed document
// is that of the code.
func TestDescription(t *testing.T) {
	server := startServer(t)
	known, there := operations(), map[string]bool{}
	for _, route := range server.routes {
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
	document, err := apiDescription("https://agents.example").Document(server.routes)
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
		again, err := bounded.Do(request)
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
	var first []byte
	for i := range 100 {
		document, err := apiDescription("/").Document([]httpserver.Route{{Method: http.MethodPost, Pattern: "/v1/pull/{agent}/take"}, {Method: http.MethodGet, Pattern: "/api/v1/turns/{turn}"}})
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
	document, err := apiDescription("/").Document([]httpserver.Route{{Method: http.MethodGet, Pattern: "/v1/new"}, {Method: http.MethodOptions, Pattern: "/v1/new"}, {Pattern: "/a2a/{agent}"}})
	if err != nil || !bytes.Contains(document, []byte(`"Not described"`)) || bytes.Contains(document, []byte(`options`)) || bytes.Contains(document, []byte(`a2a`)) {
		t.Errorf("%s, %v", document, err)
	}
}
