package email

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"blitiri.com.ar/go/spf"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
	"inbox/adapters/email/outbound"
)

// Results of a Finding.
const (
	FindingOK   = "ok"
	FindingWarn = "warn" // works, but not as well as it could
	FindingFail = "fail" // mail is lost or refused
)

// Finding is what a look at the world says about one thing.
type Finding struct {
	Name   string
	Status string // FindingOK, FindingWarn or FindingFail
	Detail string
	Remedy string // what to add or change; empty when all is well
}

const maxSPFLookups = 10 // RFC 7208, section 4.6.4

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// recordChecker compares what is published with what should be.
type recordChecker struct {
	dns   dns.Source
	want  Published
	found []Finding
}

// CheckRecords looks the records of a mail domain up, and reverse DNS of its server.
func CheckRecords(ctx context.Context, resolver dns.Source, want Published) []Finding {
	c := &recordChecker{dns: resolver, want: want}
	addresses := c.addresses(ctx)
	c.mx(ctx)
	c.spf(ctx, addresses)
	for _, selector := range sortedKeys(want.Keys) {
		c.dkim(ctx, selector)
	}
	c.dmarc(ctx)
	c.sts(ctx)
	c.single(ctx, "TLS-RPT", "_smtp._tls."+want.Domain, "v=TLSRPTv1", FindingWarn)
	c.reverse(ctx, addresses)
	return c.found
}

func (c *recordChecker) say(name, status, detail, remedy string) {
	c.found = append(c.found, Finding{name, status, message.Clip(detail, 400), remedy})
}

// record gives the record of a name and type that should be there, for the remedy.
func (c *recordChecker) record(name, kind string) string {
	for _, one := range Records(c.want) {
		if one.Name == name && one.Type == kind {
			return "add: " + strings.TrimPrefix(one.Zone(), "; ")
		}
	}
	return ""
}

func (c *recordChecker) addresses(ctx context.Context) []net.IPAddr {
	host := c.want.Hostname
	found, err := c.dns.LookupIPAddr(ctx, dns.Absolute(host))
	switch {
	case len(found) > 0:
		var texts []string
		for _, one := range found {
			texts = append(texts, one.String())
		}
		c.say("address of "+host, FindingOK, strings.Join(texts, ", "), "")
		c.noAlias(ctx, host)
	case dns.NotFound(err):
		c.say("address of "+host, FindingFail, "there is none: nobody can send mail here", c.record(host, "A"))
	default:
		c.say("address of "+host, FindingFail, fmt.Sprint("the resolver does not answer: ", err), "check dns.resolver")
	}
	return found
}

// noAlias checks that the mail server has addresses of its own: an MX record must not name an alias (RFC 2181, section
// 10.3).
func (c *recordChecker) noAlias(ctx context.Context, host string) {
	aliases, able := c.dns.(interface {
		LookupCNAME(ctx context.Context, host string) (string, error)
	})
	if !able {
		return
	}
	name, err := aliases.LookupCNAME(ctx, dns.Absolute(host))
	if err == nil && !strings.EqualFold(strings.TrimSuffix(name, "."), host) {
		c.say("alias "+host, FindingFail, "is a CNAME to "+name+", which the name in an MX record must not be", "replace the CNAME with address records")
	}
}

func (c *recordChecker) mx(ctx context.Context) {
	records, err := c.dns.LookupMX(ctx, dns.Absolute(c.want.Domain))
	var names []string
	ours := false
	for _, one := range records {
		name := strings.ToLower(strings.TrimSuffix(one.Host, "."))
		names = append(names, fmt.Sprint(one.Pref, " ", name))
		ours = ours || name == c.want.Hostname
	}
	switch remedy := c.record(c.want.Domain, "MX"); {
	case ours && len(records) == 1:
		c.say("MX", FindingOK, names[0], "")
	case ours:
		c.say("MX", FindingWarn, "there are others beside this server: "+strings.Join(names, ", "), "remove those that do not bring mail for the agents here, or use a subdomain for agents")
	case len(records) > 0:
		c.say("MX", FindingFail, "names other servers: "+strings.Join(names, ", "), remedy)
	case err == nil || dns.NotFound(err):
		c.say("MX", FindingFail, "there is none", remedy)
	default:
		c.say("MX", FindingFail, err.Error(), "check dns.resolver")
	}
}

// spf counts records and lookups and asks for a verdict about our own addresses, as a recipient would.
func (c *recordChecker) spf(ctx context.Context, addresses []net.IPAddr) {
	domain := c.want.Domain
	if !c.single(ctx, "SPF", domain, "v=spf1", FindingFail) {
		return
	}
	if count := c.spfLookups(ctx, domain, 0); count > maxSPFLookups {
		c.say("SPF lookups", FindingFail, fmt.Sprintf("%d, and recipients stop after %d", count, maxSPFLookups), "name addresses (ip4:, ip6:) instead of including records")
	}
	senders := addresses
	if c.want.Mode == ModeSmarthost {
		return // from which address it sends is the provider's secret
	}
	for _, address := range senders {
		result, err := spf.CheckHostWithSender(address.IP, c.want.Hostname, "postmaster@"+domain, spf.WithContext(ctx), spf.WithResolver(c.dns))
		if result != spf.Pass {
			c.say("SPF for "+address.String(), FindingFail, fmt.Sprintf("%s (%v)", result, err), c.record(domain, "TXT"))
		}
	}
}

