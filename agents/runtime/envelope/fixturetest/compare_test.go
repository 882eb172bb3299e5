package fixturetest

import (
	"errors"
	"testing"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
)

func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		want, got string
		equal     bool
	}{
		"order of members":            {`{"a":1,"b":2}`, `{"b":2.0,"a":1}`, true},
		"missing member":              {`{"a":null}`, `{}`, false},
		"extra member":                {`{}`, `{"a":null}`, false},
		"order of lists":              {`[1,2]`, `[2,1]`, false},
		"empty containers":            {`{"a":[]}`, `{"a":{}}`, true},
		"empty list is not null":      {`[]`, `null`, false},
		"object is no list":           {`{"a":1}`, `["a"]`, false},
		"time":                        {`"<timestamp>"`, `"2026-04-28T12:00:00.5+00:00"`, true},
		"no time":                     {`"<timestamp>"`, `"soon"`, false},
		"a number is no masked text":  {`"<code>"`, `7`, false},
		"empty run id":                {`"<run-id>"`, `""`, false},
		"mask inside of a text":       {`"run <run-id>!"`, `"run 17!"`, true},
		"run ids extended":            {`["<run-id>","<run-id>-message"]`, `["r1","r1-message"]`, true},
		"run ids not extended":        {`["<run-id>","<run-id>-message"]`, `["r1","r2-message"]`, false},
		"error message":               {`{"error":{"code":"a","message":"x"}}`, `{"error":{"code":"a","message":"y","path":"p"}}`, true},
		"error code":                  {`{"error":{"code":"a","message":"x"}}`, `{"error":{"code":"b","message":"x"}}`, false},
		"error path":                  {`{"error":{"code":"a","message":"x","path":"p"}}`, `{"error":{"code":"a","message":"x"}}`, false},
		"error fields in order":       {`{"error":{"code":"a","fields":["x","y"]}}`, `{"error":{"code":"a","fields":["y","x"]}}`, false},
		"error beside other members":  {`{"id":1,"error":{"code":"a","message":"x"}}`, `{"id":1,"error":{"code":"a","message":"y"}}`, false},
		"content of a tool result":    {`{"type":"tool_result","content":"{\"a\":1,\"b\":[]}"}`, `{"type":"tool_result","content":"{\"b\":{},\"a\":1.0}"}`, true},
		"content of another type":     {`{"type":"text","content":"{\"a\":1}"}`, `{"type":"text","content":"{ \"a\":1}"}`, false},
		"text content":                {`{"type":"tool_result","content":"no"}`, `{"type":"tool_result","content":"{}"}`, false},
		"excerpt":                     {`{"excerpt":"<excerpt>","excerpt_bytes":3}`, `{"excerpt":"abc","excerpt_bytes":3}`, true},
		"long excerpt":                {`{"excerpt":"<excerpt>","excerpt_bytes":3}`, `{"excerpt":"abcd","excerpt_bytes":3}`, false},
		"excerpt inside of a content": {`{"type":"tool_result","content":"{\"excerpt\":\"<excerpt>\"}"}`, `{"type":"tool_result","content":"{\"excerpt\":\"x\"}"}`, true},
	} {
		want, got := parse(t, c.want), parse(t, c.got)
		if differences := Compare(want, got); (len(differences) == 0) != c.equal {
			t.Errorf("%s: %v", name, differences)
		}
	}
}

func parse(t *testing.T, text string) any {
	t.Helper()
	given, err := value.Decode([]byte(text), recorded)
	if err != nil {
		t.Fatal(err)
	}
	return given
}

func TestCompareTakesGoValues(t *testing.T) {
	made := map[string]any{"n": 1, "names": []string{"a"}, "rows": []map[string]any{{"x": int64(2)}}, "none": map[string]any(nil)}
	if differences := Compare(parse(t, `{"n":1,"names":["a"],"rows":[{"x":2}],"none":[]}`), made); len(differences) > 0 {
		t.Error(differences)
	}
	if differences := Compare(parse(t, `{}`), map[string]any{"f": func() {}}); len(differences) == 0 {
		t.Error("a function passed as JSON")
	}
}

func TestErrorsWithoutCode(t *testing.T) {
	value := Outcome(nil, errors.New("session_id must be a non-empty string"))
	if differences := Compare(parse(t, `{"error":{"code":"invalid_argument","message":"x"}}`), value); len(differences) > 0 {
		t.Error(differences)
	}
	coded := ErrorValue(&envelope.Error{Code: "c", Path: "p", Reason: "r"})
	if coded["code"] != "c" || coded["path"] != "p" {
		t.Error(coded)
	}
}

func TestAPanicIsADifference(t *testing.T) {
	differences, _ := check(Case{Expected: map[string]any{"ok": nil}}, func(Case) (any, error) { panic("x") })
	if len(differences) != 1 {
		t.Error(differences)
	}
}
