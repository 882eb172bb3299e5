package safehttp

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBlockedAddresses(t *testing.T) {
	blocked := map[string][]string{
		"this network":               {"0.0.0.0", "0.255.255.255"},
		"private":                    {"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255"},
		"carrier-grade NAT":          {"100.64.0.1", "100.127.255.255"},
		"loopback":                   {"127.0.0.1", "127.255.255.255", "::1"},
		"link-local":                 {"169.254.0.1", "169.254.255.255", "fe80::1", "febf::1", "fe80::1%eth0"},
		"metadata services":          {"169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254"},
		"protocol assignments":       {"192.0.0.1", "192.0.0.255", "2001:1::1", "2001:1ff::1"},
		"documentation":              {"192.0.2.1", "198.51.100.1", "203.0.113.255", "2001:db8::1", "3fff::1"},
		"benchmark":                  {"198.18.0.1", "198.19.255.255", "2001:2::1"},
		"multicast":                  {"224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"},
		"reserved and broadcast":     {"240.0.0.1", "255.255.255.255"},
		"6to4":                       {"192.88.99.1", "2002:7f00:1::1", "2002:808:808::1"},
		"Teredo":                     {"2001::1", "2001:0:7f00:1::1"},
		"NAT64":                      {"64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1"},
		"IPv4-mapped and compatible": {"::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::"},
		"unique local":               {"fc00::1", "fd12:3456::1"},
		"site-local and discard":     {"fec0::1", "100::1"},
	}
	for name, addresses := range blocked {
		for _, address := range addresses {
			if err := CheckAddr(netip.MustParseAddr(address)); !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %s got %v", name, address, err)
			}
		}
	}
	for _, address := range []string{"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0", "223.255.255.255", "2606:4700::1111", "2a00::1"} {
		if err := CheckAddr(netip.MustParseAddr(address)); err != nil {
			t.Errorf("public %s: %v", address, err)
		}
	}
}

func TestCheckURL(t *testing.T) {
	const (
		https   = "want an https address"
		literal = "host is an IP address"
		single  = "host is a single label"
		user    = "user name or password in the address"
		port    = "only port 443 is allowed"
	)
	tests := []struct{ address, production, private string }{
		{"https://example.com/path?q#f", "", ""},
		{"https://example.com:443/", "", ""},
		{"https://EXAMPLE.com./", "", ""},
		{"https://bücher.example/", "", ""},
		{"http://example.com/", "only https leaves this server", ""},
		{"http://example.com:80/", "only https leaves this server", ""},
		{"https://example.com:80/", port, ""},
		{"https://example.com:8443/", port, ""},
		{"https://user@example.com/", user, user},
		{"https://user:secret@example.com/", user, user},
		{"https://127.0.0.1/", literal, ""},
		{"https://8.8.8.8/", literal, ""},
		{"https://[::1]/", literal, ""},
		{"https://[::ffff:127.0.0.1]/", literal, ""},
		{"https://127.1/", literal, ""},
		{"https://2130706433/", literal, ""},
		{"https://0x7f000001/", literal, ""},
		{"https://0x7f.0.0.1/", literal, ""},
		{"https://localhost/", single, ""},
		{"https://intranet/", single, ""},
		{"https:///path", "no host", "no host"},
		{"https://exa_mple..com/", "host is not a domain", ""},
		{"ftp://example.com/", https, https},
		{"file:///etc/passwd", https, https},
		{"javascript:alert(1)", https, https},
		{"/relative", https, https},
		{"", https, https},
	}
	production, private := New(Options{}), New(Options{AllowPrivate: true})
	for _, test := range tests {
		u, err := url.Parse(test.address)
		if err != nil {
			t.Fatal(err)
		}
		for client, want := range map[*Client]string{production: test.production, private: test.private} {
			got := ""
			var refused *Refused
			if err := client.CheckURL(u); errors.As(err, &refused) {
				got = refused.Reason
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("the password shows in %v", err)
				}
			}
			if got != want {
				t.Errorf("%s (private %t): %q, want %q", test.address, client == private, got, want)
			}
		}
	}
}

func TestTrustingIsExact(t *testing.T) {
	client := New(Options{}).Trusting("127.0.0.1:9000", "agent.internal:80", "[::1]:25")
	for address, want := range map[string]bool{
		"http://127.0.0.1:9000/hook": true, "https://127.0.0.1:9000/": true, "http://127.0.0.1:9001/": false,
		"http://127.0.0.1/": false, "http://agent.internal/": true, "http://AGENT.internal:80/": true,
		"https://agent.internal/": true, "http://agent.internal:8080/": false, "http://other.internal/": false,
		"ftp://127.0.0.1:9000/": false,
	} {
		u, _ := url.Parse(address)
		if got := client.CheckURL(u) == nil; got != want {
			t.Errorf("%s allowed = %t", address, got)
		}
	}
	if _, changed := New(Options{}).trusted["127.0.0.1:9000"]; changed {
		t.Error("the original client trusts, too")
	}
}

func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{"https://example.com/", "https://[::1]:443/", "https://127。0。0。1/", "https://0177.1/", "https://example.com:443@127.0.0.1/"} {
		f.Add(seed)
	}
	client := New(Options{})
	f.Fuzz(func(t *testing.T, address string) {
		u, err := url.Parse(address)
		if err != nil || client.CheckURL(u) != nil {
			return
		}
		if _, err := netip.ParseAddr(u.Hostname()); err == nil || u.Scheme != "https" || u.User != nil || u.Port() != "" && u.Port() != "443" {
			t.Errorf("%q was allowed", address)
		}
	})
}
