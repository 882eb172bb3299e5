package operation_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/operator/operation"
)

type shelf struct{ books []string }

type bookBody struct {
	Title string `json:"title"`
}

type bookInput struct {
	Kind string `query:"kind" default:"novel" one:"novel poem" doc:"What it is."`
	Lent bool   `query:"lent"`
	Key  string `header:"Idempotency-Key"`
	operation.Page
	Body bookBody `body:"required"`
}

type bookAnswer struct {
	bookInput

	By string
}

var put = operation.Declare(operation.Operation[*shelf]{
	Method: http.MethodPost, Path: "/api/v1/books", Summary: "Put a book on the shelf", Role: exchange.RoleWork, MaxBody: 64, Hint: `send {"title":"…"}`,
}, func(_ context.Context, s *shelf, caller operation.Caller, in bookInput) (bookAnswer, error) {
	s.books = append(s.books, in.Body.Title)
	return bookAnswer{in, caller.By}, nil
})

var burn = operation.Declare(operation.Operation[*shelf]{Method: http.MethodDelete, Path: "/api/v1/books", Summary: "Burn all books"},
	func(_ context.Context, s *shelf, _ operation.Caller, _ struct{}) (operation.None, error) {
		s.books = nil
		return operation.None{}, nil
	})

// TestInputIsReadAsItIsDeclared: parameters and body reach the function, with defaults; what breaks the declaration is refused with its name and does nothing.
func TestInputIsReadAsItIsDeclared(t *testing.T) {
	for name, test := range map[string]struct{ query, key, body, field, says, want string }{
		"all":             {"?kind=poem&lent=true&limit=3&before=b9", " k1 ", `{"title":"Ode"}`, "", "", `poem true k1 3 b9 Ode`},
		"defaults":        {"", "", `{"title":"Emma"}`, "", "", `novel false  50  Emma`},
		"unknown value":   {"?kind=map", "", `{"title":"x"}`, "kind", `"novel" or "poem"`, ""},
		"no boolean":      {"?lent=yes", "", `{"title":"x"}`, "lent", "true or false", ""},
		"no number":       {"?limit=many", "", `{"title":"x"}`, "limit", "1 to 500", ""},
		"too large":       {"?limit=501", "", `{"title":"x"}`, "limit", "1 to 500", ""},
		"too small":       {"?limit=0", "", `{"title":"x"}`, "limit", "1 to 500", ""},
		"no body":         {"", "", "", "", `send {"title"`, ""},
		"broken":          {"", "", `{"title":`, "", `send {"title"`, ""},
		"unknown member":  {"", "", `{"titel":"x"}`, "", `"titel" is not known`, ""},
		"over the bounds": {"", "", `{"title":"` + strings.Repeat("x", 64) + `"}`, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequest(http.MethodPost, "/api/v1/books"+test.query, strings.NewReader(test.body))
			request.Header.Set("Idempotency-Key", test.key)
			var s shelf
			answer, err := put.Serve(httptest.NewRecorder(), request, &s, operation.Caller{By: "operator:ann"})
			if test.want == "" {
				if f := fault.Of(err); err == nil || f.Field != test.field || !strings.Contains(f.Public, test.says) || len(s.books) > 0 {
					t.Errorf("%v, field %q, %v", err, f.Field, s.books)
				}
				return
			}
			got, is := answer.(bookAnswer)
			if err != nil || !is || got.By != "operator:ann" || len(s.books) != 1 {
				t.Fatalf("%v %v %v", answer, err, s.books)
			}
			words := strings.Join([]string{got.Kind, map[bool]string{true: "true", false: "false"}[got.Lent], got.Key, string(must(json.Marshal(got.Limit))), got.Before, got.Body.Title}, " ")
			if words != test.want {
				t.Errorf("read %q, want %q", words, test.want)
			}
		})
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

// TestRoleAndRecordFollowTheDeclaration: an operation that changes something needs the largest role unless it says otherwise, and is recorded.
func TestRoleAndRecordFollowTheDeclaration(t *testing.T) {
	look := operation.Operation[*shelf]{Method: http.MethodGet}
	mark := operation.Operation[*shelf]{Method: http.MethodPut, Role: exchange.RoleRead, Unrecorded: true}
	for name, test := range map[string]struct {
		o       operation.Operation[*shelf]
		role    exchange.Role
		changes bool
	}{
		"look": {look, exchange.RoleRead, false}, "change": {burn, exchange.RoleAdmin, true}, "work": {put, exchange.RoleWork, true}, "own marks": {mark, exchange.RoleRead, false},
	} {
		if test.o.NeededRole() != test.role || test.o.Changes() != test.changes {
			t.Errorf("%s: %s, recorded %v", name, test.o.NeededRole(), test.o.Changes())
		}
	}
	if answer, err := burn.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodDelete, "/", http.NoBody), &shelf{}, operation.Caller{}); answer != nil || err != nil {
		t.Errorf("an operation without an answer: %v %v", answer, err)
	}
}

// TestDescriptionFollowsTheDeclaration: the document of the API has each parameter with its meaning, default and bounds.
func TestDescriptionFollowsTheDeclaration(t *testing.T) {
	described := put.Describe()
	if described.Security != "operator:work" || strings.Join(described.Query, " ") != "kind lent:boolean limit:integer before" || strings.Join(described.Headers, " ") != "Idempotency-Key" || described.Partial {
		t.Errorf("%+v", described)
	}
	if kind := described.About["kind"]; kind.Meaning != "What it is." || kind.Schema["default"] != "novel" || len(kind.Schema["enum"].([]string)) != 2 {
		t.Errorf("kind: %+v", kind)
	}
	if limit := described.About["limit"]; limit.Schema["maximum"] != 500 || limit.Schema["default"] != 50 {
		t.Errorf("limit: %+v", limit)
	}
	if gone := burn.Describe(); gone.Response != nil || gone.Request != nil {
		t.Errorf("an operation without an answer: %+v", gone)
	}
}
