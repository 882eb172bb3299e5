package tool

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

func decode(t interface{ Fatalf(string, ...any) }, text string) any {
	given, err := value.Decode([]byte(text), value.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return given
}

func TestCanonicalForm(t *testing.T) {
	for _, c := range []struct{ name, in, out string }{
		{"sorted, no spaces", `{"b": 1, "a": [true, false, null]}`, `{"a":[true,false,null],"b":1}`},
		{"empty object is a list", `{"a": {}, "b": []}`, `{"a":[],"b":[]}`},
		{"slash", `"a/b"`, `"a\/b"`},
		{"markup stays", `"<&'>"`, `"<&'>"`},
		{"quotes", `"\"\\"`, `"\"\\"`},
		{"controls", `"\b\f\n\r\t\u0001\u001f"`, `"\b\f\n\r\t\u0001\u001f"`},
		{"delete is raw", `"\u007f"`, "\"\x7f\""},
		{"two-byte letter", `"é"`, `"\u00e9"`},
		{"astral letter", `"😀"`, `"\ud83d\ude00"`},
		{"line separators", `"\u2028\u2029"`, `"\u2028\u2029"`},
		{"whole float", `1.0`, `1`},
		{"float", `0.1`, `0.1`},
		{"shortest float", `0.30000000000000004`, `0.30000000000000004`},
		{"largest plain float", `12345678901234567.0`, `12345678901234568`},
		{"first with exponent", `1e17`, `1.0e+17`},
		{"integer of 64 bits", `9223372036854775807`, `9223372036854775807`},
		{"larger integer", `9223372036854775808`, `9.223372036854776e+18`},
		{"smallest plain", `0.0001`, `0.0001`},
		{"small", `0.000015`, `1.5e-5`},
		{"one digit, small", `1e-7`, `1.0e-7`},
		{"three digits of exponent", `-2.5e300`, `-2.5e+300`},
		{"negative zero", `-0.0`, `-0`},
		{"numeric keys", `{"10": 1, "9": 2, "x": 3}`, `{"9":2,"10":1,"x":3}`},
		{"sequence is a list", `{"1": "b", "0": "a"}`, `["a","b"]`},
		{"gap is no list", `{"2": "b", "0": "a"}`, `{"0":"a","2":"b"}`},
		{"upper before lower", `{"a": 1, "B": 2, "_": 3}`, `{"B":2,"_":3,"a":1}`},
	} {
		if got := string(Canonical(decode(t, c.in))); got != c.out {
			t.Errorf("%s: %s gives %s, want %s", c.name, c.in, got, c.out)
		}
	}
}

func TestCanonicalOfGoValues(t *testing.T) {
	in := map[string]any{"i": 1, "l": int64(2), "f": 3.0, "n": math.Inf(1), "s": []string{"a"}, "m": []map[string]any{{"b": true}}, "c": make(chan int)}
	if got, want := string(Canonical(in)), `{"c":null,"f":3,"i":1,"l":2,"m":[{"b":true}],"n":0,"s":["a"]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := string(Canonical("a\xffb")), `"a\ufffdb"`; got != want {
		t.Errorf("invalid UTF-8 gives %s, want %s", got, want)
	}
}

// TestRecordedHashes: the hashes of the loop's records are made here, so every recorded one must come out of the recorded
// values.
func TestRecordedHashes(t *testing.T) {
	checked := 0
	for _, c := range fixturetest.Load(t, "loop-traces") {
		count, problems := checkHashes(c.Name, value.Assoc(c.Expected["ok"]))
		for _, problem := range problems {
			t.Error(problem)
		}
		checked += count
	}
	if checked == 0 {
		t.Fatal("no recorded call has a hash")
	}
	t.Logf("%d recorded calls, two hashes each", checked)
}

// checkHashes compares the hashes of the executed calls of one recording with those in its audit events.
func checkHashes(name string, result map[string]any) (checked int, problems []string) {
	executed, _ := value.List(result["tool_execution_results"])
	audited, _ := value.List(result["tool_audit_events"])
	if len(audited) < len(executed) {
		problems = append(problems, fmt.Sprintf("%s: %d executed calls, but %d audit events", name, len(executed), len(audited)))
	}
	for index, item := range executed[:min(len(executed), len(audited))] {
		record, event := value.Assoc(item), value.Assoc(audited[index])
		if got := Hash(record["parameters"]); got != event["parameters_sha256"] || got != record["parameters_sha256"] {
			problems = append(problems, fmt.Sprintf("%s: parameters of %v hash to %s, recorded %v", name, record["tool_call_id"], got, event["parameters_sha256"]))
		}
		if got := ResultHash(value.Assoc(record["result"])); got != event["result_sha256"] {
			problems = append(problems, fmt.Sprintf("%s: result of %v hashes to %s, recorded %v", name, record["tool_call_id"], got, event["result_sha256"]))
		}
		checked++
	}
	return checked, problems
}

// TestRecordingsWithoutAuditEventsAreNamed: a recording may hold executed calls without an audit event, or odd ones.
func TestRecordingsWithoutAuditEventsAreNamed(t *testing.T) {
	call := map[string]any{"tool_call_id": "1", "parameters": map[string]any{}, "parameters_sha256": Hash(map[string]any{}), "result": map[string]any{"success": true}}
	event := map[string]any{"parameters_sha256": call["parameters_sha256"], "result_sha256": ResultHash(value.Assoc(call["result"]))}
	for name, c := range map[string]struct {
		result  map[string]any
		checked int
		want    string
	}{
		"complete":        {map[string]any{"tool_execution_results": []any{call}, "tool_audit_events": []any{event}}, 1, ""},
		"no audit events": {map[string]any{"tool_execution_results": []any{call}}, 0, "no audit events: 1 executed calls, but 0 audit events"},
		"one is missing":  {map[string]any{"tool_execution_results": []any{call, call}, "tool_audit_events": []any{event}}, 1, "one is missing: 2 executed calls, but 1 audit events"},
		"no object":       {map[string]any{"tool_execution_results": []any{call}, "tool_audit_events": []any{nil}}, 1, "no object: parameters of 1 hash to " + Hash(map[string]any{}) + ", recorded <nil>"},
		"nothing":         {nil, 0, ""},
	} {
		checked, problems := checkHashes(name, c.result)
		if checked != c.checked || (c.want == "") != (len(problems) == 0) || len(problems) > 0 && problems[0] != c.want {
			t.Errorf("%s: %d checked, %q; want %d and %q", name, checked, problems, c.checked, c.want)
		}
	}
}

func TestHashOfMatchesRecordedSignature(t *testing.T) {
	parameters := Hash(decode(t, `{"b": 2, "a": 1}`))
	if want := "sha256:43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777"; parameters != want {
		t.Errorf("parameters hash to %s, want %s", parameters, want)
	}
	signature := Hash(map[string]any{"tool_name": "wiki/read", "parameters_hash": parameters})
	if want := "sha256:6b1e41f855b51ff3cc4ed3899970471130a62f76e628b548a295e6c3878aa3dc"; signature != want {
		t.Errorf("signature hashes to %s, want %s", signature, want)
	}
}

// member draws a name; some look like numbers, for these sort apart.
func member() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[a-cA-C/é]{1,3}`), rapid.StringMatching(`[0-9]{1,2}(e1|\.5|f)?`))
}

