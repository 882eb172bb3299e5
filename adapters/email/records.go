package email

import (
	"cmp"
	"crypto"
	"fmt"
	"strings"

	"inbox/adapters/email/outbound"
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
}

// Records gives the records of a mail domain (reference: RFC 5321, 7208, 6376, 9989, 8461, 8460), addresses first.
func Records(p Published) []Record {
	records := []Record{
		{p.Hostname, "A", "<IPv4 address>", "the public address of this server; it needs reverse DNS to " + p.Hostname},
		{p.Hostname, "AAAA", "<IPv6 address>", "only if mail may come and go over IPv6; with reverse DNS, too"},
		{p.Domain, "MX", "10 " + p.Hostname + ".", "mail for the agents comes here"},
		{p.Domain, "TXT", p.spf(), "SPF: who sends for the domain; one such record only"},
	}
	if p.Hostname != p.Domain && p.Mode != ModeSmarthost {
		records = append(records, Record{p.Hostname, "TXT", "v=spf1 a -all", "SPF of the name that the server greets with"})
	}
	for _, selector := range sortedKeys(p.Keys) {
		name, value := DNSRecord(p.Domain, selector, p.Keys[selector])
		records = append(records, Record{name, "TXT", value, "DKIM: the key that signs"})
	}
	reports := cmp.Or(p.Reports, "postmaster@"+p.Domain)
	records = append(records, Record{"_dmarc." + p.Domain, "TXT", "v=DMARC1; p=reject; rua=mailto:" + reports,
		"DMARC; begin with p=none where people write under the domain as well"})
	if p.PolicyMode != "" && p.PolicyMode != outbound.PolicyNone {
		_, id := outbound.PolicyFile(p.PolicyMode, p.Hostname)
		records = append(records,
			Record{"_mta-sts." + p.Domain, "TXT", "v=STSv1; id=" + id, "MTA-STS: announces the policy file; its id changes with the policy"},
			Record{"mta-sts." + p.Domain, "CNAME", p.WebHost + ".", "where the policy file is served; the certificate must have this name, too"})
	}
	return append(records, Record{"_smtp._tls." + p.Domain, "TXT", "v=TLSRPTv1; rua=mailto:" + reports, "TLS-RPT: where others report trouble with TLS; this server sends no reports itself"})
}

func (p Published) spf() string {
	if p.Mode == ModeSmarthost && p.Smarthost != "" {
		return "v=spf1 a:" + p.Smarthost + " -all"
	}
	return "v=spf1 a:" + p.Hostname + " -all"
}
