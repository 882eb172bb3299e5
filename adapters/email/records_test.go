package email

import (
	"crypto"
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/outbound"
	"inbox/internal/safehttp"
)

func ownPublished() Published {
	return Published{
		Domain: "inbox.test", Hostname: "mx.inbox.test", Mode: ModeMX, WebHost: "www.inbox.test", PolicyMode: outbound.PolicyTesting, Reports: "ops@inbox.test",
		Keys: map[string]crypto.Signer{"s1": emailtest.SenderKey(), "s2": ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))},
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
			_, value := DNSRecord("inbox.test", "s1", emailtest.SenderKey())
			if strings.Join(text.Txt, "") != value || len(text.Txt) < 2 {
				t.Errorf("the key in the zone is %q", text.Txt)
			}
		}
	}
	if err := parser.Err(); err != nil || parsed != len(want)-2 {
		t.Errorf("%d records, %v", parsed, err)
	}
}

// TestReportsGoWhereTheyAreTaken: an address of the domain needs no further record, one elsewhere needs one there.
func TestReportsGoWhereTheyAreTaken(t *testing.T) {
	for reports, want := range map[string]string{"": "", "dmarc@inbox.test": "", "dmarc@reports.example": "inbox.test._report._dmarc.reports.example"} {
		published := ownPublished()
		published.Reports = reports
		found := ""
		for _, one := range Records(published) {
			if strings.Contains(one.Name, "._report.") {
				found = one.Name
			}
		}
		if found != want {
			t.Errorf("reports to %q need %q; want %q", reports, found, want)
		}
	}
}

func TestCheckRecords(t *testing.T) {
	want := ownPublished()
	good := func(n *emailtest.NameServer) {
		n.Host("mx.inbox.test", "192.0.2.25")
		n.MX("inbox.test", "10 mx.inbox.test")
		n.Pointer("192.0.2.25", "mx.inbox.test")
		for _, one := range Records(want) {
			if one.Type == "TXT" {
				n.Text(one.Name, one.Value)
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*emailtest.NameServer)
		line   string // "status name" of the one finding that is not ok; empty = all are
		detail string
	}{
		"all well":        {func(*emailtest.NameServer) {}, "", ""},
		"no address":      {func(n *emailtest.NameServer) { n.Drop("mx.inbox.test") }, "fail address of mx.inbox.test", "none"},
		"other MX":        {func(n *emailtest.NameServer) { n.MX("inbox.test", "10 elsewhere.test") }, "fail MX", "10 elsewhere.test"},
		"more MX":         {func(n *emailtest.NameServer) { n.MX("inbox.test", "10 mx.inbox.test", "20 b.test") }, "warn MX", "20 b.test"},
		"two SPF records": {func(n *emailtest.NameServer) { n.Text("inbox.test", "v=spf1 -all", "v=spf1 a:mx.inbox.test -all") }, "fail SPF", "2 records"},
		"SPF without us":  {func(n *emailtest.NameServer) { n.Text("inbox.test", "v=spf1 -all") }, "fail SPF for 192.0.2.25", "fail"},
		"SPF beside others": {func(n *emailtest.NameServer) {
			n.Text("inbox.test", "v=spf1 a:mx.inbox.test -all", "some-verification=1")
		}, "", ""},
		"SPF with 11 lookups": {func(n *emailtest.NameServer) {
			n.Text("inbox.test", "v=spf1 ip4:192.0.2.25"+strings.Repeat(" a:mx.inbox.test", 11)+" -all")
		}, "fail SPF lookups", "11"},
		"no key": {func(n *emailtest.NameServer) { n.Drop("s1._domainkey.inbox.test") }, "fail DKIM s1", "no record"},
		"another key": {func(n *emailtest.NameServer) {
			n.Text("s2._domainkey.inbox.test", "v=DKIM1; k=ed25519; p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
		}, "fail DKIM s2", "another one"},
		"the key written otherwise": {func(n *emailtest.NameServer) {
			_, value := DNSRecord("inbox.test", "s1", emailtest.SenderKey())
			n.Text("s1._domainkey.inbox.test", "k=rsa;t=s; "+strings.TrimPrefix(value, "v=DKIM1; k=rsa; "))
		}, "", ""},
		"no DMARC":          {func(n *emailtest.NameServer) { n.Drop("_dmarc.inbox.test") }, "fail DMARC", "no record"},
		"DMARC with p=none": {func(n *emailtest.NameServer) { n.Text("_dmarc.inbox.test", "v=DMARC1; p=none") }, "warn DMARC policy", "p=none"},
		"old MTA-STS id":    {func(n *emailtest.NameServer) { n.Text("_mta-sts.inbox.test", "v=STSv1; id=old") }, "warn MTA-STS", "another id"},
		"no MTA-STS":        {func(n *emailtest.NameServer) { n.Drop("_mta-sts.inbox.test") }, "warn MTA-STS", "no usable"},
		"no TLS-RPT":        {func(n *emailtest.NameServer) { n.Drop("_smtp._tls.inbox.test") }, "warn TLS-RPT", "no record"},
		"no reverse DNS":    {func(n *emailtest.NameServer) { n.Pointer("192.0.2.25", "") }, "warn reverse DNS of 192.0.2.25", "none"},
		"wrong reverse DNS": {func(n *emailtest.NameServer) { n.Pointer("192.0.2.25", "vps7.provider.test") }, "warn reverse DNS of 192.0.2.25", "vps7"},
	} {
		t.Run(name, func(t *testing.T) {
			names := emailtest.StartNames(t)
			good(names)
			c.change(names)
			hit := false
			for _, one := range CheckRecords(t.Context(), safehttp.NewResolver(names.Address), want) {
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
