package console_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"inbox/console"
	"inbox/exchange"
	"inbox/internal/openapi"
)

// single are the calls that look at one thing. Everything else that is read below /api/v1 is a list.
var single = map[string]string{
	"/api/v1/unread": "a count", "/api/v1/waiting": "counts", "/api/v1/usage": "sums", "/api/v1/statistics": "sums in steps of time",
	"/api/v1/backlog": "sums by kind", "/api/v1/settings": "a document", "/api/v1/pause": "the pause of all agents",
	"/api/v1/turns/{turn}/result": "a document", "/api/v1/turns/{turn}/recording": "a document", "/api/v1/threads/{thread}/takeover": "who has one conversation",
}

// TestEveryListHasOneShape: each GET below /api/v1 answers with one thing, a file, or {"items": […], "next": "…"}; and a list that takes a limit
// takes its cursor by the name that all lists have.
func TestEveryListHasOneShape(t *testing.T) {
	lists := 0
	for _, operation := range console.Operations() {
		if operation.Method != http.MethodGet || operation.Bytes {
			continue
		}
		_, one := single[operation.Path]
		if one = one || strings.HasSuffix(operation.Path, "}"); one {
			if operation.Response == nil || shapeOfList(operation.Response) == "" {
				t.Errorf("%s is a list: take it out of the table of single things", operation.Path)
			}
			continue
		}
		lists++
		if wrong := shapeOfList(operation.Response); wrong != "" {
			t.Errorf("GET %s: %s", operation.Path, wrong)
		}
		if wrong := paging(operation); wrong != "" {
			t.Errorf("GET %s: %s", operation.Path, wrong)
		}
	}
	if lists < 30 {
		t.Errorf("only %d lists were looked at", lists)
	}
}

// paging says what is wrong with the parameters by which a list is read page by page; "" = nothing.
func paging(operation openapi.Operation) string {
	limited, cursor := slices.Contains(operation.Query, "limit:integer"), slices.Contains(operation.Query, "before")
	if limited != cursor && operation.Path != "/api/v1/mail/reports/summary" { // the largest sums have no following page
		return "limit and before belong together"
	}
	return ""
}

// shapeOfList says how the JSON of a value differs from that of a list; "" = it does not.
func shapeOfList(value any) string {
	filled := reflect.New(reflect.TypeOf(value)).Elem()
	written, err := json.Marshal(filled.Interface())
	if err != nil {
		return err.Error()
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(written, &members) != nil {
		return "it is no object"
	}
	for name, kind := range map[string]reflect.Kind{"items": reflect.Slice, "next": reflect.String} {
		if _, there := members[name]; !there {
			return name + " is missing"
		}
		if got := fieldOf(filled.Type(), name); got != kind {
			return name + " is a " + got.String()
		}
	}
	return ""
}

// fieldOf returns the kind of the field with a name in JSON.
func fieldOf(t reflect.Type, name string) reflect.Kind {
	for _, field := range reflect.VisibleFields(t) {
		if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag == name {
			return field.Type.Kind()
		}
	}
	return reflect.Invalid
}

// TestEmptyListHasItems: what no row is in is [], not null, and says that it ends.
func TestEmptyListHasItems(t *testing.T) {
	for name, list := range map[string]any{
		"none": exchange.NewList[string](nil, ""), "cut": exchange.CutList(nil, 3, func(text string) string { return text }),
	} {
		if written, err := json.Marshal(list); err != nil || string(written) != `{"items":[],"next":""}` {
			t.Errorf("%s: %s %v", name, written, err)
		}
	}
	rows := []string{"a", "b", "c"}
	if page := exchange.CutList(rows, 2, strings.ToUpper); page.Next != "B" || len(page.Items) != 2 {
		t.Errorf("%+v", page)
	}
}
