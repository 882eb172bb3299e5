package config

import (
	"net"
	"net/netip"
	"time"

	"inbox/identity"
)

// defaultDrain is about two looks of a balancer at /readyz.
const defaultDrain = 5 * time.Second

// deriveEdge fills in what follows from where the server is reached.
func (c *Config) deriveEdge(found *problems) {
	if c.Drain == unset {
		c.Drain = defaultDrain
		if isLocal(identity.HostOf(domainOf(c.PublicURL))) {
			c.Drain = 0
		}
	}
	if !found.written("http.inside") {
		c.HTTP.Inside = []netip.Prefix{}
		if isLocal(identity.HostOf(domainOf(c.PublicURL))) {
			c.HTTP.Inside = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
		}
	}
}

// BehindUnknownProxy reports whether the server is reached from outside although its listener is not, and no proxy is
// declared: then all clients of the proxy have one address.
func (c *Config) BehindUnknownProxy() bool {
	if isLocal(identity.HostOf(domainOf(c.PublicURL))) || len(c.HTTP.TrustedProxies) > 0 {
		return false
	}
	host, _, err := net.SplitHostPort(c.HTTP.Listen)
	if err != nil || host == "localhost" {
		return err == nil
	}
	address, err := netip.ParseAddr(host)
	return err == nil && (address.Unmap().IsLoopback() || address.Unmap().IsPrivate())
}
