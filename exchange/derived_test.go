package exchange_test

import (
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"inbox/exchange"
)

// TestDerivedID: the same origin and words make the same id, others another one; it is a UUIDv7 with the time of its origin.
func TestDerivedID(t *testing.T) {
	origin := uuid.Must(uuid.NewV7()).String()
	if exchange.DerivedID(origin, "a", "b") == exchange.DerivedID(origin, "ab") {
		t.Error("the borders of the words do not count")
	}

	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "words")
		id := exchange.DerivedID(origin, words...)
		parsed, err := uuid.Parse(id)
		if err != nil || parsed.Version() != 7 || parsed.Variant() != uuid.RFC4122 {
			t.Fatalf("%s is no UUIDv7: %v", id, err)
		}
		if id[:13] != origin[:13] {
			t.Fatalf("%s has not the time of %s", id, origin)
		}
		if id != exchange.DerivedID(origin, words...) || id == exchange.DerivedID(origin, append(words, "more")...) {
			t.Fatalf("%s is not one id for one list of words", id)
		}
	})
}
