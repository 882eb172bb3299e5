package acme

import (
	"fmt"

	"github.com/caddyserver/certmagic"
	"github.com/libdns/acmedns"
	"github.com/libdns/cloudflare"
	"github.com/libdns/desec"
	"github.com/libdns/gandi"
	"github.com/libdns/rfc2136"
)

// DNS says who sets the TXT records of dns-01 (RFC 8555, section 8.4). The zero value is none.
type DNS struct {
	Provider     string // acmedns, cloudflare, desec, gandi or rfc2136; empty = none
	Server       string // rfc2136: host:port of the primary name server; acmedns: address of its API
	KeyName      string // rfc2136: of the TSIG key (RFC 8945)
	KeyAlgorithm string // rfc2136: of the TSIG key, such as hmac-sha256
	Username     string // acmedns
	Subdomain    string // acmedns: the part that the service gave
	Token        string // key, token or password
}

// provider returns the client of the provider; nil for none. Each costs the binary little: those with a large library of their vendor are
// left out, since a CNAME of _acme-challenge to a server of acme-dns does the same for every zone.
func (d DNS) provider() (certmagic.DNSProvider, error) {
	switch d.Provider {
	case "":
		return nil, nil
	case "acmedns":
		return &acmedns.Provider{ServerURL: d.Server, Username: d.Username, Password: d.Token, Subdomain: d.Subdomain}, nil
	case "cloudflare":
		return &cloudflare.Provider{APIToken: d.Token}, nil
	case "desec":
		return &desec.Provider{Token: d.Token}, nil
	case "gandi":
		return &gandi.Provider{BearerToken: d.Token}, nil
	case "rfc2136":
		return &rfc2136.Provider{Server: d.Server, KeyName: d.KeyName, KeyAlg: d.KeyAlgorithm, Key: d.Token}, nil
	}
	return nil, fmt.Errorf("acme.dns.provider: no provider %q", d.Provider)
}
