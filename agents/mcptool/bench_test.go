package mcptool

import (
	"log/slog"
	"testing"
)

// BenchmarkCall is one call of a tool in another process, over its standard input and output.
func BenchmarkCall(b *testing.B) {
	source, err := New([]Server{peer("peer", "tools")}, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	source.Start()
	defer source.Close()
	source.Declarations(b.Context())
	b.ReportAllocs()
	for b.Loop() {
		if answer, err := source.Call(b.Context(), "peer/echo", map[string]any{"text": "hello"}, ""); err != nil || answer["result"] != "hello" {
			b.Fatal(answer, err)
		}
	}
}
