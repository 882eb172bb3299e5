package config

import (
	"errors"
	"net/url"
	"strings"

	"inbox/identity"
)

var errIssuer = errors.New("not an issuer")

// canonicalIssuer gives the name under which an issuer is compared: a host, or did:web as it is.
func canonicalIssuer(text string) (string, error) {
	text = strings.TrimSpace(text)
	if method, ok := strings.CutPrefix(text, "did:web:"); ok && method != "" && !strings.ContainsAny(method, " /?#") {
		return text, nil
	}
	if strings.Contains(text, "://") {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return "", errIssuer
		}
		text = u.Host
	}
	domain, err := identity.ParseDomain(text)
	if err != nil || identity.HostOf(domain) == "" {
		return "", errIssuer
	}
	return domain, nil
}