func jsonValue(depth int) *rapid.Generator[any] {
	leaf := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) any { return s }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Float64Range(-1e30, 1e30), func(n float64) any { return n }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just[any](nil),
	)
	if depth == 0 {
		return leaf
	}
	inner := jsonValue(depth - 1)
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(inner, 0, 4), func(items []any) any { return items }),
		rapid.Map(rapid.MapOfN(member(), inner, 0, 5), func(object map[string]any) any { return object }),
	)
}

// shuffled writes an object with its members in a drawn order.
func shuffled(t *rapid.T, value any) json.RawMessage {
	text := func(v any) json.RawMessage {
		encoded, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	switch value := value.(type) {
	case []any:
		items := make([]json.RawMessage, len(value))
		for index, item := range value {
			items[index] = shuffled(t, item)
		}
		return text(items)
	case map[string]any:
		names := make([]string, 0, len(value))
		for name := range value {
			names = append(names, name)
		}
		slices.Sort(names)
		out := []byte("{")
		for index, name := range rapid.Permutation(names).Draw(t, "order") {
			if index > 0 {
				out = append(out, ',')
			}
			out = append(append(append(out, text(name)...), ':'), shuffled(t, value[name])...)
		}
		return append(out, '}')
	default:
		return text(value)
	}
}

func TestCanonicalFormIgnoresTheOrderOfMembers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := jsonValue(3).Draw(t, "value")
		one, other := shuffled(t, value), shuffled(t, value)
		first, second := Canonical(decode(t, string(one))), Canonical(decode(t, string(other)))
		if string(first) != string(second) {
			t.Fatalf("%s gives %s\n%s gives %s", one, first, other, second)
		}
	})
}

func TestCanonicalFormIsJSONAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		canonical := Canonical(jsonValue(3).Draw(t, "value"))
		if again := Canonical(decode(t, string(canonical))); string(again) != string(canonical) {
			t.Fatalf("%s becomes %s", canonical, again)
		}
	})
}

func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"name":"client/a","parameters":{"properties":{"q/ü":{"type":"string","default":1.50}}},"tags":[]}`))
	f.Add([]byte(`{"1e1":1,"9":2,"1f":3,"":-0,"k":[1e400,-1E-400,"\ud800"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		given, err := value.Decode(text, value.Limits{Bytes: 1 << 16})
		if err != nil {
			return
		}
		canonical := Canonical(given)
		if again := Canonical(decode(t, string(canonical))); string(again) != string(canonical) {
			t.Fatalf("%s becomes %s", canonical, again)
		}
		for _, char := range canonical {
			if char < 0x20 || char > 0x7f {
				t.Fatalf("%q has a byte that is not plain ASCII", canonical)
			}
		}
	})
}
