package policypart

import (
	"net/url"
	"strings"
)

// urlRemoved is the suffix of the code of a part whose url was taken away.
const urlRemoved = "url-removed"

// Confine gives the part as it may leave: a url that is not https on the very origin of base (scheme, host and port
// equal, no userinfo) is removed and the code says so. It is asked when a part is made and again when it is rendered,
// because a link in a demand for money or consent is what a phisher would forge.
func (p Part) Confine(base *url.URL) Part {
	if p.URL == "" || withinOrigin(p.URL, base) {
		return p
	}
	p.URL = ""
	switch {
	case p.Code == "":
		p.Code = urlRemoved
	case !strings.HasSuffix(p.Code, urlRemoved):
		p.Code += ":" + urlRemoved
	}
	return p
}

func withinOrigin(text string, base *url.URL) bool {
	u, err := url.Parse(text)
	return err == nil && base != nil && u.Scheme == "https" && u.User == nil && u.Opaque == "" &&
		u.Scheme == base.Scheme && strings.EqualFold(u.Hostname(), base.Hostname()) && portOf(u) == portOf(base)
}

func portOf(u *url.URL) string {
	if u.Port() == "" && u.Scheme == "https" {
		return "443"
	}
	return u.Port()
}
