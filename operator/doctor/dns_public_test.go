package doctor_test

import (
	"net/netip"
	"reflect"
	"testing"

	"inbox"
	"inbox/operator/doctor"
)

func TestPublicAddresses(t *testing.T) {
	var interfaces []netip.Prefix
	for _, text := range []string{
		"127.0.0.1/8", "::1/128", "10.1.2.3/8", "192.168.0.2/24", "172.20.0.1/16", "100.64.0.9/10", "169.254.1.1/16", "fe80::1/64", "fd00::5/64", "192.0.2.2/24", "198.18.0.1/15",
		"2001:db8::1/32", "224.0.0.1/4", "2a00:1450::5/64", "8.8.4.4/24", "8.8.4.4/32",
	} {
		interfaces = append(interfaces, netip.MustParsePrefix(text))
	}
	got := doctor.PublicAddresses(interfaces)
	if len(got) != 2 || got[0].String() != "8.8.4.4" || got[1].String() != "2a00:1450::5" {
		t.Errorf("%v", got)
	}
}

// TestPublicRecords: the addresses of this machine stand at every name of the server, and what is not known is left to fill in.
func TestPublicRecords(t *testing.T) {
	config := &inbox.Config{Domain: "agents.example", PublicURL: "https://www.agents.example"}
	config.SMTP.Listen, config.SMTP.Hostname = ":25", "mx.agents.example"
	records := []doctor.DNSRecord{
		{Name: "mx.agents.example", Type: "A", Value: "<IPv4 address>"}, {Name: "mx.agents.example", Type: "AAAA", Value: "<IPv6 address>"},
		{Name: "_dmarc.agents.example", Type: "TXT", Value: "v=DMARC1; p=reject"},
	}

	for _, c := range []struct {
		addresses []netip.Addr
		want      []string // of each of the three names
	}{
		{nil, []string{"A <IPv4 address>"}},
		{[]netip.Addr{netip.MustParseAddr("9.9.9.9"), netip.MustParseAddr("2620:fe::9")}, []string{"A 9.9.9.9", "AAAA 2620:fe::9"}},
	} {
		got := map[string][]string{}
		for _, one := range doctor.PublicRecords(records, config, c.addresses) {
			got[one.Name] = append(got[one.Name], one.Type+" "+one.Value)
		}
		want := map[string][]string{"_dmarc.agents.example": {"TXT v=DMARC1; p=reject"}}
		for _, host := range []string{"agents.example", "www.agents.example", "mx.agents.example"} {
			want[host] = c.want
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("with %v: %v, want %v", c.addresses, got, want)
		}
	}
}
