package normalized

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/identity"
	"inbox/internal/fault"
)

func encoded(t interface{ Fatal(...any) }, appendJSON func([]byte) ([]byte, error)) []byte {
	body, err := appendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// diff compares all fields, also unexported ones; Equal compares documents and would not see a field that is not written.
func diff(a, b any) string {
	if reflect.DeepEqual(a, b) {
		return ""
	}
	return cmp.Diff(a, b) + "documents may be equal; values are not"
}

func TestMessageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		body := encoded(t, m.AppendJSON)
		strict, err := DecodeMessage(body, DefaultLimits())
		if err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		if d := diff(m, strict); d != "" {
			t.Fatalf("%s\n%s", d, body)
		}
		var stored Message
		if err := json.Unmarshal(body, &stored); err != nil || !stored.Equal(m) {
			t.Fatalf("trusted path: %v", err)
		}
		if err := Validate(strict, DefaultLimits()); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
	})
}

func TestResponseRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		question := drawMessage(t)
		r := drawResponse(t, &question)
		body := encoded(t, r.AppendJSON)
		back, err := DecodeResponse(body, DefaultLimits())
		if err != nil {
			t.Fatalf("%v in %s", err, body)
		}
		if d := diff(r, back); d != "" {
			t.Fatalf("%s\n%s", d, body)
		}
		if err := ValidateResponse(back, question, DefaultLimits()); err != nil {
			t.Fatalf("%v in %s", err, body)
		}
	})
}

func TestDeltaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		question := drawMessage(t)
		d := Delta{Kind: DeltaText, Text: maybe(t, of(anyText)), Part: maybe(t, pointer(drawPart)), Response: maybe(t, pointer(func(t *rapid.T) Response {
			return drawResponse(t, &question)
		}))}
		back, err := DecodeDelta(encoded(t, d.AppendJSON), DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		if diff := diff(d, back); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The types without their methods, as encoding/json writes them: what the struct tags promise is what we write.
type (
	plainMessage struct {
		ID                    string                `json:"id"`
		ThreadID              string                `json:"thread_id"`
		InReplyTo             string                `json:"in_reply_to,omitempty"`
		Sender                Sender                `json:"sender"`
		Recipient             string                `json:"recipient"`
		Parts                 []Part                `json:"parts"`
		History               []HistoricalMessage   `json:"history,omitempty"`
		RecipientCapabilities RecipientCapabilities `json:"recipient_capabilities"`
	}
	tagged Response
)

func TestWriterAgreesWithTags(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		m.unknown = nil
		plain := plainMessage{m.ID, m.ThreadID, m.InReplyTo, m.Sender, m.Recipient, m.Parts, m.History, m.RecipientCapabilities}
		whole := encoded(t, m.AppendJSON)
		sameValue(t, cutAfter(t, whole, "received_via", "received_at", "raw", "policy_resolution", "received_trace", "surface"), plain)
		r := drawResponse(t, &m)
		r.unknown = nil
		sameValue(t, encoded(t, r.AppendJSON), tagged(r))
		surface := drawSurface(t)
		surface.unknown = nil
		w := newWriter(nil)
		w.surface(&surface)
		sameValue(t, w.buf, surface)
	})
}

// cutAfter removes keys that the plain form leaves out.
func cutAfter(t *rapid.T, body []byte, keys ...string) []byte {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		delete(object, key)
	}
	out, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameValue(t *rapid.T, body []byte, value any) {
	standard, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var ours, theirs any
	if err := json.Unmarshal(body, &ours); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(standard, &theirs); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(theirs, ours); d != "" {
		t.Fatalf("tags (-) and writer (+) differ:\n%s", d)
	}
}

func TestEvidenceReadsAsItsOwnPackageDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEvidence(t)
		w := newWriter(nil)
		w.evidence(&e)
		var standard identity.Evidence
		if err := json.Unmarshal(w.buf, &standard); err != nil {
			t.Fatal(err)
		}
		var ours identity.Evidence
		r := newReader(w.buf)
		readEvidence(r, &ours)
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(standard, ours); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(e, ours); d != "" {
			t.Fatal(d)
		}
	})
}

