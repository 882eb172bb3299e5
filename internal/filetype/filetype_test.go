package filetype_test

import (
	"testing"

	"inbox/internal/filetype"
)

func TestOf(t *testing.T) {
	png := []byte("\x89PNG\r\n\x1a\n")
	for _, c := range []struct {
		said, name string
		content    []byte
		want       string
	}{
		{"text/csv; charset=utf-8", "a.png", png, "text/csv; charset=utf-8"},
		{"", "prices.csv", nil, "text/csv"},
		{"application/octet-stream", "PRICES.CSV", nil, "text/csv"},
		{"Application/Octet-Stream; name=x", "notes.md", nil, "text/markdown"},
		{"application/force-download", "a.jpeg", nil, "image/jpeg"},
		{"application/vnd.ms-excel", "prices.csv", nil, "text/csv"},
		{"application/vnd.ms-excel", "prices.xls", nil, "application/vnd.ms-excel"},
		{"application/vnd.ms-excel", "prices", []byte("a,b"), "application/vnd.ms-excel"},
		{"", "", png, "image/png"},
		{"binary/octet-stream", "picture", png, "image/png"},
		{"", "", []byte("pear,5\n"), "text/plain"},
		{"", "x.bin", []byte{0, 1, 2}, filetype.Unknown},
		{"", "main.go", nil, "text/plain"},
		{"no type", "a.csv", nil, "no type"},
		{"", "", nil, filetype.Unknown},
	} {
		if got := filetype.Of(c.said, c.name, c.content); got != c.want {
			t.Errorf("%q %q: %q, want %q", c.said, c.name, got, c.want)
		}
	}
}
