package exchange

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestRequires(t *testing.T) {
	for route, want := range map[string][]string{
		``: nil, `{}`: nil, `{"requires":["b","a","b"]}`: {"a", "b"}, `{"x":{"requires":["a"]}}`: nil, `{"requires":"a"}`: nil, `{"words":"\"requires\":[1]"}`: nil,
	} {
		if got := Requires(json.RawMessage(route)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", route, got, want)
		}
	}
}

func TestTurnGroup(t *testing.T) {
	for _, requires := range [][]string{nil, {"gpu"}, {"gpu", "linux"}} {
		agent, read := ReadTurnGroup(TurnGroup("Helper.1", requires))
		if agent != "Helper.1" || !slices.Equal(read, requires) {
			t.Errorf("%v: %q, %v", requires, agent, read)
		}
	}
}
