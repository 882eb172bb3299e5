package email

import (
	"context"
	"net"
	"strings"

	"blitiri.com.ar/go/spf"

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
	verdict, reason := spf.CheckHostWithSender(ip, env.helo, sender, spf.WithContext(ctx), spf.WithResolver(a.dns))
	result.Result = string(verdict)
	if reason != nil {
		result.Reason = cleanText(reason.Error(), 200)
	}
	return result
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
