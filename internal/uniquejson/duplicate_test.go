package uniquejson_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"inbox/internal/uniquejson"
)

var asRequest = uniquejson.Names{Folded: 64, Free: []string{"metadata", "data"}}

func TestDuplicate(t *testing.T) {
	many := func(more string) string {
		var members []string
		for i := range 100 {
			members = append(members, `"m`+strconv.Itoa(i)+`":1`)
		}
		return "{" + strings.Join(append(members, more), ",") + "}"
	}
	for document, want := range map[string]string{
		`{}`: "", `[]`: "", ``: "", `{"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}]}`: "", `{"a":"\"a\":1,\"a\":2"}`: "", `{"a":"\\","b":1}`: "",
		`{"a":1,"a":1}`: "a", ` { "a" : 1 , "b" : [ ] , "a" : 1 } `: "a", `{"a":{"b":[{"c":1,"c":2}]}}`: "c", `[{"a":1,"a":2}]`: "a",
		`{"taskId":1,"task_id":2}`: "task_id", `{"method":1,"Method":2}`: "Method", `{"method":1,"\u006dethod":2}`: "method",
		`{"parts":1,"part\u017f":2}`: "partſ", `{"key":1,"Key":2}`: "Key", `{"a\\":1,"a\\":2}`: `a\`, `{"a\"":1,"a\"":2}`: `a"`,
		`{"metadata":{"a":1,"A":2,"a_b":1,"aB":2}}`: "", `{"metadata":{"x":{"a":1,"A":2}}}`: "", `{"metadata":{"x":{"a":1,"a":2}}}`: "a",
		`{"parts":[{"data":{"a":1,"A":2}},{"data":{"b":1,"b":2}}]}`: "b", `{"metadata":1,"metadata":2}`: "metadata",
		many(`"z":1`): "", many(`"m99":1`): "m99", many(`"M9_9":1`): "M9_9", many(`"m0":1`): "m0",
		`{"a":1,"a"`: "a", `{"a"`: "", `{"a":1,`: "", `{"a":}`: "", `{"a" 1,"a":1}`: "", `{"a":"`: "", `{"a":1}{"a":1,"a":2}`: "",
	} {
		name, found := uniquejson.Duplicate([]byte(document), asRequest)
		if name != want || found != (want != "") {
			t.Errorf("%s: %q, %v; want %q", document, name, found, want)
		}
	}
	for document, found := range map[string]bool{`{"a":1,"A":1}`: true, `{"x":{"a":1,"A":1}}`: false, `{"x":{"user_id":1,"userId":1}}`: false, `{"x":{"a":1,"a":1}}`: true} {
		if _, got := uniquejson.Duplicate([]byte(document), uniquejson.Names{Folded: 1}); got != found {
			t.Errorf("%s with the outermost names folded: %v", document, got)
		}
	}
}

// A document over a limit says so: a name that is twice behind the place where the scan ends would pass.
func TestExamineSaysWhereItEnds(t *testing.T) {
	deep := func(levels int) string {
		return `{"x":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + `,"a":1,"a":2}`
	}
	for name, c := range map[string]struct {
		document string
		limits   uniquejson.Limits
		found    bool
		over     string
	}{
		"at the limit":         {deep(10), uniquejson.Limits{Depth: 10}, true, ""},
		"deeper":               {deep(11), uniquejson.Limits{Depth: 10}, false, uniquejson.TooDeep},
		"without a limit":      {deep(2000), uniquejson.Limits{}, false, uniquejson.TooDeep},
		"as many values":       {`[1,2,{"a":1,"a":2}]`, uniquejson.Limits{Values: 5}, true, ""},
		"more values":          {`[1,2,3,4,{"a":1,"a":2}]`, uniquejson.Limits{Values: 5}, false, uniquejson.TooMany},
		"any number of them":   {`[` + strings.Repeat("1,", 9999) + `{"a":1,"a":2}]`, uniquejson.Limits{}, true, ""},
		"no JSON, but scanned": {`{"a":`, uniquejson.Limits{Depth: 10, Values: 5}, false, ""},
	} {
		if _, found, over := uniquejson.Examine([]byte(c.document), asRequest, c.limits); found != c.found || over != c.over {
			t.Errorf("%s: %v %q", name, found, over)
		}
	}
}

// A request costs no allocation.
func TestDuplicateAllocatesNothing(t *testing.T) {
	request := []byte(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"` +
		strings.Repeat(`hello \"you\" `, 100) + `"}],"metadata":{"a":{"b":[1,2,3]}}},"configuration":{"acceptedOutputModes":["text/plain"]}}}`)
	if allocations := testing.AllocsPerRun(100, func() {
		if _, found := uniquejson.Duplicate(request, asRequest); found {
			t.Error("a duplicate")
		}
	}); allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}

// FuzzDuplicate: what passes reads the same with the first and with the last of each name, as a decoder to a map sees it.
func FuzzDuplicate(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"\"[["}],"a":"€"}`))
	f.Add([]byte(`{"\u0061":1,"a":{"\\":1}}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		_, found := uniquejson.Duplicate(document, uniquejson.Names{})
		if found || !json.Valid(document) || !utf8.Valid(document) {
			return
		}
		decoder, counted := json.NewDecoder(strings.NewReader(string(document))), 0
		var open []json.Delim
		var named []bool
		for {
			token, err := decoder.Token()
			if err != nil {
				break
			}
			if delim, is := token.(json.Delim); is {
				if delim == '{' || delim == '[' {
					if len(named) > 0 && open[len(open)-1] == '{' {
						named[len(named)-1] = false
					}
					open, named = append(open, delim), append(named, false)
				} else {
					open, named = open[:len(open)-1], named[:len(named)-1]
				}
				continue
			}
			if len(open) > 0 && open[len(open)-1] == '{' {
				if !named[len(named)-1] {
					counted++
				}
				named[len(named)-1] = !named[len(named)-1]
			}
		}
		var value any
		if json.Unmarshal(document, &value) == nil && members(value) != counted {
			t.Errorf("%q has %d members and passes with %d", document, members(value), counted)
		}
	})
}

func members(value any) (count int) {
	switch known := value.(type) {
	case map[string]any:
		for _, inner := range known {
			count += 1 + members(inner)
		}
	case []any:
		for _, inner := range known {
			count += members(inner)
		}
	}
	return count
}