// spfLookups counts the terms that cost a lookup, as far down as it matters.
func (c *recordChecker) spfLookups(ctx context.Context, domain string, depth int) (count int) {
	if depth > maxSPFLookups {
		return 0
	}
	texts, _ := c.dns.LookupTXT(ctx, dns.Absolute(domain))
	for _, text := range texts {
		if !recordOf(text, "v=spf1") {
			continue
		}
		for _, term := range strings.Fields(strings.ToLower(text))[1:] {
			term = strings.TrimLeft(term, "+-~?")
			name, rest, _ := strings.Cut(term, ":")
			if target, is := strings.CutPrefix(term, "redirect="); is {
				name, rest = "include", target
			}
			switch name, _, _ = strings.Cut(name, "/"); name {
			case "include":
				count += 1 + c.spfLookups(ctx, rest, depth+1)
			case "a", "mx", "ptr", "exists":
				count++
			}
			if count > 2*maxSPFLookups {
				return count
			}
		}
	}
	return count
}

// recordOf says whether a text is a record of the version, which ends at a blank or a semicolon.
func recordOf(text, version string) bool {
	rest, is := strings.CutPrefix(text, version)
	return is && (rest == "" || strings.ContainsAny(rest[:1], " ;\t"))
}

// single finds exactly one TXT record of the version.
func (c *recordChecker) single(ctx context.Context, what, name, version, missing string) bool {
	texts, err := c.dns.LookupTXT(ctx, dns.Absolute(name))
	var found []string
	for _, text := range texts {
		if recordOf(text, version) {
			found = append(found, text)
		}
	}
	switch {
	case len(found) == 1:
		c.say(what, FindingOK, found[0], "")
		return true
	case len(found) > 1:
		c.say(what, FindingFail, fmt.Sprintf("%d records at %s: recipients take none of them", len(found), name), "leave one of them")
	case err == nil || dns.NotFound(err):
		c.say(what, missing, "no record at "+name, c.record(name, "TXT"))
	default:
		c.say(what, FindingFail, err.Error(), "check dns.resolver")
	}
	return false
}

func (c *recordChecker) dkim(ctx context.Context, selector string) {
	name, want := DNSRecord(c.want.Domain, selector, c.want.Keys[selector])
	texts, err := c.dns.LookupTXT(ctx, name+".")
	what, remedy := "DKIM "+selector, c.record(name, "TXT")
	switch {
	case err != nil && !dns.NotFound(err):
		c.say(what, FindingFail, err.Error(), "check dns.resolver")
	case len(texts) == 0:
		c.say(what, FindingFail, "no record at "+name+": no answer can be proven to be yours", remedy)
	case len(texts) > 1:
		c.say(what, FindingFail, fmt.Sprintf("%d records at %s", len(texts), name), "leave the one of this server")
	case dns.Tags(texts[0])["p"] != dns.Tags(want)["p"]:
		c.say(what, FindingFail, "the published key is another one than this server signs with", remedy)
	default:
		c.say(what, FindingOK, "the published key is ours", "")
	}
}

func (c *recordChecker) dmarc(ctx context.Context) {
	name := "_dmarc." + c.want.Domain
	if !c.single(ctx, "DMARC", name, "v=DMARC1", FindingFail) {
		return
	}
	texts, _ := c.dns.LookupTXT(ctx, name+".")
	for _, text := range texts {
		if recordOf(text, "v=DMARC1") && strings.EqualFold(dns.Tags(text)["p"], "none") {
			c.say("DMARC policy", FindingWarn, "p=none lets anybody write under your domain", c.record(name, "TXT"))
		}
	}
}

func (c *recordChecker) sts(ctx context.Context) {
	if c.want.PolicyMode == "" || c.want.PolicyMode == outbound.PolicyNone {
		return
	}
	name := "_mta-sts." + c.want.Domain
	texts, err := c.dns.LookupTXT(ctx, name+".")
	_, want := outbound.PolicyFile(c.want.PolicyMode, c.want.Hostname)
	switch id := outbound.PolicyID(texts); {
	case err != nil && !dns.NotFound(err):
		c.say("MTA-STS", FindingWarn, err.Error(), "check dns.resolver")
	case id == "":
		c.say("MTA-STS", FindingWarn, "no usable record at "+name, c.record(name, "TXT"))
	case id != want:
		c.say("MTA-STS", FindingWarn, "the record has another id than the policy: others keep the old policy", c.record(name, "TXT"))
	default:
		c.say("MTA-STS", FindingOK, "id "+id, "")
	}
}

// reverse checks that the names of our addresses lead back to them (RFC 1912, section 2.1); large providers refuse mail
// otherwise.
func (c *recordChecker) reverse(ctx context.Context, addresses []net.IPAddr) {
	if c.want.Mode == ModeSmarthost {
		return
	}
	for _, address := range addresses {
		names, err := c.dns.LookupAddr(ctx, address.String())
		found := slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(strings.TrimSuffix(name, "."), c.want.Hostname) })
		switch {
		case found:
			c.say("reverse DNS of "+address.String(), FindingOK, c.want.Hostname, "")
		case len(names) > 0:
			c.say("reverse DNS of "+address.String(), FindingWarn, "is "+strings.Join(names, ", "), "ask your provider to set it to "+c.want.Hostname)
		default:
			c.say("reverse DNS of "+address.String(), FindingWarn, fmt.Sprint("there is none: ", err), "ask your provider to set it to "+c.want.Hostname)
		}
	}
}