func TestUnknownKeysSurvive(t *testing.T) {
	const document = `{"in_reply_to":"a","x_before":{"n": 1e2},"parts":[{"x_first":[1, 2],"kind":"text","mime":"text/plain","content":"hi","name":"not of a text","x_last":null},` +
		`{"kind":"hologram", "beams" : [ 1 ]},{"kind":"policy","policy":{"kind":"captcha","message":"m","site_key":"k"}}],"x_after":"\u00e4"}`
	r, err := DecodeResponse([]byte(document), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	body := encoded(t, r.AppendJSON)
	for _, want := range []string{
		`"x_before":{"n": 1e2}`, `"x_first":[1, 2]`, `"name":"not of a text"`, `"x_last":null`, `{"kind":"hologram", "beams" : [ 1 ]}`,
		`"site_key":"k"`, `"x_after":"\u00e4"`,
	} {
		if !bytes.Contains(body, []byte(want)) {
			t.Errorf("%s was lost in %s", want, body)
		}
	}
	if r.Parts[0].Name != "" {
		t.Error("the name of a text part has no meaning")
	}
	if again, err := DecodeResponse(body, DefaultLimits()); err != nil || !again.Equal(r) {
		t.Errorf("not stable: %v", err)
	}
}

func TestNullIsAbsent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		body := encoded(t, m.AppendJSON)
		for _, key := range []string{"in_reply_to", "history", "policy_resolution", "received_trace", "surface"} {
			var object map[string]json.RawMessage
			if err := json.Unmarshal(body, &object); err != nil {
				t.Fatal(err)
			}
			delete(object, key)
			without, _ := json.Marshal(object)
			object[key] = json.RawMessage("null")
			with, _ := json.Marshal(object)
			left, err := DecodeMessage(without, DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			right, err := DecodeMessage(with, DefaultLimits())
			if err != nil {
				t.Fatal(err)
			}
			if d := diff(left, right); d != "" {
				t.Fatalf("%s: %s", key, d)
			}
		}
	})
	p, err := DecodeDelta([]byte(`{"kind":"part_begin","text":null,"part":{"kind":"tool_call","id":"1","name":"n","args":null,"result":null,"error":null},"response":null}`), DefaultLimits())
	if err != nil || !p.Part.running() || p.Part.Args != nil || p.Response != nil {
		t.Errorf("%+v %v", p, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 70) + "1" + strings.Repeat("}", 70)
	for name, c := range map[string]struct{ document, field string }{
		"not an object":       {`[]`, ""},
		"null":                {`null`, ""},
		"empty":               {``, ""},
		"cut off":             {`{"id":"a"`, "id"},
		"two documents":       {`{} {}`, ""},
		"trailing comma":      {`{"id":"a",}`, "id"},
		"missing colon":       {`{"id" "a"}`, "id"},
		"unquoted key":        {`{id:"a"}`, ""},
		"null key":            {`{"id":"a",null:1}`, "id"},
		"single quotes":       {`{'id':"a"}`, ""},
		"duplicate key":       {`{"id":"a","id":"b"}`, "id"},
		"duplicate by escape": {`{"id":"a","\u0069d":"b"}`, "id"},
		"duplicate deep":      {`{"x":[{"y":{"z":1,"z":2}}]}`, "x[0].y.z"},
		"deep":                {`{"x":` + deep + `}`, strings.TrimSuffix("x."+strings.Repeat("a.", 63), ".")},
		"not UTF-8":           {"{\"id\":\"\xff\"}", "id"},
		"lone surrogate":      {`{"id":"\ud800"}`, "id"},
		"swapped surrogates":  {`{"id":"\udc00\ud800"}`, "id"},
		"control in string":   {"{\"id\":\"a\nb\"}", "id"},
		"bad escape":          {`{"id":"\x"}`, "id"},
		"bad unicode escape":  {`{"id":"\u12g4"}`, "id"},
		"number as text":      {`{"id":5}`, "id"},
		"text as object":      {`{"sender":"me"}`, "sender"},
		"object as list":      {`{"parts":{}}`, "parts"},
		"null element":        {`{"parts":[null]}`, "parts[0]"},
		"fraction":            {`{"parts":[{"kind":"file","size":1.5}]}`, "parts[0].size"},
		"exponent":            {`{"parts":[{"kind":"file","size":1e3}]}`, "parts[0].size"},
		"leading zero":        {`{"x":01}`, "x"},
		"hop with fraction":   {`{"recipient_capabilities":{"agent_chain":{"hop":1.5}}}`, "recipient_capabilities.agent_chain.hop"},
		"hop as text":         {`{"recipient_capabilities":{"agent_chain":{"hop":"1"}}}`, "recipient_capabilities.agent_chain.hop"},
		"dispatch as object":  {`{"received_trace":{"dispatch":{}}}`, "received_trace.dispatch"},
		"huge integer":        {`{"parts":[{"kind":"file","size":99999999999999999999}]}`, "parts[0].size"},
		"not a boolean":       {`{"sender":{"verified":"yes"}}`, "sender.verified"},
		"time without zone":   {`{"received_at":"2026-01-01T00:00:00"}`, "received_at"},
		"time as number":      {`{"received_at":1}`, "received_at"},
		"year outside":        {`{"received_at":"9999-12-31T23:59:59-23:59"}`, "received_at"},
		"part deep":           {`{"parts":[{"kind":"text"},{"kind":"link","url":7}]}`, "parts[1].url"},
		"kind not text":       {`{"parts":[{"kind":7}]}`, "parts[0].kind"},
		"policy type":         {`{"received_trace":{"parts":[{"kind":"policy","policy":{"message":5}}]}}`, "received_trace.parts[0].policy.message"},
		"no bytes":            {`{"parts":[{"kind":"text"},{"kind":"file","bytes_ref":{"kind":"inline","digest":""}}]}`, "parts[1].bytes_ref.data_base64"},
		"null bytes":          {`{"parts":[{"kind":"artifact","bytes_ref":{"data_base64":null,"kind":"inline"}}]}`, "parts[0].bytes_ref.data_base64"},
		"unprintable key":     {"{\"a\\u0000b\":1,\"a\\u0000b\":2}", `"a\x00b"`},
	} {
		_, err := DecodeMessage([]byte(c.document), DefaultLimits())
		f := fault.Of(err)
		if err == nil || f.Kind != fault.Malformed || f.Field != c.field {
			t.Errorf("%s: got %v in %q, want malformed in %q", name, err, f.Field, c.field)
		}
	}
}

