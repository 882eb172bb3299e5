package email

import (
	"context"
	"net"
	"slices"
	"strings"

	"blitiri.com.ar/go/spf"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
	"inbox/identity"
)

// spfResult is the outcome of RFC 7208 for the envelope sender, or for the HELO name when the sender is null.
type spfResult struct {
	Result   string `json:"result"`
	Domain   string `json:"domain,omitempty"`
	Identity string `json:"identity"` // mailfrom or helo
	Reason   string `json:"-"`
}

// checkSPF evaluates the policy of the envelope domain. It authenticates that domain only, never the From field.
func (a *Adapter) checkSPF(ctx context.Context, env envelope) spfResult {
	result := spfResult{Result: string(spf.None), Identity: "mailfrom"}
	sender := env.from
	if sender == "" {
		result.Identity = "helo"
	}
	domain, err := spfDomain(env)
	ip := net.ParseIP(env.ip)
	if err != nil || ip == nil {
		return result
	}
	result.Domain = domain
	if sender == "" {
		sender = "postmaster@" + domain
	}
	verdict, reason := spf.CheckHostWithSender(ip, env.helo, sender, spf.WithContext(ctx), spf.WithResolver(wholeRecords{a.dns}))
	result.Result = string(verdict)
	if reason != nil {
		result.Reason = message.Clean(reason.Error(), 200)
	}
	return result
}

// wholeRecords makes the library see what is wrong behind the term that matches: it reads a record only so far, and RFC 7208,
// section 4.6, wants an error anywhere in it to be a permerror.
type wholeRecords struct{ *dns.Resolver }

// LookupTXT gives a record that nobody understands instead of one with a term that is none.
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

// knownTerms says whether all terms are mechanisms of RFC 7208, section 4.6.1, or modifiers, whose names are open.
func knownTerms(terms string) bool {
	for term := range strings.SplitSeq(strings.ToLower(terms), " ") {
		if name, rest := cutTerm(term); term != "" && !mechanismName(name) && (!strings.HasPrefix(rest, "=") || !modifierName(name)) {
			return false
		}
	}
	return true
}

// cutTerm gives the name of a term, with its qualifier if it has one, and what stands behind.
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

func spfDomain(env envelope) (string, error) {
	domain := env.helo
	if env.from != "" {
		domain = env.from[strings.LastIndexByte(env.from, '@')+1:]
	}
	ascii, err := identity.ParseDomain(domain)
	if err == nil && (strings.ContainsAny(ascii, ":[]") || net.ParseIP(ascii) != nil) {
		return "", identity.ErrAddress
	}
	return ascii, err
}
