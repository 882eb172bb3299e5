package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const acmeHead = `public_url = "https://agents.example"
[http]
listen = "127.0.0.1:8443"
tls = "acme"
[smtp]
listen = "off"
`

func TestProofByRecords(t *testing.T) {
	key := filepath.Join(t.TempDir(), "tsig")
	if err := os.WriteFile(key, []byte("c2VjcmV0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := Load(write(t, acmeHead+`[acme]
names = ["*.agents.example"]
[acme.dns]
provider = "rfc2136"
server = "ns1.example:53"
key_name = "inbox"
token_file = "`+key+`"
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if zone := config.ACME.DNS; zone.Token != "c2VjcmV0" || zone.KeyAlgorithm != "hmac-sha256" {
		t.Errorf("%+v", zone)
	}
	if names := config.CertificateNames(); !slices.Contains(names, "*.agents.example") {
		t.Errorf("the names are %q", names)
	}
}

func TestRefusedProofByRecords(t *testing.T) {
	for keys, want := range map[string]string{
		"[acme]\nnames = [\"*.agents.example\"]":                                                 "only by dns-01",
		"[acme.dns]\ntoken = \"t0p\"":                                                            "has no effect",
		"[acme.dns]\nprovider = \"cloudfare\"\ntoken = \"t0p\"":                                  `did you mean "cloudflare"?`,
		"[acme.dns]\nprovider = \"desec\"":                                                       "acme.dns.token",
		"[acme.dns]\nprovider = \"rfc2136\"\ntoken = \"dDBw\"":                                   "host:port",
		"[acme.dns]\nprovider = \"rfc2136\"\ntoken = \"t0p\"":                                    "in base64",
		"[acme.dns]\nprovider = \"acmedns\"\ntoken = \"t0p\"":                                    "https address",
		"[acme]\nnames = [\"*.*.a.example\"]\n[acme.dns]\nprovider = \"desec\"\ntoken = \"t0p\"": "no certificate",
	} {
		_, err := Load(write(t, acmeHead+keys+"\n"), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", keys, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "t0p") {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}
