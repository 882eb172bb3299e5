package mcptool

import (
	"path/filepath"
	"slices"
	"testing"

	"inbox/agents/runtime/tool"
)

// TestNotesExample runs the server that the documentation shows.
func TestNotesExample(t *testing.T) {
	script := filepath.Join("..", "..", "docs", "examples", "pythontools", "server.py")
	file := filepath.Join(t.TempDir(), "notes.jsonl")
	source := start(t, quick(t), Server{
		Name: "notes", Command: "python3", Arguments: []string{script, file}, AtMostOnce: []string{"add_*"},
	})
	if list := names(t, source); !slices.Equal(list, []string{"notes/add_note", "notes/list_notes"}) {
		t.Fatalf("tools = %v: is python3 installed? %+v", list, source.Status())
	}
	if got := result(t, source, "notes/list_notes", nil); got != "There are no notes." {
		t.Error(got)
	}
	for range 2 { // as if a crash lay between them
		answer, err := source.Execute(t.Context(), tool.Call{
			Name: "notes/add_note", Parameters: map[string]any{"text": "buy milk"}, Context: map[string]any{"run_id": "run-1"},
		})
		if err != nil || answer["result"] != "Noted." {
			t.Fatal(answer, err)
		}
	}
	if got := result(t, source, "notes/list_notes", nil); got != "buy milk" {
		t.Error(got)
	}
	wantFailure(t, call(t, source, "notes/add_note", map[string]any{}), kindTool)
}
