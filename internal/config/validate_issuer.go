package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

var issuerAlgorithms = []string{"EdDSA", "ES256", "ES384", "ES512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}

// validateIssuers checks the issuers of access tokens.
func (c *Config) validateIssuers(p *problems) {
	seen := map[string]bool{}
	for i := range c.A2A.Issuers {
		issuer, key := &c.A2A.Issuers[i], element("a2a.issuers", i)
		if seen[issuer.Issuer] && issuer.Issuer != "" {
			p.add(key+".issuer", "is there twice", "write one table for each issuer")
		}
		seen[issuer.Issuer] = true
		issuer.validate(p, key, c.Federation.AllowPrivate)
	}
}

func (i *Issuer) validate(p *problems, key string, private bool) {
	if u, ok := issuerURL(i.Issuer); !ok || u.Scheme == "http" && !private {
		p.add(key+".issuer", fmt.Sprintf("%q is not the address of an issuer", i.Issuer), `write the value of its iss claim, such as "https://login.example.com"`)
	}
	switch {
	case i.JWKSURL == "" && i.Discovery == "":
		p.add(key+".jwks_url", "is missing, so the keys of the issuer are not known", "write jwks_url or discovery")
	case i.JWKSURL != "" && i.Discovery != "":
		p.add(key+".discovery", "does not go with jwks_url", "write one of them")
	}
	for name, address := range map[string]string{"jwks_url": i.JWKSURL, "discovery": i.Discovery} {
		u, ok := issuerURL(address)
		if address != "" && (!ok || u.Scheme == "http" && !private) {
			p.add(key+"."+name, fmt.Sprintf("%q is not an address of a document", address), `write an https:// address; http only with federation.allow_private`)
		}
	}
	for _, alg := range i.Algs {
		if !slices.Contains(issuerAlgorithms, alg) {
			p.add(key+".algs", fmt.Sprintf("%q is not accepted", alg), "write some of "+strings.Join(issuerAlgorithms, ", "))
		}
	}
	if slices.Contains(i.Audiences, "") {
		p.add(key+".audiences", "an entry is empty", "remove it")
	}
	if i.Method != "" && i.Method != "a2a-oauth" && i.Method != "a2a-jwt" && !strings.HasPrefix(i.Method, "urn:") {
		p.add(key+".method", fmt.Sprintf("%q is not known", i.Method), `write "a2a-oauth", "a2a-jwt" or a URN of your own`)
	}
}

// issuerURL reads an address without user and fragment: the latter separates issuer and subject in evidence.
func issuerURL(text string) (*url.URL, bool) {
	u, err := url.Parse(text)
	return u, err == nil && u.Host != "" && u.User == nil && u.Fragment == "" && !strings.ContainsAny(text, "# ") &&
		(u.Scheme == "https" || u.Scheme == "http")
}
