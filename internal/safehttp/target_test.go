package safehttp

import (
	"errors"
	"net/url"
	"testing"

	"github.com/miekg/dns"
)

// TestCheckTarget: a name is looked up before it is used for the first time; one that leads inside with any of its
// addresses is refused.
func TestCheckTarget(t *testing.T) {
	answers := map[string][]string{
		"public.example.": {"93.184.215.14"}, "inside.example.": {"10.0.0.1"}, "mixed.example.": {"93.184.215.14", "127.0.0.1"},
		"metadata.example.": {"169.254.169.254"},
	}
	resolver := nameServer(t, func(name string, kind uint16, _ int64) (records []string) {
		for _, address := range answers[name] {
			if kind == dns.TypeA {
				records = append(records, name+" 1 IN A "+address)
			}
		}
		return records
	})
	guarded, open := New(Options{Resolver: resolver}), New(Options{Resolver: resolver, AllowPrivate: true})
	trusting := guarded.Trusting("inside.example:443")
	for address, refused := range map[string]bool{
		"https://public.example/": false, "https://unknown.example/": false, "https://inside.example/": true, "https://mixed.example/": true,
		"https://metadata.example/": true, "http://public.example/": true, "https://127.0.0.1/": true,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := guarded.CheckTarget(t.Context(), u); errors.Is(err, ErrRefused) != refused {
			t.Errorf("%s: %v", address, err)
		}
		if err := open.CheckTarget(t.Context(), u); err != nil {
			t.Errorf("%s where private addresses are allowed: %v", address, err)
		}
	}
	if u, _ := url.Parse("https://inside.example/"); trusting.CheckTarget(t.Context(), u) != nil {
		t.Error("a host that the operator wrote is refused")
	}
}
