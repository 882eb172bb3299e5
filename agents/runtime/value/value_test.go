package value_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/value"
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
		if got := value.Equal(decode(t, c.a), decode(t, c.b)); got != c.equal {
			t.Errorf("%s = %s: %v, want %v", c.a, c.b, got, c.equal)
		}
	}
}

func TestEqualTakesGoNumbersAndLists(t *testing.T) {
	built := map[string]any{"a": 1, "b": int64(2), "c": 0.5, "d": []string{"x"}, "e": []map[string]any{{}}}
	if !value.Equal(built, decode(t, `{"a":1.0,"b":2,"c":5e-1,"d":["x"],"e":[[]]}`)) {
		t.Error("built and decoded values differ")
	}
}

func decode(t *testing.T, text string) any {
	t.Helper()
	given, err := value.Decode([]byte(text), value.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return given
}

func TestDecodeKeepsLimits(t *testing.T) {
	limits := value.Limits{Bytes: 20, Depth: 2}
	for text, want := range map[string]bool{
		`{"a":[1]}`: true, `"[[[[\"[["`: true, `[[[1]]]`: false, `{"a":{"b":{}}}`: false,
		`"` + strings.Repeat("x", 30) + `"`: false, strings.Repeat("[", 18): false,
	} {
		_, err := value.Decode([]byte(text), limits)
		if (err == nil) != want || err != nil && !value.TooLarge(err) {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{``, `{`, `1 2`, `{} x`, `nul`} {
		if _, err := value.Decode([]byte(text), value.Limits{}); err == nil || value.TooLarge(err) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestInteger(t *testing.T) {
	for _, given := range []any{1, int64(1), json.Number("1")} {
		if n, is := value.Integer(given); !is || n != 1 {
			t.Errorf("%T %v is no integer", given, given)
		}
	}
	for _, given := range []any{1.0, json.Number("1.0"), json.Number("1e0"), json.Number("99999999999999999999"), "1", true, nil} {
		if _, is := value.Integer(given); is {
			t.Errorf("%T %v is an integer", given, given)
		}
	}
}

func TestEncode(t *testing.T) {
	got := value.EncodeText(map[string]any{
		"b": []any{1, int64(2), 0.5, json.Number("1.0"), nil, true}, "a": "<a href=\"x\">&é", "c": map[string]any(nil),
		"d": []any(nil), "e": []string{"x"},
	})
	want := `{"a":"<a href=\"x\">&é","b":[1,2,0.5,1.0,null,true],"c":{},"d":[],"e":["x"]}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, err := value.Encode(map[string]any{"x": math.NaN()}); err == nil {
		t.Error("NaN was written")
	}
}

func TestCloneSharesNothing(t *testing.T) {
	original := map[string]any{"a": map[string]any{"b": []any{"x"}}}
	copied := value.Clone(original)
	value.Assoc(copied["a"])["b"].([]any)[0] = "y" //nolint:forcetypeassert // built above
	if got := value.EncodeText(original); got != `{"a":{"b":["x"]}}` {
		t.Error(got)
	}
	e := envelope.NewToolCall("c", "t", map[string]any{"l": []map[string]any{{"a": []string{"x"}}}}, 1, nil)
	before := value.EncodeText(e)
	copied = value.Assoc(value.Clone(e.Payload)["parameters"])
	copied["l"].([]map[string]any)[0]["a"].([]string)[0] = "y" //nolint:forcetypeassert // built above
	if got := value.EncodeText(e); got != before || !strings.Contains(got, `"x"`) {
		t.Error(got)
	}
	if value.Clone[any](nil) != nil {
		t.Error("null became something")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5e3,"x\"]",null,true],"b":{}}`))
	f.Add([]byte(`"\u2028<&>"`))
	f.Fuzz(func(t *testing.T, data []byte) {
		given, err := value.Decode(data, value.Limits{Bytes: 1 << 16, Depth: 20})
		if err != nil {
			return
		}
		written, err := value.Encode(given)
		if err != nil {
			t.Fatal(err)
		}
		again, err := value.Decode(written, value.Limits{Depth: 20})
		if err != nil || !value.Equal(given, again) {
			t.Fatalf("%v: %s became %s", err, data, written)
		}
	})
}

func TestScalar(t *testing.T) {
	for written, want := range map[string]string{
		`"x"`: "x", `true`: "1", `false`: "", `null`: "", `[]`: "", `7`: "7", `-0`: "0", `1.0`: "1", `1.50`: "1.5", `1e3`: "1000",
		`1e17`: "1.0E+17", `0.00001`: "1.0E-5", `0.0001`: "0.0001", `123456789012345678901`: "1.2345678901234568E+20",
	} {
		given, err := value.Decode([]byte(written), value.Limits{})
		if got := value.Scalar(given); got != want || err != nil {
			t.Errorf("Scalar(%s) = %q, want %q (%v)", written, got, want, err)
		}
	}
}

func TestTruthy(t *testing.T) {
	for written, want := range map[string]bool{
		`null`: false, `false`: false, `true`: true, `0`: false, `-0.0`: false, `0e9`: false, `1e-400`: true, `2`: true, `""`: false,
		`"0"`: false, `"0.0"`: true, `" "`: true, `"false"`: true, `[]`: false, `{}`: false, `[0]`: true, `{"a":null}`: true,
	} {
		given, err := value.Decode([]byte(written), value.Limits{})
		if got := value.Truthy(given); got != want || err != nil {
			t.Errorf("Truthy(%s) = %v, want %v (%v)", written, got, want, err)
		}
	}
	if value.Truthy(0.0) || !value.Truthy(math.Inf(1)) || !value.Truthy(3) {
		t.Error("Go numbers are read differently")
	}
}

func TestElements(t *testing.T) {
	for written, want := range map[string][]any{`[1]`: {1.0}, `{"b":2,"a":1}`: {1.0, 2.0}, `{}`: {}, `"x"`: {}, `null`: {}} {
		given, err := value.Decode([]byte(written), value.Limits{})
		if got := value.Elements(given); !value.Equal(got, want) || got == nil || err != nil {
			t.Errorf("Elements(%s) = %v, %v", written, got, err)
		}
	}
}

func TestLowerKeepsAlphabetsApart(t *testing.T) {
	if got := value.Lower("AbÄ\u212aZ"); got != "abÄ\u212az" {
		t.Errorf("%q", got)
	}
}

func TestCounts(t *testing.T) {
	for written, want := range map[string]int64{
		`1`: 1, `0`: 0, `-1`: -1, `2.9`: 2, `"3"`: 3, `" 4.5 "`: 4, `"1e3"`: 1000, `-0.5`: 0, `"x"`: -1, `"0x10"`: -1, `"inf"`: -1, `true`: -1, `1e99`: -1, `""`: -1,
	} {
		got, ok := value.Count(decode(t, written))
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("Count(%s) = %d, want %d", written, got, want)
		}
	}
}

func TestNumbersAreReadLoosely(t *testing.T) {
	for written, want := range map[string]struct {
		leading int64
		float   float64
		limited int
	}{
		`7`: {7, 7, 7}, `-2.9`: {-2, -2.9, -2}, `"12 apples"`: {12, 0, 0}, `" 3 "`: {3, 3, 3}, `true`: {1, 1, 0},
		`1e300`: {math.MaxInt64, 1e300, math.MaxInt32}, `"x"`: {}, `null`: {}, `[1]`: {}, `"1e3"`: {1000, 1000, 1000},
	} {
		given := decode(t, written)
		if got := value.LeadingInteger(given); got != want.leading {
			t.Errorf("LeadingInteger(%s) = %d, want %d", written, got, want.leading)
		}
		if got := value.Float(given); got != want.float {
			t.Errorf("Float(%s) = %g, want %g", written, got, want.float)
		}
		if got := value.Int32(given); got != want.limited {
			t.Errorf("Int32(%s) = %d, want %d", written, got, want.limited)
		}
	}
}

func TestNamesAndWords(t *testing.T) {
	given := decode(t, `[" a ", "b", 7, "a", "", null, ["c"]]`)
	if difference := cmp.Diff([]string{"a", "b"}, value.Names(given)); difference != "" {
		t.Error(difference)
	}
	if difference := cmp.Diff([]string{"a", "b", "7"}, value.Words(given)); difference != "" {
		t.Error(difference)
	}
	if difference := cmp.Diff([]string{"one"}, value.Names(" one ")); difference != "" {
		t.Error(difference)
	}
}
