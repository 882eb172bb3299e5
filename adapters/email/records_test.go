package email

import (
	"crypto"
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"inbox/internal/safehttp"
)

func ownPublished() Published {
	return Published{
		Domain: "inbox.test", Hostname: "mx.inbox.test", Mode: ModeMX, WebHost: "www.inbox.test", PolicyMode: stsTesting, Reports: "ops@inbox.test",
		Keys: map[string]crypto.Signer{"s1": senderKey(), "s2": ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))},
	}
}

func TestRecordsAreAZone(t *testing.T) {
	var zone, kinds []string
	for _, one := range Records(ownPublished()) {
		zone = append(zone, one.Zone())
		kinds = append(kinds, one.Name+" "+one.Type)
	}
	want := []string{
		"mx.inbox.test A", "mx.inbox.test AAAA", "inbox.test MX", "inbox.test TXT", "mx.inbox.test TXT", "s1._domainkey.inbox.test TXT",
		"s2._domainkey.inbox.test TXT", "_dmarc.inbox.test TXT", "_mta-sts.inbox.test TXT", "mta-sts.inbox.test CNAME", "_smtp._tls.inbox.test TXT",
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	parser := dns.NewZoneParser(strings.NewReader(strings.Join(zone, "\n")+"\n"), "", "")
	parsed := 0
	for record, ok := parser.Next(); ok; record, ok = parser.Next() {
		parsed++
		if text, is := record.(*dns.TXT); is && strings.HasPrefix(record.Header().Name, "s1.") {
			_, value := DNSRecord("inbox.test", "s1", senderKey())
			if strings.Join(text.Txt, "") != value || len(text.Txt) < 2 {
				t.Errorf("the key in the zone is %q", text.Txt)
			}
		}
	}
	if err := parser.Err(); err != nil || parsed != len(want)-2 {
		t.Errorf("%d records, %v", parsed, err)
	}
}

func TestCheckRecords(t *testing.T) {
	want := ownPublished()
	good := func(n *nameServer) {
		n.host("mx.inbox.test", "192.0.2.25")
		n.mx("inbox.test", "10 mx.inbox.test")
		n.pointer("192.0.2.25", "mx.inbox.test")
		for _, one := range Records(want) {
			if one.Type == "TXT" {
				n.text(one.Name, one.Value)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*nameServer)
		line   string // "status name" of the one finding that is not ok; empty = all are
		detail string
	}{
		"all well":          {func(*nameServer) {}, "", ""},
		"no address":        {func(n *nameServer) { n.drop("mx.inbox.test") }, "fail address of mx.inbox.test", "none"},
		"other MX":          {func(n *nameServer) { n.mx("inbox.test", "10 elsewhere.test") }, "fail MX", "10 elsewhere.test"},
		"more MX":           {func(n *nameServer) { n.mx("inbox.test", "10 mx.inbox.test", "20 b.test") }, "warn MX", "20 b.test"},
		"two SPF records":   {func(n *nameServer) { n.text("inbox.test", "v=spf1 -all", "v=spf1 a:mx.inbox.test -all") }, "fail SPF", "2 records"},
		"SPF without us":    {func(n *nameServer) { n.text("inbox.test", "v=spf1 -all") }, "fail SPF for 192.0.2.25", "fail"},
		"SPF beside others": {func(n *nameServer) { n.text("inbox.test", "v=spf1 a:mx.inbox.test -all", "some-verification=1") }, "", ""},
		"SPF with 11 lookups": {func(n *nameServer) {
			n.text("inbox.test", "v=spf1 ip4:192.0.2.25"+strings.Repeat(" a:mx.inbox.test", 11)+" -all")
		}, "fail SPF lookups", "11"},
		"no key": {func(n *nameServer) { n.drop("s1._domainkey.inbox.test") }, "fail DKIM s1", "no record"},
		"another key": {func(n *nameServer) {
			n.text("s2._domainkey.inbox.test", "v=DKIM1; k=ed25519; p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
		}, "fail DKIM s2", "another one"},
		"the key written otherwise": {func(n *nameServer) {
			_, value := DNSRecord("inbox.test", "s1", senderKey())
			n.text("s1._domainkey.inbox.test", "k=rsa;t=s; "+strings.TrimPrefix(value, "v=DKIM1; k=rsa; "))
		}, "", ""},
		"no DMARC":          {func(n *nameServer) { n.drop("_dmarc.inbox.test") }, "fail DMARC", "no record"},
		"DMARC with p=none": {func(n *nameServer) { n.text("_dmarc.inbox.test", "v=DMARC1; p=none") }, "warn DMARC policy", "p=none"},
		"old MTA-STS id":    {func(n *nameServer) { n.text("_mta-sts.inbox.test", "v=STSv1; id=old") }, "warn MTA-STS", "another id"},
		"no MTA-STS":        {func(n *nameServer) { n.drop("_mta-sts.inbox.test") }, "warn MTA-STS", "no usable"},
		"no TLS-RPT":        {func(n *nameServer) { n.drop("_smtp._tls.inbox.test") }, "warn TLS-RPT", "no record"},
		"no reverse DNS":    {func(n *nameServer) { n.pointer("192.0.2.25", "") }, "warn reverse DNS of 192.0.2.25", "none"},
		"wrong reverse DNS": {func(n *nameServer) { n.pointer("192.0.2.25", "vps7.provider.test") }, "warn reverse DNS of 192.0.2.25", "vps7"},
	} {
		t.Run(name, func(t *testing.T) {
			names := startNames(t)
			good(names)
			c.change(names)
			hit := false
			for _, one := range CheckRecords(t.Context(), safehttp.NewResolver(names.address), want) {
				line := one.Status + " " + one.Name
				switch {
				case line == c.line && strings.Contains(one.Detail, c.detail) && one.Remedy != "":
					hit = true
				case one.Status != FindingOK && c.line != "fail address of mx.inbox.test": // without an address much fails
					t.Errorf("%s: %s", line, one.Detail)
				}
			}
			if hit != (c.line != "") {
				t.Errorf("want %q", c.line)
			}
		})
	}
}
