package normalized

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// Every decoder: whatever comes in, nothing panics, and what is accepted can be written and read again unchanged.

func seeds(f *testing.F, documents ...[]byte) {
	for _, document := range documents {
		f.Add(document)
	}
	for _, text := range []string{
		`{}`, `null`, `{"parts":[{"kind":"hologram","x":[1,{"y":null}]}]}`, `{"id":"\ud83d\ude00"}`, `{"id":"\ud800"}`,
		`{"received_at":"2026-11-21T12:00:00+02:00"}`, `{"parts":[{"content":"a","mime":"text/plain","kind":"text","x":1}]}`,
		`{"in_reply_to":"a","dispatch":[{"to":"@b@b.test","parts":[{"kind":"text","mime":"text/plain","content":"hi"}],"x":1},{}]}`,
		`{"kind":"response","response":{"dispatch":null}}`, `{"kind":"status","response":{"dispatch":[{"parts":[]}]}}`,
		`{"kind":"text","text":"x"}`, `{"a":1,"a":2}`, `{"metadata":{"a":"b","c":null}}`, `{"sender":{"identities":[{"audience":["a"]}]}}`,
	} {
		f.Add([]byte(text))
	}
}

func sample(f *testing.F, appendJSON func([]byte) ([]byte, error)) []byte {
	body, err := appendJSON(nil)
	if err != nil {
		f.Fatal(err)
	}
	return body
}

func FuzzDecodeMessage(f *testing.F) {
	m := goodMessage()
	seeds(f, sample(f, m.AppendJSON))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := DecodeMessage(data, DefaultLimits())
		if err != nil {
			return
		}
		again(t, first.AppendJSON, func(body []byte) (func([]byte) ([]byte, error), error) {
			second, err := DecodeMessage(body, DefaultLimits())
			return second.AppendJSON, err
		})
		first.Clean()
		_ = Violations(first, DefaultLimits())
		_ = PlainText(first.Parts) + MarkdownText(first.Parts)
	})
}

func FuzzDecodeResponse(f *testing.F) {
	r := goodResponse()
	seeds(f, sample(f, r.AppendJSON))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := DecodeResponse(data, DefaultLimits())
		if err != nil {
			return
		}
		again(t, first.AppendJSON, func(body []byte) (func([]byte) ([]byte, error), error) {
			second, err := DecodeResponse(body, DefaultLimits())
			return second.AppendJSON, err
		})
		_ = responseViolations(first.Answering(goodMessage()))
	})
}

func FuzzDecodeDelta(f *testing.F) {
	d := Delta{Kind: DeltaToolCallStart, Part: &Part{Kind: PartToolCall, ID: "1", Name: "n"}}
	seeds(f, sample(f, d.AppendJSON))
	f.Fuzz(func(t *testing.T, data []byte) {
		first, err := DecodeDelta(data, DefaultLimits())
		if err != nil {
			return
		}
		again(t, first.AppendJSON, func(body []byte) (func([]byte) ([]byte, error), error) {
			second, err := DecodeDelta(body, DefaultLimits())
			return second.AppendJSON, err
		})
		fold := NewFold(DefaultLimits())
		_, _ = fold.Add(first), fold.Add(first)
		_, _ = fold.Response()
	})
}

func again(t *testing.T, first func([]byte) ([]byte, error), decode func([]byte) (func([]byte) ([]byte, error), error)) {
	t.Helper()
	body, err := first(nil)
	if err != nil {
		t.Fatalf("accepted, but cannot be written: %v", err)
	}
	if !json.Valid(body) {
		t.Fatalf("not JSON: %s", body)
	}
	second, err := decode(body)
	if err != nil {
		t.Fatalf("accepted, written, refused: %v in %s", err, body)
	}
	if once, err := second(nil); err != nil || !bytes.Equal(once, body) {
		t.Fatalf("not stable: %v\n%s\n%s", err, body, once)
	}
}

func FuzzTrustedPart(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Part
		if p.UnmarshalJSON(data) != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("accepted although it is not JSON: %q", data)
		}
		if _, err := p.AppendJSON(nil); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzCheckJSON(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		err := CheckJSON(data, maxDepth)
		if err == nil && (!json.Valid(data) || !utf8.Valid(data)) {
			t.Fatalf("accepted %q", data)
		}
		var value any
		if json.Unmarshal(data, &value) != nil {
			return
		}
		plain, _ := json.Marshal(value) // without duplicates, valid UTF-8
		if bytes.Count(plain, []byte("[{"))+bytes.Count(plain, []byte("[")) < maxDepth/2 && bytes.Count(plain, []byte("{")) < maxDepth/2 {
			if err := CheckJSON(plain, maxDepth); err != nil {
				t.Fatalf("refused %q: %v", plain, err)
			}
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add("<p>hi<br>there <b>you</b></p><script>x</script>", "a_b *c*\n1. d\n    e")
	f.Fuzz(func(t *testing.T, html, plain string) {
		parts := []Part{{Kind: PartText, MIME: MIMEHTML, Content: html}, Text(plain)}
		_ = PlainText(parts)
		_ = MarkdownText(parts)
		m := Message{Parts: parts}
		m.Clean()
		for _, p := range m.Parts {
			if !isCleanText(p.Content) {
				t.Fatalf("not clean: %q", p.Content)
			}
		}
	})
}
