package capability_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/internal/capability"
)

var forms = map[capability.Form]*regexp.Regexp{
	capability.Plain: regexp.MustCompile(`^[a-z2-7]{26}$`),
	capability.Short: regexp.MustCompile(`^[a-z2-7]{16}$`),
	capability.Typed: regexp.MustCompile(`^[0-9a-hjkmnp-tv-z]{16}$`),
	capability.Long:  regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`),
}

func TestTokenSpeaksForOneClaim(t *testing.T) {
	key := make([]byte, 32)
	claims := func(t *rapid.T, name string) capability.Claim {
		text := rapid.StringMatching(`[ab\x00]{0,3}`)
		return capability.Claim{
			Purpose: text.Draw(t, name+" purpose"), Who: text.Draw(t, name+" who"), What: text.Draw(t, name+" what"),
			Form: rapid.SampledFrom([]capability.Form{capability.Plain, capability.Short, capability.Typed, capability.Long}).Draw(t, name+" form"),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		minted, used := claims(t, "minted"), claims(t, "used")
		token := capability.Mint(key, minted)
		if !forms[minted.Form].MatchString(token) {
			t.Fatalf("token %s has not the form %d", token, minted.Form)
		}
		if got, want := capability.Valid(key, used, token), minted == used; got != want {
			t.Fatalf("token of %+v is valid for %+v: %v, want %v", minted, used, got, want)
		}
		if capability.Valid(append([]byte{1}, key...), minted, token) {
			t.Fatal("a token is valid under another key")
		}
		minted.Former = true
		if capability.Valid(key, minted, token) {
			t.Fatal("a token is one of a former version")
		}
	})
}

func TestBrokenTokens(t *testing.T) {
	claim := capability.Claim{Purpose: "bounce", Who: "ann@a.example", What: "1"}
	good := capability.Mint(nil, claim)
	for _, token := range []string{"", "a", good[:25], good + "a", "!" + good[1:], strings.ToUpper(good)} {
		if capability.Valid(nil, claim, token) {
			t.Errorf("%q is valid", token)
		}
	}
}

func TestDrawnTokensDiffer(t *testing.T) {
	for form, pattern := range forms {
		one, two := capability.Draw(form), capability.Draw(form)
		if one == two || !pattern.MatchString(one) || !pattern.MatchString(two) {
			t.Errorf("form %d: %s and %s", form, one, two)
		}
	}
}

func TestDocumentIsForOnePartyUntilItsEnd(t *testing.T) {
	key, now := make([]byte, 32), time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	signed, err := capability.Sign(key, "login", "browser", now.Add(time.Minute), map[string]string{"demand": "1"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := capability.Sign(key, "login", "browser", now.Add(time.Hour), map[string]string{"demand": "2"})
	if err != nil {
		t.Fatal(err)
	}
	payload, token, _ := strings.Cut(signed, ".")
	longer, _, _ := strings.Cut(other, ".")

	for name, test := range map[string]struct {
		key          []byte
		purpose, who string
		signed       string
		at           time.Time
		want         error
	}{
		"as it was signed":   {key, "login", "browser", signed, now, nil},
		"in its last second": {key, "login", "browser", signed, now.Add(59 * time.Second), nil},
		"at its end":         {key, "login", "browser", signed, now.Add(time.Minute), capability.ErrEnded},
		"another purpose":    {key, "last page", "browser", signed, now, capability.ErrForeign},
		"another browser":    {key, "login", "other", signed, now, capability.ErrForeign},
		"no browser":         {key, "login", "", signed, now, capability.ErrForeign},
		"another key":        {[]byte("another"), "login", "browser", signed, now, capability.ErrForeign},
		"a longer life":      {key, "login", "browser", longer + "." + token, now, capability.ErrForeign},
		"no token":           {key, "login", "browser", payload, now, capability.ErrForeign},
		"nothing":            {key, "login", "browser", "", now, capability.ErrForeign},
	} {
		var read map[string]string
		err := capability.Read(test.key, test.purpose, test.who, test.signed, test.at, &read)
		if !errors.Is(err, test.want) || (read["demand"] == "1") == errors.Is(err, capability.ErrForeign) {
			t.Errorf("%s: %v, %v", name, err, read)
		}
	}
}