func TestAnEmptyFileSaysSo(t *testing.T) {
	const with = `{"parts":[{"kind":"text","mime":"text/plain","content":"It is below."},` +
		`{"kind":"file","mime":"text/csv","name":"a.csv","bytes_ref":{"kind":"inline"%s}}]}`
	if _, err := DecodeResponse(fmt.Appendf(nil, with, ""), DefaultLimits()); err == nil ||
		err.Error() != "parts[1].bytes_ref.data_base64: is missing" {
		t.Errorf("without data_base64: %v", err)
	}

	answer, err := DecodeResponse(fmt.Appendf(nil, with, `,"data_base64":""`), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if content, err := answer.Parts[1].BytesRef.Bytes(); err != nil || len(content) != 0 {
		t.Errorf("an empty file has the bytes %q, %v", content, err)
	}
}

func TestDecodeChecksSizeFirst(t *testing.T) {
	limits := DefaultLimits()
	limits.Document, limits.Parts = 100, 0
	_, err := DecodeMessage(bytes.Repeat([]byte("{"), 101), limits)
	if !fault.Is(err, fault.TooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestTooManyUnknownKeys(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"kind":"text"`)
	for i := range maxUnknownKeys + 1 {
		b.WriteString(`,"x` + strings.Repeat("y", i) + `":1`)
	}
	b.WriteString("}")
	var p Part
	if err := p.UnmarshalJSON([]byte(b.String())); !fault.Is(err, fault.Malformed) {
		t.Errorf("got %v", err)
	}
}

func TestEncodeRefusesBrokenFreeForm(t *testing.T) {
	p := Part{Kind: PartToolCall, ID: "1", Name: "n", Args: json.RawMessage(`{"a":`)}
	if _, err := json.Marshal(p); err == nil {
		t.Error("broken args were written")
	}
}

func TestCheckJSONAgreesWithStandardLibrary(t *testing.T) {
	for _, text := range []string{
		`1`, `-0`, `-`, `0.5`, `.5`, `1.`, `1e`, `1e+5`, `"\/"`, `"\u00E4"`, `tru`, `true`, `nul`, `[1,2`, `[1 2]`, `{"a":[{}]}`, ` [ ] `, `"`, `{"":0}`, `+1`, "\ufeff1", `1 1`, `[1,]`,
	} {
		if got := CheckJSON([]byte(text), 64) == nil; got != json.Valid([]byte(text)) {
			t.Errorf("CheckJSON(%q) = %v", text, got)
		}
	}
}

func TestDuplicateAmongManyKeys(t *testing.T) {
	for _, count := range []int{fewKeys - 1, fewKeys, fewKeys + 1, 200} {
		var b strings.Builder
		for i := range count {
			fmt.Fprintf(&b, `"k%d":%d,`, i, i)
		}
		if err := CheckJSON([]byte("{"+b.String()+`"last":0}`), 8); err != nil {
			t.Errorf("%d keys: %v", count, err)
		}
		for _, again := range []int{0, count - 1} {
			if err := CheckJSON(fmt.Appendf(nil, `{%s"k%d":0}`, b.String(), again), 8); err == nil {
				t.Errorf("%d keys: k%d comes twice", count, again)
			}
		}
	}
}

// TestHalfACharacterFailsNoAnswer: a program that cuts a text between the halves of a surrogate pair loses that character, and not its answer.
func TestHalfACharacterFailsNoAnswer(t *testing.T) {
	for body, want := range map[string]string{
		`{"in_reply_to":"m","parts":[{"kind":"text","mime":"text/plain","content":"smile \ud83d"}]}`:       "smile \uFFFD",
		`{"in_reply_to":"m","parts":[{"content":"\ude00 smile","mime":"text/plain","kind":"text"}]}`:       "\uFFFD smile",
		`{"in_reply_to":"m","parts":[{"kind":"text","mime":"text/plain","content":"whole \ud83d\ude00"}]}`: "whole \U0001F600",
	} {
		response, err := DecodeResponse([]byte(body), DefaultLimits())
		if err != nil || response.Parts[0].Content != want {
			t.Errorf("%s: %+v, %v", body, response.Parts, err)
		}
	}

	// Wherever it stands in an answer, and what is kept as it came is well-formed for others, too.
	for _, members := range []string{
		`"parts":[{"kind":"tool_call","id":"c","name":"find","args":{"q\ud83d":"\ud83d","whole":"\ud83d\ude00 \\ud83d"},"result":"\ude00","metadata":{"k\ud800":[1,"\ud83d"]}}]`,
		`"parts":[{"kind":"tool_call","id":"c","name":"find","args":{},"error":{"message":"no \udfff"}}]`,
		`"parts":[{"kind":"file","mime":"image/png","name":"a\ud83d.png","alt":"\ude00","bytes_ref":{"kind":"inline","data_base64":"YQ=="},"x-of-others":{"\ud83d":"\ud83d"}}]`,
		`"parts":[{"kind":"artifact","mime":"text/csv","name":"\ud83d","id":"a\ud83d","description":"\ud83d","bytes_ref":{"kind":"inline","data_base64":"YQ=="}}]`,
		`"parts":[{"kind":"link","url":"https://a.test/","title":"\ud83d","description":"\ud83d","citation":{"source":"s","excerpt":"\ud83d"}}]`,
		`"parts":[{"kind":"text","mime":"text/plain","content":"x"}],"metadata":{"model":"m\ud83d","k\ude00":"v"}`,
		`"parts":[{"kind":"text","mime":"text/plain","content":"x"}],"status":"failed","error":{"code":"x","message":"no \ud83d"}`,
		`"parts":[{"kind":"text","mime":"text/plain","content":"x"}],"x-of-others":{"k\ud83d":["\ud83d"]},"\ud83d":1`,
	} {
		body := `{"in_reply_to":"m","thread_id":"t",` + members + `}`
		response, err := DecodeResponse([]byte(body), DefaultLimits())
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		fitted := response.Fit(DefaultLimits(), Left{})
		written, err := fitted.AppendJSON(nil)
		if err != nil || hasLoneSurrogate(written) || bytes.Contains(written, []byte("truncated")) || bytes.Count(written, []byte(`\ufffd`))+bytes.Count(written, []byte("\uFFFD")) == 0 {
			t.Errorf("%s is written as %s, %v", body, written, err)
		}
		delta := []byte(`{"kind":"response","response":` + body + `}`)
		if _, err := DecodeDelta(delta, DefaultLimits()); err != nil {
			t.Errorf("%s: %v", delta, err)
		}
	}
	for _, member := range []string{`"thread_id":"\ud83d"`, `"to":["@a\ud83d@b.test"]`, `"cc":["@a\ud83d@b.test"]`, `"dispatch":[{"to":"@a\ud83d@b.test"}]`} {
		if _, err := DecodeResponse([]byte(`{"in_reply_to":"m",`+member+`}`), DefaultLimits()); err == nil {
			t.Errorf("%s is accepted", member)
		}
	}
	if _, err := DecodeResponse([]byte(`{"in_reply_to":"\ud83d","parts":[{"kind":"text","mime":"text/plain","content":"x"}]}`), DefaultLimits()); err == nil {
		t.Error("half a character in an id is accepted")
	}
}
