package normalized

import (
	"encoding/json"
	"strings"
	"testing"
)

// A message as a mention from a fediverse server looks: profile, one piece of evidence, 500 bytes of text.
func benchMessage() Message {
	m := goodMessage()
	m.Parts = []Part{Markdown(strings.Repeat("The quick brown fox. ", 24))}
	m.History, m.PolicyResolution, m.ReceivedTrace = nil, nil, nil
	return m
}

func BenchmarkEncodeMessage(b *testing.B) {
	m := benchMessage()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = m.AppendJSON(buf[:0])
	}
	b.SetBytes(int64(len(buf)))
}

func BenchmarkEncodeMessageThroughStandardLibrary(b *testing.B) {
	m := benchMessage()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = json.Marshal(m)
	}
}

func BenchmarkDecodeStoredMessage(b *testing.B) {
	m := benchMessage()
	body, _ := m.AppendJSON(nil)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		var out Message
		if err := out.UnmarshalJSON(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeStrictMessage(b *testing.B) {
	m := benchMessage()
	body, _ := m.AppendJSON(nil)
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := DecodeMessage(body, DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkValidate(b *testing.B) {
	m := benchMessage()
	b.ReportAllocs()
	for b.Loop() {
		if err := Validate(m, DefaultLimits()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeTextDelta(b *testing.B) {
	d := Delta{Kind: DeltaText, Text: "a few words "}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = d.AppendJSON(buf[:0])
	}
}

func BenchmarkFoldTenThousandAppends(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		f := NewFold(DefaultLimits())
		for range 10_000 {
			_ = f.Add(Delta{Kind: DeltaText, Text: "word "})
		}
		_, _ = f.Response()
	}
}
