package sealing

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func box(t testing.TB, fill byte) *Box {
	t.Helper()
	b, err := New([]byte(strings.Repeat(string(rune(fill)), KeyBytes)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOnlyKeyAndPurposeOpen(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		secret := rapid.SliceOf(rapid.Byte()).Draw(r, "secret")
		ours, other := box(t, 'a'), box(t, 'b')
		sealed := ours.Seal(secret, "watch 1")
		if opened, err := ours.Open(sealed, "watch 1"); err != nil || string(opened) != string(secret) {
			r.Fatalf("opened %q, %v", opened, err)
		}
		if len(secret) >= 8 && strings.Contains(sealed, string(secret)) {
			r.Fatal("the secret can be read")
		}
		at := rapid.IntRange(len(prefix), len(sealed)-2).Draw(r, "at")
		flipped := []byte(sealed)
		flipped[at] ^= 1
		for name, attempt := range map[string]func() ([]byte, error){
			"another key":     func() ([]byte, error) { return other.Open(sealed, "watch 1") },
			"another purpose": func() ([]byte, error) { return ours.Open(sealed, "watch 2") },
			"a changed text":  func() ([]byte, error) { return ours.Open(string(flipped), "watch 1") },
			"no form":         func() ([]byte, error) { return ours.Open(strings.TrimPrefix(sealed, prefix), "watch 1") },
		} {
			if opened, err := attempt(); !errors.Is(err, ErrForeign) {
				r.Fatalf("%s opened %q, %v", name, opened, err)
			}
		}
	})
}

func TestKeys(t *testing.T) {
	if _, err := New(make([]byte, 16)); err == nil {
		t.Error("a short key was taken")
	}
	if box(t, 'a').Fingerprint() == box(t, 'b').Fingerprint() || len(NewKey()) != KeyBytes {
		t.Error("keys cannot be told apart")
	}
	if first, second := box(t, 'a').Seal(nil, ""), box(t, 'a').Seal(nil, ""); first == second {
		t.Error("the same secret gives the same text")
	}
}
