package policypart

import (
	"net/url"
	"strings"

	"inbox/identity"
)

// urlRemoved is the suffix of the code of a part whose url was taken away.
const urlRemoved = "url-removed"

// Confine returns the part as it may leave: a url that is not on the very origin of base (scheme, host and port equal,
// no userinfo) is removed and the code says so. It is asked when a part is made and again when it is rendered, because
// a link in a demand for money or consent is what a phisher would forge. A base with https lets only https pass; one
// with http, which only a closed network may be configured with, lets http on itself pass.
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

// CheckWithin is Check for a part that was made here, whose url must lie on the origin of base.
func (p Part) CheckWithin(base *url.URL) *identity.ShapeError {
	if p.URL != "" && (len(p.URL) > maxURLBytes || hasControl(p.URL) || !withinOrigin(p.URL, base)) {
		return broken("url", "must be an address on the agent's own origin")
	}
	p.URL = ""
	return p.Check()
}

func withinOrigin(text string, base *url.URL) bool {
	u, err := url.Parse(text)
	return err == nil && base != nil && (u.Scheme == "https" || u.Scheme == "http") && u.User == nil && u.Opaque == "" && u.Host != "" &&
		u.Scheme == base.Scheme && strings.EqualFold(u.Hostname(), base.Hostname()) && portOf(u) == portOf(base)
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
