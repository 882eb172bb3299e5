package notetext

import (
	"os"
	"testing"

	"inbox/adapters/activitypub/document"
)

func BenchmarkPlainText(b *testing.B) {
	body, err := os.ReadFile("../testdata/inbound/mastodon-direct.json")
	if err != nil {
		b.Fatal(err)
	}
	doc, err := document.Parse(body)
	if err != nil {
		b.Fatal(err)
	}
	note := doc["object"].(document.Object)
	as := testReader()
	b.ReportAllocs()
	for b.Loop() {
		if Plain(document.Text(note, "content"), as) == "" {
			b.Fatal("no text")
		}
	}
}
