package authentication

import (
	"context"
	"net"
	"slices"
	"strings"

	"blitiri.com.ar/go/spf"

	"inbox/adapters/email/dns"
	"inbox/identity"
)

// SPF is the outcome of RFC 7208 for the envelope sender, or for the HELO name when the sender is null.
type SPF struct {
	Result   string `json:"result"`
	Domain   string `json:"domain,omitempty"`
	Identity string `json:"identity"` // mailfrom or helo
	Err      error  `json:"-"`        // why it is no pass, as the record or a lookup has it
}

// checkSPF evaluates the policy of the envelope domain. It authenticates that domain only, never the From field.
func (c *Checker) checkSPF(ctx context.Context, peer Connection) SPF {
	result := SPF{Result: string(spf.None), Identity: "mailfrom"}
	sender := peer.From
	if sender == "" {
		result.Identity = "helo"
	}

	domain, err := spfDomain(peer)
	ip := net.ParseIP(peer.IP)
	if err != nil || ip == nil {
		return result
	}

	result.Domain = domain
	if sender == "" {
		sender = "postmaster@" + domain
	}

	verdict, reason := spf.CheckHostWithSender(ip, peer.HELO, sender, spf.WithContext(ctx), spf.WithResolver(wholeRecords{c.resolver}))
	result.Result, result.Err = string(verdict), reason
	return result
}

// Permits reports whether a domain lets the peer send its mail (RFC 7208), whatever the envelope says: reports have a null sender, and
// the names by which servers greet mostly have no policy.
func (c *Checker) Permits(ctx context.Context, peer Connection, domain string) bool {
	ctx, cancel := context.WithTimeout(ctx, CheckTimeout)
	defer cancel()
	peer.From = "postmaster@" + domain
	return c.checkSPF(ctx, peer).Result == Pass
}

// wholeRecords makes the library see what is wrong behind the term that matches: it reads a record only so far, and RFC 7208,
// section 4.6, wants an error anywhere in it to be a permerror.
type wholeRecords struct{ *dns.Resolver }

// LookupTXT replaces a record with a term that is none by one that cannot be understood.
func (r wholeRecords) LookupTXT(ctx context.Context, name string) ([]string, error) {
	texts, err := r.Resolver.LookupTXT(ctx, name)
	for i, text := range texts {
		if version, terms, _ := strings.Cut(text, " "); strings.EqualFold(version, "v=spf1") && !knownTerms(terms) {
			texts = slices.Clone(texts) // others have the same answer
			texts[i] = "v=spf1 damaged"
		}
	}
	return texts, err
}

// knownTerms reports whether all terms are mechanisms of RFC 7208, section 4.6.1, or modifiers, whose names are open.
func knownTerms(terms string) bool {
	for term := range strings.SplitSeq(strings.ToLower(terms), " ") {
		if name, rest := cutTerm(term); term != "" && !mechanismName(name) && (!strings.HasPrefix(rest, "=") || !modifierName(name)) {
			return false
		}
	}
	return true
}

// cutTerm returns the name of a term, with its qualifier if it has one, and the rest.
func cutTerm(term string) (name, rest string) {
	if end := strings.IndexAny(term, ":/="); end >= 0 {
		return term[:end], term[end:]
	}
	return term, ""
}

func mechanismName(name string) bool {
	if name != "" && strings.IndexByte("+-?~", name[0]) >= 0 {
		name = name[1:]
	}
	switch name {
	case "all", "include", "a", "mx", "ptr", "ip4", "ip6", "exists":
		return true
	}
	return false
}

func modifierName(name string) bool {
	return name != "" && name[0] >= 'a' && name[0] <= 'z' && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

func spfDomain(peer Connection) (string, error) {
	domain := peer.HELO
	if peer.From != "" {
		domain = peer.From[strings.LastIndexByte(peer.From, '@')+1:]
	}
	ascii, err := identity.ParseDomain(domain)
	if err == nil && (strings.ContainsAny(ascii, ":[]") || net.ParseIP(ascii) != nil) {
		return "", identity.ErrAddress
	}
	return ascii, err
}
