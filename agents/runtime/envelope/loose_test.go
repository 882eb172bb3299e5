package envelope

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScalar(t *testing.T) {
	for written, want := range map[string]string{
		`"x"`: "x", `true`: "1", `false`: "", `null`: "", `[]`: "", `7`: "7", `-0`: "0", `1.0`: "1", `1.50`: "1.5", `1e3`: "1000",
		`1e17`: "1.0E+17", `0.00001`: "1.0E-5", `0.0001`: "0.0001", `123456789012345678901`: "1.2345678901234568E+20",
	} {
		value, err := Decode([]byte(written), Limits{})
		if got := Scalar(value); got != want || err != nil {
			t.Errorf("Scalar(%s) = %q, want %q (%v)", written, got, want, err)
		}
	}
}

func TestTruthy(t *testing.T) {
	for written, want := range map[string]bool{
		`null`: false, `false`: false, `true`: true, `0`: false, `-0.0`: false, `0e9`: false, `1e-400`: true, `2`: true, `""`: false,
		`"0"`: false, `"0.0"`: true, `" "`: true, `"false"`: true, `[]`: false, `{}`: false, `[0]`: true, `{"a":null}`: true,
	} {
		value, err := Decode([]byte(written), Limits{})
		if got := Truthy(value); got != want || err != nil {
			t.Errorf("Truthy(%s) = %v, want %v (%v)", written, got, want, err)
		}
	}
	if Truthy(0.0) || !Truthy(math.Inf(1)) || !Truthy(3) {
		t.Error("Go numbers are read differently")
	}
}

func TestElements(t *testing.T) {
	for written, want := range map[string][]any{`[1]`: {1.0}, `{"b":2,"a":1}`: {1.0, 2.0}, `{}`: {}, `"x"`: {}, `null`: {}} {
		value, err := Decode([]byte(written), Limits{})
		if got := Elements(value); !Equal(got, want) || got == nil || err != nil {
			t.Errorf("Elements(%s) = %v, %v", written, got, err)
		}
	}
}

func TestLowerKeepsAlphabetsApart(t *testing.T) {
	if got := Lower("AbÄ\u212aZ"); got != "abÄ\u212az" {
		t.Errorf("%q", got)
	}
}

func TestCitations(t *testing.T) {
	value, err := Decode([]byte(`[7,{},{"source":" ","score":"high"},{"source":" web ","score":"0.5","own":true,"item_id":7},{"score":"1e999","x":null},{"score":2}]`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := []any{map[string]any{"source": "web", "score": 0.5, "own": true, "item_id": "7"}, map[string]any{"x": nil}, map[string]any{"score": 2.0}}
	if difference := cmp.Diff(want, Citations(value)); difference != "" {
		t.Error(difference)
	}
	if none := Citations("x"); none == nil || len(none) != 0 {
		t.Error(none)
	}
}
