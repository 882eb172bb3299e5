package identity

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"@a@example.org":             "@a@example.org",
		"a@example.org":              "@a@example.org",
		"acct:a@example.org":         "@a@example.org",
		"@Alice@EXAMPLE.Org":         "@Alice@example.org",
		"a@bücher.example":           "@a@xn--bcher-kva.example",
		"a@BÜCHER.example":           "@a@xn--bcher-kva.example",
		"a@example.org.":             "@a@example.org",
		"a@localhost":                "@a@localhost",
		"a@agent.localhost:8080":     "@a@agent.localhost:8080",
		"a@x.test:08080":             "@a@x.test:8080",
		"a@127.0.0.1:8080":           "@a@127.0.0.1:8080",
		"a@[::1]:8080":               "@a@[::1]:8080",
		"a@[::1]":                    "@a@::1",
		"first.last+tag@b.test":      "@first.last+tag@b.test",
		"søren@b.test":               "@søren@b.test",
		"a!b#$%&'*/=?^_`{|}~@b.test": "@a!b#$%&'*/=?^_`{|}~@b.test",
	} {
		got, err := ParseAddress(text)
		if err != nil || got.String() != want || !got.Is(want) {
			t.Errorf("ParseAddress(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestParseAddressRefuses(t *testing.T) {
	for _, text := range []string{
		"", "@", "a", "@d", "@@d", "@d.test", "@@d.test", "@a@b@c", "a@", "@a@", "acct:", "acct:@", "a b@c.test", "a@b c.test",
		"a@b..test", "a@.test", "a@-b.test", "a@b-.test", "a@b.test:0", "a@b.test:99999", "a@b.test:x", "a@b.test:", "a@[::1", "a@[b]:1",
		"a\n@b.test", "a\x00@b.test", "a@b\x00.test", "\"a\"@b.test", "<a>@b.test", "a,b@c.test", "a:b@c.test", "a@b.test/x",
		"a@b_c.test", "\xff@b.test", "a@\xff.test", "a\u200b@b.test", "a\u00a0b@c.test", "a@" + strings.Repeat("x", 64) + ".test",
		"a@" + strings.Repeat("x.", 130) + "test", strings.Repeat("a", 320) + "@b.test", "a@fe80::1%eth0", "a@1.2.3.4.5:1:2",
	} {
		if got, err := ParseAddress(text); !errors.Is(err, ErrAddress) {
			t.Errorf("ParseAddress(%q) = %q, %v", text, got, err)
		}
	}
}

func TestAddressForms(t *testing.T) {
	a := Address{Local: "Echo", Domain: "x.test:8080"}
	if a.Acct() != "acct:Echo@x.test:8080" || a.Mail() != "Echo@x.test" || CanonicalAgent(a) != "@echo@x.test:8080" {
		t.Error(a.Acct(), a.Mail(), CanonicalAgent(a))
	}
	for _, other := range []string{"", "@", "@Echo@x.test", "@echo@x.test:8080", "@Echo@x.test:8080 ", "aEcho@x.test:8080"} {
		if a.Is(other) {
			t.Errorf("Is(%q)", other)
		}
	}
	if got := (Address{Local: "a", Domain: "[::1]:25"}).Mail(); got != "a@::1" {
		t.Error(got)
	}
}

func TestValidAgentName(t *testing.T) {
	for name, want := range map[string]bool{
		"echo": true, "E": true, "a.b-c_d": true, "-a": true, "7": true, strings.Repeat("a", 64): true,
		"": false, ".a": false, "a.": false, ".": false, "a b": false, "é": false, "a@b": false, strings.Repeat("a", 65): false, "a\n": false, "a/b": false,
	} {
		if ValidAgentName(name) != want {
			t.Errorf("ValidAgentName(%q) = %v", name, !want)
		}
	}
}

func TestCanonicalAddressStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, err := ParseAddress(rapid.StringMatching(`(@|acct:)?[^@ ]{1,20}@[a-zA-ZäÖ0-9.-]{1,30}(:[0-9]{1,5})?`).Draw(t, "address"))
		if err != nil {
			return
		}
		stays(t, a)
	})
}

func stays(t interface{ Fatalf(string, ...any) }, a Address) {
	again, err := ParseAddress(a.String())
	if err != nil || again != a || len(a.String()) > MaxAddressBytes {
		t.Fatalf("%q is read as %q, %v", a, again, err)
	}
	if acct, err := ParseAddress(a.Acct()); err != nil || acct != a {
		t.Fatalf("%q is read as %q, %v", a.Acct(), acct, err)
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, text := range []string{"@a@d.test", "acct:a@bücher.example:8080", "@@d", "a@[::1]:80", "a@xn--a.test", "a@ab--c.test", "a@。test"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if a, err := ParseAddress(text); err == nil {
			stays(t, a)
		}
	})
}
