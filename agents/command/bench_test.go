package command

import (
	"testing"
)

// BenchmarkRun is the cost of one program beyond what the program does itself.
func BenchmarkRun(b *testing.B) {
	agent, err := New(Options{Program: "true", Output: OutputText, MemoryBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ask(b.Context(), agent); err != nil {
			b.Fatal(err)
		}
	}
}
