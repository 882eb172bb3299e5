package store

import (
	"testing"

	"inbox/internal/fault"
)

// FuzzCursor: a cursor comes from a peer's page token; whatever it is, it is used or refused as malformed.
func FuzzCursor(f *testing.F) {
	for _, seed := range []string{"", "1.a", "x", ".", "1.", "-5.\x00", "9223372036854775807.id", "99999999999999999999.id"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, cursor string) {
		var s selection
		err := s.addCursor(cursor, false)
		if err != nil && !fault.Is(err, fault.Malformed) {
			t.Fatal(err)
		}
		if want := 2; err == nil && cursor != "" && len(s.arguments) != want {
			t.Fatalf("%q gives %v", cursor, s.arguments)
		}
	})
}
