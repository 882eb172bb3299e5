package boundedjson

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCheck(t *testing.T) {
	limits := Limits{Depth: 3, Values: 5}
	for document, want := range map[string]string{
		`{"a":[{"b":1}]}`: "", `{"a":[[{}]]}`: TooDeep, `[[[[`: TooDeep, `[1,2,3,4,5]`: "", `[1,2,3,4,5,6]`: TooMany, `[[],[],[],[]]`: TooMany,
		`"[[[[[[,,,,,,,"`: "", `"\"[[[[[[\\"`: "", `["\\",[[[`: TooDeep, "\"\xff\"": NotUTF8, "\"\xe2\x82\"": NotUTF8, "\"\xe2\x82": NotUTF8,
		"\"\xed\xa0\x80\"": NotUTF8, "\"€\"": "", "\"\\€\\\\\"[[[[": TooDeep, "": "",
	} {
		err := check([]byte(document), limits)
		var broken *Error
		if errors.As(err, &broken) != (want != "") || broken != nil && broken.Reason != want {
			t.Errorf("%q: %v, want %q", document, err, want)
		}
	}
	if err := check([]byte(strings.Repeat("[", 1000)), Limits{}); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

// TestPiecesAreOneDocument: where a document is cut into pieces does not matter.
func TestPiecesAreOneDocument(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		document := []byte(strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"[", "]", "{", "}", ",", `"`, `\`, "€", "🙂", "a", "\xff", "\xe2", "\x82"})).Draw(t, "document"), ""))
		limits := Limits{Depth: 4, Values: 6}
		whole := check(document, limits)
		c := NewCounter(limits)
		var err error
		for rest := document; len(rest) > 0 && err == nil; {
			size := rapid.IntRange(1, len(rest)).Draw(t, "size")
			_, err = c.Write(rest[:size])
			rest = rest[size:]
		}
		if err == nil {
			err = c.Close()
		}
		if reason(whole) != reason(err) {
			t.Fatalf("%q: whole %v, in pieces %v", document, whole, err)
		}
		if !utf8.Valid(document) && whole == nil {
			t.Fatalf("%q was taken", document)
		}
	})
}

func reason(err error) string {
	if broken, is := errors.AsType[*Error](err); is {
		return broken.Reason
	}
	return ""
}

// FuzzCheck: what passes is within the limits as encoding/json counts it.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"\"[["}],"c":"€"}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		limits := Limits{Depth: 8, Values: 32}
		err := check(document, limits)
		if err == nil && !utf8.Valid(document) {
			t.Errorf("%q is not UTF-8", document)
		}
		if err != nil || !json.Valid(document) {
			return
		}
		decoder, depth, deepest, values := json.NewDecoder(strings.NewReader(string(document))), 0, 0, 0
		for {
			token, err := decoder.Token()
			if err != nil {
				break
			}
			switch token {
			case json.Delim('{'), json.Delim('['):
				depth++
				deepest, values = max(deepest, depth), values+1
			case json.Delim('}'), json.Delim(']'):
				depth--
			}
		}
		if deepest > limits.Depth || values > limits.Values {
			t.Errorf("%q nests %d deep with %d containers", document, deepest, values)
		}
	})
}

// check counts a whole document.
func check(document []byte, limits Limits) error {
	c := NewCounter(limits)
	if _, err := c.Write(document); err != nil {
		return err
	}
	return c.Close()
}
