package identity

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCanonicalIssuer(t *testing.T) {
	for text, want := range map[string]string{
		"a.example":                       "a.example",
		"https://A.example/":              "a.example",
		"HTTPS://a.example":               "a.example",
		"https://a.example:443":           "a.example",
		"a.example:8443":                  "a.example:8443",
		"http://127.0.0.1:8080":           "127.0.0.1:8080",
		"http://[::1]:8080/":              "[::1]:8080",
		"bücher.example":                  "xn--bcher-kva.example",
		"localhost":                       "localhost",
		"::443":                           "::443",
		"did:web:A.example":               "did:web:a.example",
		"did:web:a.example%3a8443":        "did:web:a.example%3A8443",
		"did:web:a.example%3A443":         "did:web:a.example",
		"did:web:a.example:agents:Echo-1": "did:web:a.example:agents:Echo-1",
		"did:web:a.example:%65cho":        "did:web:a.example:echo",
	} {
		if got, err := CanonicalIssuer(text); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "/", "https://", "https:///", "http://a.example", "ftp://a.example:21", "https://u@a.example", "https://a.example/x", "a.example?x", "a.example#x",
		"https://https://a.example", "did:key:z6Mk", "did:web:", "did:web::x", "did:web:a.example:", "did:web:a.example:..:x", "did:web:a.example:%2e%2e",
		"did:web:a.example:x%2Fy", "did:web:a.example%2Fx", "did:web:a.example%3A", "did:web:a.example%3A8443%3A1", "did:web:a.example:%zz", "did:web:a.example:x#y",
		"did:web:a.example:x?y", "did:web:u@a.example", "urn:x", "a b", "a\n.example", strings.Repeat("a", 3000),
	} {
		if got, err := CanonicalIssuer(text); !errors.Is(err, ErrIssuer) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

func TestCanonicalIssuerStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`(https://|did:web:)?[a-zA-Z0-9.-]{1,20}(:[0-9]{1,5}|%3A[0-9]{1,5})?(:[a-z%0-9.-]{0,6}){0,2}/?`).Draw(t, "issuer")
		first, err := CanonicalIssuer(text)
		if err != nil {
			return
		}
		if again, err := CanonicalIssuer(first); err != nil || again != first {
			t.Fatalf("%q becomes %q becomes %q, %v", text, first, again, err)
		}
	})
}

func FuzzCanonicalIssuer(f *testing.F) {
	for _, text := range []string{"https://A.example:443/", "did:web:a.example%3A8443:x", "[::1]:8080", "did:web:%5B%3A%3A1%5D%3A80"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, err := CanonicalIssuer(text)
		if err != nil {
			return
		}
		if again, err := CanonicalIssuer(first); err != nil || again != first {
			t.Fatalf("%q becomes %q becomes %q, %v", text, first, again, err)
		}
		if _, err := keyDocumentURL(first, true); err != nil {
			t.Fatal(err)
		}
	})
}

// did:web method specification, section 2.5.2, and the Connector Card.
func TestKeyDocumentURL(t *testing.T) {
	for issuer, want := range map[string]string{
		"a.example":                          "https://a.example/.well-known/adapter-card",
		"127.0.0.1:8080":                     "http://127.0.0.1:8080/.well-known/adapter-card",
		"[::1]:8080":                         "http://[::1]:8080/.well-known/adapter-card",
		"::1":                                "https://[::1]/.well-known/adapter-card",
		"did:web:a.example":                  "https://a.example/.well-known/did.json",
		"did:web:a.example:user:alice":       "https://a.example/user/alice/did.json",
		"did:web:127.0.0.1%3A3000:user:a.b":  "http://127.0.0.1:3000/user/a.b/did.json",
		"did:web:xn--bcher-kva.example:%7Ea": "https://xn--bcher-kva.example/~a/did.json",
	} {
		if got, err := keyDocumentURL(issuer, true); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", issuer, got, err, want)
		}
	}
	if got, err := keyDocumentURL("127.0.0.1:8080", false); err != nil || got != "https://127.0.0.1:8080/.well-known/adapter-card" {
		t.Error(got, err)
	}
	if got, err := keyDocumentURL("did:web:", false); err == nil {
		t.Error(got)
	}
}

func TestTrustedIssuerValidate(t *testing.T) {
	for _, prefix := range []string{"slack:T123/", "acct:", "https://a.example/", "urn:x#", "k=", "x?", "acct:alice@"} {
		entry := trusted(connector)
		entry.SubjectPrefixes = []string{prefix}
		if err := entry.Validate(); err != nil {
			t.Error(prefix, err)
		}
	}
	for name, change := range map[string]func(*TrustedIssuer){
		"issuer":            func(e *TrustedIssuer) { e.Issuer = "https://a.example/x" },
		"no issuer":         func(e *TrustedIssuer) { e.Issuer = "" },
		"empty method":      func(e *TrustedIssuer) { e.Methods = []string{""} },
		"control character": func(e *TrustedIssuer) { e.Assurance = []string{"a\n"} },
		"empty prefix":      func(e *TrustedIssuer) { e.SubjectPrefixes = []string{""} },
		"open prefix":       func(e *TrustedIssuer) { e.SubjectPrefixes = []string{"slack:T123/", "slack:T1"} },
		"star":              func(e *TrustedIssuer) { e.SubjectPrefixes = []string{"slack:*"} },
	} {
		entry := trusted(connector)
		if change(&entry); entry.Validate() == nil {
			t.Error(name)
		}
	}
	for name, change := range map[string]func(*TrustedIssuer){
		"methods":   func(e *TrustedIssuer) { e.Methods = nil },
		"assurance": func(e *TrustedIssuer) { e.Assurance = nil },
		"prefixes":  func(e *TrustedIssuer) { e.SubjectPrefixes = nil },
	} {
		entry := trusted(connector)
		if change(&entry); !errors.Is(entry.Validate(), errNothingTrusted) {
			t.Error(name)
		}
	}
}

// Two entries for one issuer do not add up: one of them must cover all of it.
func TestEntriesDoNotAddUp(t *testing.T) {
	first, second := trusted(connector), trusted("https://Connector.test/")
	first.Methods, second.SubjectPrefixes = []string{"m1"}, []string{"other:"}
	b := newBench(t, func(o *ValidatorOptions) { o.Trust = []TrustedIssuer{first, second} })
	if got := codes(b.validate(t, b.fresh(t))); len(got) != 1 || got[0] != CodeNotCovered {
		t.Error(got)
	}
	second.SubjectPrefixes = append(second.SubjectPrefixes, "slack:T123/")
	b = newBench(t, func(o *ValidatorOptions) { o.Trust = []TrustedIssuer{first, second} })
	if got := codes(b.validate(t, b.fresh(t))); len(got) != 0 {
		t.Error(got)
	}
}

func TestEntryEnds(t *testing.T) {
	ending := func(o *ValidatorOptions) {
		o.Trust = []TrustedIssuer{trusted(connector)}
		o.Trust[0].Expires = time.Now().Add(time.Hour)
	}
	bubble(t, ending, func(t *testing.T, b *bench) {
		b.wants(t, "", 1)
		after(t, time.Hour)
		b.wants(t, CodeUntrustedIssuer, 1)
	})
}
