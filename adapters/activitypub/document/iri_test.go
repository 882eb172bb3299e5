package document

import (
	"net/url"
	"strings"
	"testing"
)

func TestOrigin(t *testing.T) {
	cases := map[string]string{
		"https://example.org/users/a":       "https://example.org",
		"https://EXAMPLE.org:443/a":         "https://example.org",
		"http://example.org:80":             "http://example.org",
		"https://example.org:8443/a?b#c":    "https://example.org:8443",
		"https://example.org./a":            "https://example.org",
		"https://bücher.example/":           "https://xn--bcher-kva.example",
		"https://example.org?x=https://b.c": "https://example.org",
		"http://127.0.0.1:8080/a":           "http://127.0.0.1:8080",
		"http://[::1]:8080/a":               "http://[::1]:8080",
	}
	for iri, want := range cases {
		if got, ok := Origin(iri); !ok || got != want {
			t.Errorf("origin(%q) = %q, %v, want %q", iri, got, ok, want)
		}
	}
	for _, iri := range []string{
		"", "example.org", "ftp://example.org", "https://", "https:///a", "https://user@example.org/",
		"https://good.example@evil.example/", "https://good.example\\@evil.example/", "https://a b/", "https://a.example/\n",
		"https://a%2eb/", "javascript:alert(1)", "https://a:b:c/", "https://a:99999999/", "HTTPS://a.example/", "tag:example.org,2026:x",
		"https://" + strings.Repeat("a", MaxIRIBytes),
	} {
		if got, ok := Origin(iri); ok {
			t.Errorf("origin(%q) = %q, want none", iri, got)
		}
	}
}

// FuzzOrigin checks our reading of an address against net/url: two readers that see different hosts are how accounts
// get taken over.
func FuzzOrigin(f *testing.F) {
	for _, seed := range []string{"https://a.example/b", "https://a@b/", "http://[::1]:8/", "https://a:443?b", "https://xn--a/", "https://ß.example"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, iri string) {
		got, ok := Origin(iri)
		if !ok {
			return
		}
		parsed, err := url.Parse(iri)
		if err != nil {
			return // refused when it is fetched
		}
		if parsed.User != nil || parsed.Scheme == "" {
			t.Fatalf("%q: user or no scheme", iri)
		}
		again, ok := CanonicalHost(parsed.Host, parsed.Scheme)
		if !ok || parsed.Scheme+"://"+again != got {
			t.Errorf("%q: %q, net/url reads %q", iri, got, parsed.Host)
		}
	})
}

func TestReferences(t *testing.T) {
	doc, err := Parse([]byte(`{"a":"x","b":{"id":"y"},"c":["z",{"id":"w"},3],"d":null,"e":[["v"]],"f":5}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "x", "b": "y", "c": "z", "d": "", "e": "", "f": "", "g": ""}
	for name, iri := range want {
		if got := Reference(doc[name]); got != iri {
			t.Errorf("reference of %s = %q, want %q", name, got, iri)
		}
	}
	if got := References(doc["c"]); strings.Join(got, " ") != "z w" {
		t.Errorf("references = %v", got)
	}
}
