package signature

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"strings"
	"sync"
	"testing"
)

func TestParseKey(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	raw := append([]byte{0xed, 0x01}, public...)
	key, err := ParseKey(encodeMultibase(raw))
	if err != nil || !bytes.Equal(key.(ed25519.PublicKey), public) {
		t.Errorf("multikey: %v", err)
	}
	if _, err := ParseKey(pemOf(t, newKey(t))); err != nil {
		t.Errorf("SPKI: %v", err)
	}
	for _, text := range []string{"", "z", "z0OIl", encodeMultibase(raw[1:]), "z" + strings.Repeat("1", 200), "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"} {
		if _, err := ParseKey(text); err == nil {
			t.Errorf("%q: accepted", text)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add(pemOf(f, newKey(f)))
	f.Add("z6MkrJVnaZkeFzdQyMZu1cgjg7k1pZZ6pvBQ7XJPt4swbTQ2")
	f.Fuzz(func(_ *testing.T, material string) { _, _ = ParseKey(material) })
}

func FuzzMultibase(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2}, "z6MkrJVnaZkeFzdQyMZu1cgjg7k1pZZ6pvBQ7XJPt4swbTQ2")
	f.Fuzz(func(t *testing.T, raw []byte, text string) {
		if len(raw) <= 64 {
			if got, ok := decodeMultibase(encodeMultibase(raw)); !ok || !bytes.Equal(got, raw) {
				t.Errorf("%x became %x", raw, got)
			}
		}
		if got, ok := decodeMultibase(text); ok && encodeMultibase(got) != text {
			t.Errorf("%q became %q", text, encodeMultibase(got))
		}
	})
}

var sharedKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// newKey returns one RSA key for all tests.
func newKey(t testing.TB) *rsa.PrivateKey {
	t.Helper()
	key, err := sharedKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pemOf(t testing.TB, key *rsa.PrivateKey) string {
	t.Helper()
	text, err := PublicPEM(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
