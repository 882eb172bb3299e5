package config

import (
	"slices"
	"strings"
	"testing"
)

// TestApexElsewhereHasNoCertificate: of a domain that another web server has, none is ordered.
func TestApexElsewhereHasNoCertificate(t *testing.T) {
	const text = "domain = \"example.org\"\npublic_url = \"https://agents.example.org\"\nhttp.tls = \"acme\"\nsmtp.listen = \"off\"\n[[agents]]\nname = \"a\"\nkind = \"echo\"\n"
	for apex, want := range map[string][]string{"here": {"agents.example.org", "example.org"}, "elsewhere": {"agents.example.org"}} {
		c, err := LoadText("test", "apex = \""+apex+"\"\n"+text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.CertificateNames(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", apex, got, want)
		}
	}
	if _, err := LoadText("test", "apex = \"elsewhere\"\n"+strings.Replace(text, "agents.example.org", "example.org", 1), nil); err == nil || !strings.Contains(err.Error(), "apex") {
		t.Errorf("a server without a host of its own: %v", err)
	}
}
