package document

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseObject(t *testing.T) {
	got, err := Parse([]byte(` {"a":"x\n\u00e9\ud83d\ude00","n":-1.5e3,"l":[1,true,null,{}],"o":{"type":"Note"},"@context":["x",{"@id":"y"}],"signature":{"a":1}} `))
	if err != nil {
		t.Fatal(err)
	}
	want := Object{
		"a": "x\né😀", "n": json.Number("-1.5e3"), "l": []any{json.Number("1"), true, nil, Object{}},
		"o": Object{"type": "Note"}, "@context": nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestParseObjectRefuses(t *testing.T) {
	cases := map[string]string{
		"empty":                      ``,
		"list":                       `[]`,
		"text after the end":         `{} {}`,
		"duplicate names":            `{"a":1,"a":2}`,
		"duplicate by escape":        `{"a":1,"\u0061":2}`,
		"duplicate deep inside":      `{"a":[{"b":1,"b":1}]}`,
		"invalid UTF-8":              "{\"a\":\"\xff\"}",
		"control character":          "{\"a\":\"\x01\"}",
		"bad escape":                 `{"a":"\x"}`,
		"bad unicode escape":         `{"a":"\u00g0"}`,
		"comma at the end":           `{"a":1,}`,
		"comma at the end of list":   `{"a":[1,]}`,
		"leading comma":              `{,"a":1}`,
		"missing colon":              `{"a" 1}`,
		"leading zero":               `{"a":01}`,
		"lone minus":                 `{"a":-}`,
		"no digits after the point":  `{"a":1.}`,
		"plus sign":                  `{"a":+1}`,
		"NaN":                        `{"a":NaN}`,
		"comment":                    `{/**/"a":1}`,
		"open string":                `{"a":"`,
		"open object":                `{"a":{`,
		"name in another case":       `{"Actor":"https://a.example"}`,
		"name in another case below": `{"object":{"attributedto":"https://a.example","AttributedTo":"x"}}`,
		"name with a Kelvin sign":    `{"publi` + "c\u212aey" + `":{}}`,
		"id in another case":         `{"ID":"https://a.example"}`,
		"graph":                      `{"@graph":[]}`,
		"included":                   `{"object":{"@included":[]}}`,
		"reverse":                    `{"@reverse":{}}`,
		"expanded id":                `{"@id":"https://a.example"}`,
		"expanded id of the object":  `{"object":{"@id":"https://a.example"}}`,
		"graph in a foreign term":    `{"x:y":{"@graph":[]}}`,
		"keyword after a foreign":    `{"x:y":{"@type":"z"},"object":{"@type":"Note"}}`,
		"65 levels":                  strings.Repeat(`{"a":`, 65) + `1` + strings.Repeat(`}`, 65),
		"65 levels in the context":   `{"@context":` + strings.Repeat(`[`, 65) + strings.Repeat(`]`, 65) + `}`,
		"broken context":             `{"@context":{"a"}}`,
		"too many values":            `{"a":[` + strings.Repeat(`1,`, 10_000) + `1]}`,
	}
	for name, text := range cases {
		if got, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: accepted as %v", name, got)
		}
	}
	if _, err := Parse([]byte(strings.Repeat(`{"a":`, 63) + `{}` + strings.Repeat(`}`, 63))); err != nil {
		t.Errorf("64 levels: %v", err)
	}
}

// TestParseObjectTakesTypedForeignTerms: every actor of Friendica has one.
func TestParseObjectTakesTypedForeignTerms(t *testing.T) {
	if _, err := Parse([]byte(`{"type":"Person","vcard:hasAddress":{"@type":"vcard:Home","vcard:region":""}}`)); err != nil {
		t.Error(err)
	}
}

// FuzzParseObject holds the scanner against encoding/json: what we accept must be JSON, with the same values.
func FuzzParseObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":"b"}`, `{"@context":"x","a":[1,2,{"b":null}]}`, `{"a":"\ud83d\ude00"}`, `{"a":1e9}`, `{"a":tru}`, "{\"a\":\"\xc3\"}",
		"\ufeff{}", `{"a":"\ud83d","b":"\ude00\ud83d\ud83d\ude00"}`, `{"id":"https://bücher.example/u"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := Parse(body)
		if err != nil {
			return
		}
		decoder := json.NewDecoder(strings.NewReader(strings.TrimPrefix(string(body), "\ufeff")))
		decoder.UseNumber()
		var want Object
		if err := decoder.Decode(&want); err != nil {
			t.Fatalf("accepted what is not JSON: %v", err)
		}
		delete(want, "signature")
		if diff := cmp.Diff(withoutForms(want), withoutForms(got)); diff != "" {
			t.Error(diff)
		}
	})
}

// withoutForms removes contexts, which are not kept, and writes hosts in one spelling.
func withoutForms(value any) any {
	switch v := value.(type) {
	case Object:
		for name, member := range v {
			v[name] = withoutForms(member)
		}
		delete(v, "@context")
	case string:
		return Canonical(v)
	case []any:
		for i := range v {
			v[i] = withoutForms(v[i])
		}
	}
	return value
}

func TestSplitMembersKeepsEveryByte(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := rapid.MapOf(rapid.String(), rapid.OneOf(
			rapid.String().AsAny(), rapid.Float64().AsAny(), rapid.Bool().AsAny(), rapid.SliceOf(rapid.String()).AsAny(),
		)).Draw(t, "content")
		document, err := json.Marshal(content)
		if err != nil {
			t.Skip("NaN and infinities are no JSON: draw another document")
		}
		members, err := SplitMembers(document)
		if err != nil || len(members) != len(content) {
			t.Fatalf("%d of %d members: %v", len(members), len(content), err)
		}
		if joined := members.Without(); !bytes.Equal(joined, document) {
			t.Fatalf("%s became %s", document, joined)
		}
	})
}

// TestBrokenTextsAreRead: programs cut names between two UTF-16 units, and write a byte order mark.
func TestBrokenTextsAreRead(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":"Sam \ud83d"}`: "Sam \ufffd", `{"a":"\ude00 Sam"}`: "\ufffd Sam", `{"a":"\ude00\ud83d"}`: "\ufffd\ufffd",
		`{"a":"\ud83d\u0041"}`: "\ufffdA", `{"a":"\ud83d\ud83d\ude00"}`: "\ufffd😀", `{"a":"\ud83d\n"}`: "\ufffd\n",
		"\ufeff{\"a\":\"b\"}": "b", "\ufeff \n{\"a\":\"b\"}": "b",
	} {
		got, err := Parse([]byte(text))
		if err != nil || got["a"] != want {
			t.Errorf("%q: %q, %v; want %q", text, got["a"], err, want)
		}
		if members, err := SplitMembers([]byte(text)); err != nil || len(members) != 1 {
			t.Errorf("%q: %d members, %v", text, len(members), err)
		}
	}
	for _, text := range []string{`{"a":"\ud83d\u12"}`, `{"a":"\ud83d\u00zz"}`, "\ufeff\ufeff{}", "{\"a\":\"\xed\xa0\xbd\"}"} {
		if got, err := Parse([]byte(text)); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
}

// TestHostsHaveOneSpelling: an id names the same server in Unicode and in punycode. What people read stays as it was written.
func TestHostsHaveOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		`{"id":"http://bücher.example/u/b"}`:                     "http://xn--bcher-kva.example/u/b",
		`{"id":"https://b\u00fccher.example:8443/u?x=ü#k"}`:      "https://xn--bcher-kva.example:8443/u?x=ü#k",
		`{"id":"https://BÜCHER.example"}`:                        "https://xn--bcher-kva.example",
		`{"id":"https://books.example/bücher"}`:                  "https://books.example/bücher",
		`{"id":"https://bücher.example/a b"}`:                    "https://bücher.example/a b",
		`{"name":"x","id":"acct:b@bücher.example"}`:              "acct:b@bücher.example",
		`{"id":"https:\/\/b\u00fccher.example\/u"}`:              "https://xn--bcher-kva.example/u",
		`{"to":["https://bücher.example/u"],"id":"http:bücher"}`: "http:bücher",
	} {
		got, err := Parse([]byte(text))
		if err != nil || got["id"] != want {
			t.Errorf("%s: %q, %v; want %q", text, got["id"], err, want)
		}
	}
	got, err := Parse([]byte(`{"to":["https://bücher.example/u"],"content":"https://bücher.example/u","nameMap":{"de":"https://bücher.example/u"}}`))
	if err != nil || References(got["to"])[0] != "https://xn--bcher-kva.example/u" || got["content"] != "https://bücher.example/u" ||
		Translated(got, "name") != "https://bücher.example/u" {
		t.Errorf("%v, %v", got, err)
	}
}
