package capability_test

import (
	"testing"

	"pgregory.net/rapid"

	"inbox/internal/capability"
)

func TestTokenSpeaksForOneClaim(t *testing.T) {
	key := make([]byte, 32)
	claims := func(t *rapid.T, name string) capability.Claim {
		text := rapid.StringMatching(`[ab\x00]{0,3}`)
		return capability.Claim{Purpose: text.Draw(t, name+" purpose"), Who: text.Draw(t, name+" who"), What: text.Draw(t, name+" what")}
	}
	rapid.Check(t, func(t *rapid.T) {
		minted, used := claims(t, "minted"), claims(t, "used")
		token := capability.Mint(key, minted)
		if got, want := capability.Valid(key, used, token), minted == used; got != want {
			t.Fatalf("token of %q is valid for %q: %v, want %v", minted, used, got, want)
		}
		if capability.Valid(append([]byte{1}, key...), minted, token) {
			t.Fatal("a token is valid under another key")
		}
	})
}

func TestBrokenTokens(t *testing.T) {
	claim := capability.Claim{Purpose: "bounce", Who: "ann@a.example", What: "1"}
	good := capability.Mint(nil, claim)
	for _, token := range []string{"", "a", good[:25], good + "a", "!" + good[1:]} {
		if capability.Valid(nil, claim, token) {
			t.Errorf("%q is valid", token)
		}
	}
}
