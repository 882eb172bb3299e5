package llm

import (
	"encoding/json"
	"testing"

	"inbox/normalized"
)

func TestResultsOfTheClientAreTold(t *testing.T) {
	call := normalized.Part{Kind: normalized.PartToolCall, ID: "c1", Name: "map", Args: json.RawMessage(`{}`), Result: json.RawMessage(`{"lat":1}`)}
	running := normalized.Part{Kind: normalized.PartToolCall, ID: "c2", Name: "clock"}
	if got, want := told([]normalized.Part{call, running}), `The tool "map" gave: {"lat":1}`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := told([]normalized.Part{running}); got != "(no text)" {
		t.Errorf("%q", got)
	}
	if got := contents([]normalized.Part{call}); got != "(no text)" { // what the agent's own tools gave is in its transcript
		t.Errorf("%q", got)
	}
}
