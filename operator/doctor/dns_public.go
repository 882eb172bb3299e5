package doctor

import (
	"net/netip"
	"slices"
	"strings"

	"inbox/identity"
	"inbox/internal/config"
)

// PublicAddresses returns the addresses of this machine's interfaces that other networks reach; none behind NAT.
func PublicAddresses(interfaces []netip.Prefix) []netip.Addr {
	var found []netip.Addr
	for _, one := range interfaces {
		address := one.Addr().Unmap().WithZone("")
		if IsPublic(address) && !slices.Contains(found, address) {
			found = append(found, address)
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return found
}

// notPublic are networks that IsGlobalUnicast and IsPrivate of netip let pass (RFC 6890, 6598, 5737, 3849).
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("fec0::/10"),
}

// IsPublic reports whether other networks can reach an address.
func IsPublic(address netip.Addr) bool {
	return address.IsGlobalUnicast() && !address.IsPrivate() &&
		!slices.ContainsFunc(notPublic, func(network netip.Prefix) bool { return network.Contains(address) })
}

// Step is one step of the DMARC policy.
type Step struct {
	Policy string `json:"policy"`
	Record string `json:"record"` // value of the TXT record at _dmarc.domain
	When   string `json:"when"`   // to go to it
}

// DMARCSteps are the three policies in the order in which a domain goes to them (RFC 9989, section 5.1); none without such a record.
func DMARCSteps(records []DNSRecord) []Step {
	index := slices.IndexFunc(records, func(r DNSRecord) bool { return strings.HasPrefix(r.Name, "_dmarc.") })
	if index < 0 {
		return []Step{}
	}

	steps := []Step{
		{Policy: "none", When: "now: others report what they see of your domain, and refuse nothing for it"},
		{Policy: "quarantine", When: "after two weeks in which inbox dns check is ok and no report names your mail as failing"},
		{Policy: "reject", When: "after two more weeks without such a report; at once where only agents write under the domain"},
	}
	for i := range steps {
		steps[i].Record = strings.Replace(records[index].Value, "p=reject", "p="+steps[i].Policy, 1)
	}
	return steps
}

// FirstRecords are the records of a first start: those of PublicRecords, with DMARC at its first step.
func FirstRecords(records []DNSRecord, c *config.Config, addresses []netip.Addr) []DNSRecord {
	list := PublicRecords(records, c, addresses)
	for i, record := range list {
		if strings.HasPrefix(record.Name, "_dmarc.") {
			list[i] = newRecord(record.Name, record.Type, DMARCSteps(records)[0].Record, "DMARC; the first of three steps")
		}
	}
	return list
}

// PublicRecords are the records of mail with the machine's addresses in the place of <…>, and the addresses of every name under which the
// server is reached. Without addresses they stay <…>.
func PublicRecords(records []DNSRecord, c *config.Config, addresses []netip.Addr) []DNSRecord {
	const whole = "the public address of this server"
	hosts := []string{c.PublicHost()}
	if c.Apex != config.ApexElsewhere {
		hosts = append(hosts, identity.HostOf(c.Domain))
	}
	if c.SMTP.Listen != "" {
		hosts = append(hosts, c.SMTP.Hostname)
	}
	slices.Sort(hosts)

	var list []DNSRecord
	for _, host := range slices.Compact(hosts) {
		if len(addresses) == 0 {
			list = append(list, newRecord(host, "A", "<IPv4 address>", whole))
		}
		for _, address := range addresses {
			kind := "A"
			if address.Is6() {
				kind = "AAAA"
			}
			list = append(list, newRecord(host, kind, address.String(), whole))
		}
	}

	for _, record := range records {
		if record.Type != "A" && record.Type != "AAAA" {
			list = append(list, record)
		}
	}
	return list
}
