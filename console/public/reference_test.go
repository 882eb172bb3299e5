package public

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"inbox/internal/httpserver"
	"inbox/internal/reference"
)

// TestReferencePages: the server has a row at the address of each code, and links between its pages alone.
func TestReferencePages(t *testing.T) {
	t.Parallel()
	server, err := httpserver.New(httpserver.Options{Routes: NewPages(options()).ReferenceRoutes()})
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) (int, string) {
		recorder := httptest.NewRecorder()
		server.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		return recorder.Code, recorder.Body.String()
	}

	for _, page := range reference.All() {
		status, body := read(reference.Path + page.Name)
		if status != http.StatusOK || strings.Contains(body, `href="../`) {
			t.Errorf("%s: %d, or a link to a document", page.Name, status)
		}
		for _, group := range page.Groups {
			for _, entry := range group.Entries {
				if !strings.Contains(body, `<tr id="`+group.Anchor(entry)+`">`) {
					t.Errorf("%s has no row %s", page.Name, group.Anchor(entry))
				}
			}
		}
	}
	if _, body := read("/docs/reference/states"); !strings.Contains(body, `<a href="/docs/reference/errors">code</a>`) {
		t.Error("states do not link to the codes")
	}
	if status, body := read("/docs/reference/none"); status != http.StatusNotFound || !strings.Contains(body, `"documentation":"/docs/reference/errors#not_found"`) {
		t.Errorf("a page that is not there: %d %s", status, body)
	}
}
