package envelope_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"inbox/agents/runtime/envelope"
)

func TestEqual(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		equal bool
	}{
		{`1`, `1.0`, true},
		{`100`, `1e2`, true},
		{`-0`, `0.000`, true},
		{`0.1`, `1E-1`, true},
		{`10`, `1`, false},
		{`-1`, `1`, false},
		{`12345678901234567890`, `12345678901234567891`, false},
		{`1e999999999999999999999`, `1e999999999999999999998`, false},
		{`{}`, `[]`, true},
		{`[{}]`, `[[]]`, true},
		{`{}`, `null`, false},
		{`[]`, `""`, false},
		{`{"a":1,"b":[1,2]}`, `{"b":[1,2],"a":1}`, true},
		{`[1,2]`, `[2,1]`, false},
		{`{"a":null}`, `{}`, false},
		{`"1"`, `1`, false},
		{`true`, `1`, false},
	} {
		if got := envelope.Equal(decode(t, c.a), decode(t, c.b)); got != c.equal {
			t.Errorf("%s = %s: %v, want %v", c.a, c.b, got, c.equal)
		}
	}
}

func TestEqualTakesGoNumbersAndLists(t *testing.T) {
	built := map[string]any{"a": 1, "b": int64(2), "c": 0.5, "d": []string{"x"}, "e": []map[string]any{{}}}
	if !envelope.Equal(built, decode(t, `{"a":1.0,"b":2,"c":5e-1,"d":["x"],"e":[[]]}`)) {
		t.Error("built and decoded values differ")
	}
}

func decode(t *testing.T, text string) any {
	t.Helper()
	value, err := envelope.Decode([]byte(text), envelope.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return value
}

func TestDecodeKeepsLimits(t *testing.T) {
	limits := envelope.Limits{Bytes: 20, Depth: 2}
	for text, want := range map[string]bool{
		`{"a":[1]}`: true, `"[[[[\"[["`: true, `[[[1]]]`: false, `{"a":{"b":{}}}`: false,
		`"` + strings.Repeat("x", 30) + `"`: false, strings.Repeat("[", 18): false,
	} {
		_, err := envelope.Decode([]byte(text), limits)
		if (err == nil) != want || err != nil && !envelope.TooLarge(err) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{``, `{`, `1 2`, `{} x`, `nul`} {
		if _, err := envelope.Decode([]byte(text), envelope.Limits{}); err == nil || envelope.TooLarge(err) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestInteger(t *testing.T) {
	for _, value := range []any{1, int64(1), json.Number("1")} {
		if n, is := envelope.Integer(value); !is || n != 1 {
			t.Errorf("%T %v is no integer", value, value)
		}
	}
	for _, value := range []any{1.0, json.Number("1.0"), json.Number("1e0"), json.Number("99999999999999999999"), "1", true, nil} {
		if _, is := envelope.Integer(value); is {
			t.Errorf("%T %v is an integer", value, value)
		}
	}
}

func TestEncode(t *testing.T) {
	got := envelope.EncodeText(map[string]any{
		"b": []any{1, int64(2), 0.5, json.Number("1.0"), nil, true}, "a": "<a href=\"x\">&é", "c": map[string]any(nil),
		"d": []any(nil), "e": []string{"x"},
	})
	want := `{"a":"<a href=\"x\">&é","b":[1,2,0.5,1.0,null,true],"c":{},"d":[],"e":["x"]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, err := envelope.Encode(map[string]any{"x": math.NaN()}); err == nil {
		t.Error("NaN was written")
	}
}

func TestCloneSharesNothing(t *testing.T) {
	original := map[string]any{"a": map[string]any{"b": []any{"x"}}}
	copied := envelope.Clone(original)
	envelope.Assoc(copied["a"])["b"].([]any)[0] = "y" //nolint:forcetypeassert // built above
	if got := envelope.EncodeText(original); got != `{"a":{"b":["x"]}}` {
		t.Error(got)
	}
	e := envelope.NewToolCall("c", "t", map[string]any{"l": []map[string]any{{"a": []string{"x"}}}}, 1, nil)
	before := envelope.EncodeText(e)
	copied = envelope.Assoc(e.Clone().Payload["parameters"])
	copied["l"].([]map[string]any)[0]["a"].([]string)[0] = "y" //nolint:forcetypeassert // built above
	if got := envelope.EncodeText(e); got != before || !strings.Contains(got, `"x"`) {
		t.Error(got)
	}
	if envelope.Clone[any](nil) != nil {
		t.Error("null became something")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5e3,"x\"]",null,true],"b":{}}`))
	f.Add([]byte(`"\u2028<&>"`))
	f.Fuzz(func(t *testing.T, data []byte) {
		value, err := envelope.Decode(data, envelope.Limits{Bytes: 1 << 16, Depth: 20})
		if err != nil {
			return
		}
		written, err := envelope.Encode(value)
		if err != nil {
			t.Fatal(err)
		}
		again, err := envelope.Decode(written, envelope.Limits{Depth: 20})
		if err != nil || !envelope.Equal(value, again) {
			t.Fatalf("%v: %s became %s", err, data, written)
		}
	})
}
