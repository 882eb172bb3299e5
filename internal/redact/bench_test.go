package redact

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"testing"
)

func BenchmarkHolds(b *testing.B) {
	r := New([]string{"https://inbox.example"}, Key{Path: "/policy/", Length: 43}, Key{Path: "/v1/files/"}, Key{Tag: 26})
	random := rand.New(rand.NewPCG(1, 2))
	raw := make([]byte, 1<<20)
	for i := range raw {
		raw[i] = byte(random.IntN(256))
	}
	var wrapped bytes.Buffer
	coded := base64.StdEncoding.EncodeToString(raw[:3<<18])
	for len(coded) > 76 {
		wrapped.WriteString(coded[:76] + "\r\n")
		coded = coded[76:]
	}
	for name, content := range map[string][]byte{"random": raw, "base64": wrapped.Bytes(), "text": bytes.Repeat([]byte("A line of 100 % plain text & some words, see https://web.example/a?b=c.\n"), 14000)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				_, _ = r.HoldsIn(bytes.NewReader(content))
			}
		})
	}
}
