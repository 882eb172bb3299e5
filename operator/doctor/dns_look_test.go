package doctor

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// zone answers from texts; a name without an entry does not exist.
type zone struct {
	texts     map[string][]string
	servers   map[string]string
	addresses map[string]string
	aliases   map[string]string
}

func absent(name string) error {
	return &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

func (z zone) LookupTXT(_ context.Context, name string) ([]string, error) {
	if found, is := z.texts[name]; is {
		return found, nil
	}
	if name == "broken.example." {
		return nil, errors.New("the server does not answer")
	}
	return nil, absent(name)
}

func (z zone) LookupMX(_ context.Context, name string) ([]*net.MX, error) {
	if host, is := z.servers[name]; is {
		return []*net.MX{{Host: host}}, nil
	}
	return nil, absent(name)
}

func (z zone) LookupIPAddr(_ context.Context, name string) ([]net.IPAddr, error) {
	if address, is := z.addresses[name]; is {
		return []net.IPAddr{{IP: net.ParseIP(address)}}, nil
	}
	return nil, absent(name)
}

func (z zone) LookupCNAME(_ context.Context, name string) (string, error) {
	if target, is := z.aliases[name]; is {
		return target, nil
	}
	if _, is := z.addresses[name]; is {
		return name, nil
	}
	return "", absent(name)
}

// TestLookAt: what is in the place of a record, for each type.
func TestLookAt(t *testing.T) {
	t.Parallel()
	world := zone{
		texts: map[string][]string{
			"right.example.": {"google-site-verification=x", "v=spf1  a:mail.example -all"}, "other.example.": {"v=spf1 -all"},
			"two.example.": {"v=spf1 -all", "v=spf1 a:mail.example -all"}, "dmarc.example.": {"v=DMARC1;p=reject;rua=mailto:a@b.example;"},
		},
		servers:   map[string]string{"right.example.": "Mail.Example.", "other.example.": "mx.provider.example."},
		addresses: map[string]string{"mail.example.": "192.0.2.1", "www.example.": "192.0.2.1"},
		aliases:   map[string]string{"alias.example.": "www.example.", "astray.example.": "elsewhere.example."},
	}
	const spf = "v=spf1 a:mail.example -all"
	for _, test := range []struct {
		name, kind, value, state string
		found                    []string
	}{
		{"right.example", "TXT", spf, RecordRight, []string{"v=spf1  a:mail.example -all"}},
		{"other.example", "TXT", spf, RecordDiffers, []string{"v=spf1 -all"}},
		{"two.example", "TXT", spf, RecordDiffers, world.texts["two.example."]},
		{"none.example", "TXT", spf, RecordMissing, nil},
		{"broken.example", "TXT", spf, RecordUnknown, nil},
		{"dmarc.example", "TXT", "v=DMARC1; p=reject; rua=mailto:a@b.example", RecordRight, world.texts["dmarc.example."]},
		{"right.example", "MX", "10 mail.example.", RecordRight, []string{"Mail.Example."}},
		{"other.example", "MX", "10 mail.example.", RecordDiffers, []string{"mx.provider.example."}},
		{"none.example", "MX", "10 mail.example.", RecordMissing, nil},
		{"mail.example", "A", "<IPv4 address>", RecordRight, []string{"192.0.2.1"}},
		{"mail.example", "AAAA", "<IPv6 address>", RecordMissing, nil},
		{"alias.example", "CNAME", "www.example.", RecordRight, []string{"www.example."}},
		{"astray.example", "CNAME", "www.example.", RecordDiffers, []string{"elsewhere.example."}},
		{"www.example", "CNAME", "web.example.", RecordDiffers, []string{"192.0.2.1"}},
		{"none.example", "CNAME", "web.example.", RecordMissing, nil},
		{"right.example", "SRV", "0 0 25 mail.example.", RecordUnknown, nil},
	} {
		looked := lookAt(t.Context(), world, DNSRecord{Name: test.name, Type: test.kind, Value: test.value})
		if looked.State != test.state {
			t.Errorf("%s %s is %s (%s), want %s", test.name, test.kind, looked.State, looked.Reason, test.state)
		}
		if diff := cmp.Diff(test.found, looked.Found); diff != "" {
			t.Errorf("%s %s: %s", test.name, test.kind, diff)
		}
	}
}
