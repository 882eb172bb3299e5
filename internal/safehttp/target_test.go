package safehttp

import (
	"errors"
	"net/netip"
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
		if err := open.CheckTarget(t.Context(), u); errors.Is(err, ErrRefused) != (u.Host == "metadata.example") {
			t.Errorf("%s where private addresses are allowed: %v", address, err)
		}
	}
	allowing := guarded.Allowing("inside.example:80", "metadata.example:443")
	for address, refused := range map[string]bool{
		"http://inside.example/": false, "https://inside.example/": true, "http://public.example/": true, "https://metadata.example/": true,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := allowing.CheckTarget(t.Context(), u); errors.Is(err, ErrRefused) != refused {
			t.Errorf("%s where one host may be private: %v", address, err)
		}
	}
	if u, _ := url.Parse("https://inside.example/"); trusting.CheckTarget(t.Context(), u) != nil {
		t.Error("a host that the operator wrote is refused")
	}
}

// TestMetadataServicesStayClosed: no setting that allows private addresses opens the services from which clouds give
// credentials, in any form of their addresses, neither when an address is checked nor when it is dialled.
func TestMetadataServicesStayClosed(t *testing.T) {
	open := New(Options{AllowPrivate: true})
	for _, host := range []string{
		"169.254.169.254", "169.254.0.1", "[fe80::1]", "[fd00:ec2::254]", "[fd20:ce::254]", "100.100.100.200", "168.63.129.16", "192.0.0.192",
		"[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::1]",
	} {
		u, err := url.Parse("http://" + host + ":8080/latest/meta-data")
		if err != nil {
			t.Fatal(err)
		}
		if err := open.CheckTarget(t.Context(), u); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", host, err)
		}
		trusting := New(Options{MetadataAddresses: []netip.Prefix{netip.MustParsePrefix("169.254.10.1/32")}}).Trusting(u.Host)
		if err := trusting.CheckTarget(t.Context(), u); !errors.Is(err, ErrRefused) {
			t.Errorf("%s as a service of the operator: %v", host, err)
		}
		for name, client := range map[string]*Client{"open": open, "allowing": New(Options{}).Allowing(u.Host), "trusting": trusting} {
			if _, err := client.DialContext(t.Context(), "tcp", u.Host); !errors.Is(err, ErrRefused) {
				t.Errorf("%s was dialled by the %s client: %v", host, name, err)
			}
		}
	}
	for _, host := range []string{"10.0.0.1", "127.0.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd00::1"} {
		if err := CheckMetadata(netip.MustParseAddr(host)); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// TestTrustedServiceAtAnAllowedMetadataAddress: the operator opens single addresses, to configured services alone.
func TestTrustedServiceAtAnAllowedMetadataAddress(t *testing.T) {
	options := Options{MetadataAddresses: []netip.Prefix{netip.MustParsePrefix("169.254.10.1/32")}, AllowPrivate: true}
	for host, allowed := range map[string]bool{"169.254.10.1": true, "[::ffff:169.254.10.1]": true, "169.254.10.2": false, "169.254.169.254": false} {
		u, err := url.Parse("http://" + host + ":8080/")
		if err != nil {
			t.Fatal(err)
		}
		if err := New(options).Trusting(u.Host).CheckTarget(t.Context(), u); (err == nil) != allowed {
			t.Errorf("%s of the operator: %v", host, err)
		}
		if err := New(options).CheckTarget(t.Context(), u); !errors.Is(err, ErrRefused) {
			t.Errorf("%s of others: %v", host, err)
		}
	}
}
