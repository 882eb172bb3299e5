package email

import (
	"cmp"
	"context"
	"crypto"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"blitiri.com.ar/go/spf"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
	"inbox/adapters/email/outbound"
	"inbox/internal/fault"
)

// Record is one DNS record that the operator publishes.
type Record struct {
	Name  string // without the final dot
	Type  string
	Value string // TXT in one piece; see Record.Zone
	Note  string // what it is for, or what to put in the place of <…>
}

// Zone is the record as a line of a zone file (RFC 1035, section 5.1); one whose value only the operator knows is a comment.
func (r Record) Zone() string {
	value := r.Value
	if r.Type == "TXT" {
		value = quotedStrings(value)
	}
	line := fmt.Sprintf("%s.\t3600\tIN\t%s\t%s", r.Name, r.Type, value)
	if strings.Contains(r.Value, "<") {
		return "; " + line + "  ; " + r.Note
	}
	return line
}

// quotedStrings cuts a text into the strings of at most 255 bytes that one TXT record holds (RFC 1035, section 3.3.14).
func quotedStrings(text string) string {
	var pieces []string
	for len(text) > 255 {
		pieces, text = append(pieces, text[:255]), text[255:]
	}
	pieces = append(pieces, text)
	for i, piece := range pieces {
		pieces[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(piece) + `"`
	}
	return strings.Join(pieces, " ")
}

// Published is what the records of a mail domain follow from.
type Published struct {
	Domain     string                   // ours, without a port
	Hostname   string                   // of the mail server
	Mode       string                   // of sending
	Smarthost  string                   // its host, with ModeSmarthost
	WebHost    string                   // that serves the MTA-STS policy file
	Keys       map[string]crypto.Signer // by selector
	PolicyMode string                   // of MTA-STS
	Reports    string                   // address for reports of others
	SharesHost bool                     // Hostname is that of another domain of the server, which has its records
}

// Records returns the records of a mail domain (reference: RFC 5321, 7208, 6376, 9989, 8461, 8460), addresses first.
func Records(p Published) []Record {
	records := []Record{
		{p.Hostname, "A", "<IPv4 address>", "the public address of this server; it needs reverse DNS to " + p.Hostname},
		{p.Hostname, "AAAA", "<IPv6 address>", "only if mail may come and go over IPv6; with reverse DNS, too"},
		{p.Domain, "MX", "10 " + p.Hostname + ".", "mail for the agents comes here"},
		{p.Domain, "TXT", p.spf(), "SPF: who sends for the domain; one such record only"},
	}

	if p.SharesHost {
		records = records[2:]
	} else if p.Hostname != p.Domain && p.Mode != ModeSmarthost {
		records = append(records, Record{p.Hostname, "TXT", "v=spf1 a -all", "SPF of the name that the server greets with"})
	}

	for _, selector := range sortedKeys(p.Keys) {
		name, value := DNSRecord(p.Domain, selector, p.Keys[selector])
		records = append(records, Record{name, "TXT", value, "DKIM: the key that signs"})
	}

	reports := cmp.Or(p.Reports, "postmaster@"+p.Domain)
	records = append(records, Record{"_dmarc." + p.Domain, "TXT", "v=DMARC1; p=reject; rua=mailto:" + reports,
		"DMARC; begin with p=none where people write under the domain as well"})
	if elsewhere := reportsDomain(reports); elsewhere != p.Domain {
		records = append(records, Record{p.Domain + "._report._dmarc." + elsewhere, "TXT", "v=DMARC1", // RFC 9990, section 4; RFC 7489, section 7.1
			"DMARC: says in the zone of " + elsewhere + " that it takes these reports; this server does not see them"})
	}
	if p.PolicyMode != "" && p.PolicyMode != outbound.PolicyNone {
		_, id := outbound.PolicyFile(p.PolicyMode, p.Hostname)
		records = append(records,
			Record{"_mta-sts." + p.Domain, "TXT", "v=STSv1; id=" + id, "MTA-STS: announces the policy file; its id changes with the policy"},
			Record{"mta-sts." + p.Domain, "CNAME", p.WebHost + ".", "where the policy file is served; the certificate must have this name, too"})
	}

	return append(records, Record{"_smtp._tls." + p.Domain, "TXT", "v=TLSRPTv1; rua=mailto:" + reports, "TLS-RPT: where others report trouble with TLS; this server sends no reports itself"})
}

// reportsDomain is the domain of the address for reports.
func reportsDomain(address string) string {
	return strings.ToLower(address[strings.LastIndexByte(address, '@')+1:])
}

func (p Published) spf() string {
	if p.Mode == ModeSmarthost && p.Smarthost != "" {
		return "v=spf1 a:" + p.Smarthost + " -all"
	}
	return "v=spf1 a:" + p.Hostname + " -all"
}

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

// record returns the record of a name and type that should be there, for the remedy.
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
		c.say("address of "+host, FindingFail, "there is none: no server can send mail here", c.record(host, "A"))
	default:
		c.say("address of "+host, FindingFail, fault.InWords(err), "check dns.resolver")
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
		c.say("MX", FindingFail, fault.InWords(err), "check dns.resolver")
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
			c.say("SPF for "+address.String(), FindingFail, fmt.Sprintf("%s (%s)", result, fault.InWords(err)), c.record(domain, "TXT"))
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

// recordOf reports whether a text is a record of the version, which ends at a blank or a semicolon.
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
		c.say(what, FindingFail, fault.InWords(err), "check dns.resolver")
	}

	return false
}

func (c *recordChecker) dkim(ctx context.Context, selector string) {
	name, want := DNSRecord(c.want.Domain, selector, c.want.Keys[selector])
	texts, err := c.dns.LookupTXT(ctx, name+".")
	what, remedy := "DKIM "+selector, c.record(name, "TXT")
	switch {
	case err != nil && !dns.NotFound(err):
		c.say(what, FindingFail, fault.InWords(err), "check dns.resolver")
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
			c.say("DMARC policy", FindingWarn, "p=none lets anyone write under your domain", c.record(name, "TXT"))
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
		c.say("MTA-STS", FindingWarn, fault.InWords(err), "check dns.resolver")
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
			c.say("reverse DNS of "+address.String(), FindingWarn, "there is none: "+fault.InWords(err), "ask your provider to set it to "+c.want.Hostname)
		}
	}
}
