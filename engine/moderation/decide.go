package moderation

import (
	"slices"
	"strings"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// Codes of a Verdict, as audit records carry them. "block:" is followed by the kind of the entry.
const (
	CodeBlock     = "block:"
	CodeNotListed = "allowlist:not_listed"
	CodeUnproven  = "allowlist:unproven"
)

// Verdict is what the lists say about someone. The zero value lets them in.
type Verdict struct {
	Effect string // exchange.EffectRefuse or EffectHold; empty = let in
	Code   string
	Reason string // for the operator
}

// Refused reports whether nothing is taken from them and nothing sent to them.
func (v Verdict) Refused() bool { return v.Effect == exchange.EffectRefuse }

func verdictOf(e exchange.ListEntry) Verdict {
	reason := "blocked by the operator: " + e.Target
	if e.Reason != "" {
		reason += " (" + e.Reason + ")"
	}
	return Verdict{Effect: e.Effect, Code: CodeBlock + e.Kind, Reason: reason}
}

// Host says what the lists say about a host, with or without a port. A host where someone lives who is allowed by name
// is not refused: who else comes from there is decided when they are known.
func (l *Lists) Host(host string) Verdict {
	canonical, err := identity.ParseDomain(host)
	if err != nil {
		return Verdict{Effect: exchange.EffectRefuse, Code: CodeBlock + exchange.TargetHost, Reason: "not a host"}
	}
	canonical = withoutWebPort(canonical)

	l.table.RLock()
	defer l.table.RUnlock()

	if l.own(canonical) || l.table.guests[canonical] > 0 {
		return Verdict{}
	}
	return l.host(canonical, true)
}

// host decides by host entries alone; the caller holds the lock.
func (l *Lists) host(host string, mustBeListed bool) Verdict {
	blocked, rank := l.table.block.host(host)
	_, allowed := l.table.allow.host(host)
	switch {
	case rank > rankNone && rank >= allowed:
		return verdictOf(blocked)
	case allowed == rankNone && mustBeListed && l.options.OnlyAllowed:
		return notListed(host)
	}
	return Verdict{}
}

func notListed(who string) Verdict {
	return Verdict{Effect: exchange.EffectRefuse, Code: CodeNotListed, Reason: who + ` is not on the allow list, and federation.mode is "allowlist"`}
}

// own reports whether a host is this server.
func (l *Lists) own(host string) bool {
	return host == l.options.Domain || identity.HostOf(host) == l.options.Domain || l.options.Hosts[host]
}

// Actor says what the lists say about someone who claims to be an actor, before anything is known but the claim.
func (l *Lists) Actor(subject string) Verdict {
	l.table.RLock()
	claimed := identity.Evidence{Subject: subject, Issuer: l.options.Domain}
	blocked, rank := l.table.block.identity(&claimed)
	_, allowed := l.table.allow.identity(&claimed)
	l.table.RUnlock()

	switch {
	case rank > rankNone:
		return verdictOf(blocked)
	case allowed > rankNone:
		return Verdict{}
	}

	if host := subjectHost(subject); host != "" {
		return l.Host(host)
	}

	return Verdict{}
}

// Address says what the lists say about an address as it is stated: of someone to whom we write, or who claims it.
func (l *Lists) Address(text string) Verdict {
	address, err := identity.ParseAddress(text)
	if err != nil {
		return Verdict{}
	}
	l.table.RLock()
	defer l.table.RUnlock()
	return l.address(address, true)
}

// NamesLocal reports whether a list has an address with this local part, on whatever domain.
func (l *Lists) NamesLocal(local string) bool {
	l.table.RLock()
	defer l.table.RUnlock()
	for _, list := range []index{l.table.allow, l.table.block} {
		for target := range list[exchange.TargetAddress] {
			if address, err := identity.ParseAddress(target); err == nil && strings.EqualFold(address.Local, local) {
				return true
			}
		}
	}
	return false
}

func (l *Lists) address(address identity.Address, mayBeAllowed bool) Verdict {
	canonical := canonicalAddress(address)
	blocked, rank := l.table.block.address(canonical)
	_, allowed := l.table.allow.address(canonical)
	switch {
	case rank > rankNone:
		return verdictOf(blocked)
	case allowed > rankNone && mayBeAllowed, l.own(address.Domain):
		return Verdict{}
	}
	return l.host(address.Domain, mayBeAllowed)
}

// Sender says what the lists say about the sender of a message. Entries that block believe whatever is stated: a lie may
// only harm the liar. Entries that allow want evidence. The narrowest entry decides: actor or principal, address, host.
func (l *Lists) Sender(sender normalized.Sender) Verdict {
	l.table.RLock()
	defer l.table.RUnlock()

	if len(l.table.byID) == 0 && !l.options.OnlyAllowed {
		return Verdict{}
	}

	addresses := claimed(sender)
	allowed, verdict := l.named(sender, addresses)
	if verdict.Effect != "" || allowed {
		return verdict
	}

	hosts := l.hostsOf(sender, addresses)
	for _, host := range hosts {
		if found := l.host(host, false); found.Effect != "" && !verdict.Refused() {
			verdict = found
		}
	}

	if verdict.Refused() || !l.options.OnlyAllowed {
		return verdict
	}
	if listed := l.listed(sender); listed.Effect != "" {
		return listed
	}

	return verdict
}

// named looks for entries that name the sender: by evidence, then by address.
func (l *Lists) named(sender normalized.Sender, addresses []identity.Address) (allowed bool, verdict Verdict) {
	for i := range sender.Identities {
		if found, rank := l.table.block.identity(&sender.Identities[i]); rank > rankNone {
			return false, verdictOf(found)
		}
		_, rank := l.table.allow.identity(&sender.Identities[i])
		allowed = allowed || rank > rankNone
	}

	if found, rank := l.table.block.principal(sender.Principal()); rank > rankNone { // also of senders without evidence
		return false, verdictOf(found)
	}
	if allowed {
		return true, Verdict{}
	}

	for _, address := range addresses {
		if found, rank := l.table.block.address(canonicalAddress(address)); rank > rankNone {
			return false, verdictOf(found)
		}
	}
	allowed = len(l.table.allow[exchange.TargetAddress]) > 0 && slices.ContainsFunc(sender.Identities, l.allowsAddress)
	return allowed, Verdict{}
}

// allowsAddress reports whether the address for which evidence vouches is on the allow list.
func (l *Lists) allowsAddress(e identity.Evidence) bool {
	proven, err := identity.ParseAddress(string(e.Proven()))
	if err != nil {
		return false
	}
	_, rank := l.table.allow.address(canonicalAddress(proven))
	return rank > rankNone
}

// listed reports whether a sender may come where only listed ones may: one of the hosts that their evidence proves is on the
// list. Without evidence the operator decides, where the stated address or its host is listed.
func (l *Lists) listed(sender normalized.Sender) Verdict {
	for i := range sender.Identities {
		e := &sender.Identities[i]
		if i == 0 && l.vouchedHere(e) || slices.ContainsFunc(l.provenHosts(e), l.allowsHost) {
			return Verdict{}
		}
		if proven, err := identity.ParseAddress(string(e.Proven())); err == nil && l.allowsHost(proven.Domain) { // of an actor of another host
			return Verdict{}
		}
	}

	if stated, err := sender.Address.Parse(); err == nil && len(sender.Identities) == 0 {
		_, guest := l.table.allow.address(canonicalAddress(stated))
		if !l.own(stated.Domain) && (guest > rankNone || l.allowsHost(stated.Domain)) {
			return Verdict{
				Effect: exchange.EffectHold, Code: CodeUnproven,
				Reason: sender.Address.String() + " is on the allow list, but nothing proves that the sender is who they say",
			}
		}
	}
	return notListed(sender.Address.String())
}

func (l *Lists) allowsHost(host string) bool {
	_, rank := l.table.allow.host(host)
	return rank > rankNone
}

// vouchedHere reports whether the operator let someone in by hand: a token of this server, one of its own agents.
func (l *Lists) vouchedHere(e *identity.Evidence) bool {
	return e.Proof.Type == identity.ProofBearerToken && e.Proof.VerifiedBy == l.options.Domain || subjectHost(e.Subject) != "" && l.own(subjectHost(e.Subject))
}

// hostsOf returns the hosts that have a part in a sender: of the addresses that it claims, of what the evidence is about and of who
// vouches.
func (l *Lists) hostsOf(sender normalized.Sender, addresses []identity.Address) []string {
	hosts := make([]string, 0, 4)
	add := func(canonical string) {
		if !l.own(canonical) && !slices.Contains(hosts, canonical) {
			hosts = append(hosts, canonical)
		}
	}

	for _, address := range addresses {
		add(address.Domain)
	}
	for i := range sender.Identities {
		for _, host := range l.provenHosts(&sender.Identities[i]) {
			add(host)
		}
	}
	return hosts
}

// provenHosts returns the hosts of what evidence is about and of who vouches, without our own.
func (l *Lists) provenHosts(e *identity.Evidence) (hosts []string) {
	if host := subjectHost(e.Subject); host != "" && !l.own(host) {
		hosts = append(hosts, host)
	}
	if e.Issuer == l.options.Domain {
		return hosts
	}
	if host, err := identity.ParseDomain(issuerHost(e.Issuer)); err == nil && !l.own(host) {
		hosts = append(hosts, host)
	}
	return hosts
}

// claimed returns the addresses that a sender states or that its evidence is about, and that of who brought the message. They can
// refuse the sender and admit no one.
func claimed(sender normalized.Sender) []identity.Address {
	var addresses []identity.Address
	for _, stated := range []identity.StatedAddress{sender.Address, sender.CarriedBy} {
		if address, err := stated.Parse(); err == nil {
			addresses = append(addresses, address)
		}
	}

	for i := range sender.Identities {
		if address, ok := subjectAddress(sender.Identities[i].Subject); ok {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

func subjectAddress(subject string) (identity.Address, bool) {
	for _, scheme := range []string{"mailto:", "acct:"} {
		if text, is := strings.CutPrefix(subject, scheme); is {
			address, err := identity.ParseAddress(text)
			return address, err == nil
		}
	}
	return identity.Address{}, false
}

// subjectHost returns the host of a subject that is a web address or an address; empty for others.
func subjectHost(subject string) string {
	if address, is := subjectAddress(subject); is {
		return address.Domain
	}

	_, rest, is := strings.Cut(subject, "://")
	if end := strings.IndexAny(rest, "/?#\\"); end >= 0 {
		rest = rest[:end]
	}
	if !is {
		return ""
	}

	host, err := identity.ParseDomain(rest[strings.LastIndexByte(rest, '@')+1:])
	if err != nil {
		return ""
	}

	return host
}

// issuerHost returns the host of an issuer in any of its forms.
func issuerHost(issuer string) string {
	if method, is := strings.CutPrefix(issuer, "did:web:"); is {
		host, _, _ := strings.Cut(method, ":")
		return strings.ReplaceAll(host, "%3A", ":")
	}
	if strings.Contains(issuer, "://") {
		return subjectHost(issuer)
	}
	return issuer
}
