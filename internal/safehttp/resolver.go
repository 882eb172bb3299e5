package safehttp

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Resolver looks names up. It has the methods of *net.Resolver; names with a dot are taken as complete, so that the
// search list of the operating system never turns a stranger's domain into one of ours.
type Resolver struct{ *net.Resolver }

// NewResolver makes a resolver that asks the server at address ("host:port"); empty = that of the operating system.
func NewResolver(address string) *Resolver {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	resolver := &net.Resolver{PreferGo: true}
	resolver.Dial = func(ctx context.Context, network, server string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, cmp.Or(address, server))
		if err != nil {
			return nil, err
		}
		return watch(ctx, conn), nil
	}
	return &Resolver{resolver}
}

// complete roots a name that has a dot in it; single labels keep their local meaning.
func complete(name string) string {
	if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") || strings.HasSuffix(name, ".") {
		return name
	}
	return name + "."
}

// LookupTXT is net.Resolver.LookupTXT for a complete name.
func (r *Resolver) LookupTXT(ctx context.Context, name string) ([]string, error) {
	return r.Resolver.LookupTXT(ctx, complete(name))
}

// LookupMX is net.Resolver.LookupMX for a complete name.
func (r *Resolver) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	return r.Resolver.LookupMX(ctx, complete(name))
}

// LookupIPAddr is net.Resolver.LookupIPAddr for a complete name.
func (r *Resolver) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	return r.Resolver.LookupIPAddr(ctx, complete(host))
}

// LookupHost is net.Resolver.LookupHost for a complete name.
func (r *Resolver) LookupHost(ctx context.Context, host string) ([]string, error) {
	return r.Resolver.LookupHost(ctx, complete(host))
}

// LookupNetIP is net.Resolver.LookupNetIP for a complete name.
func (r *Resolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return r.Resolver.LookupNetIP(ctx, network, complete(host))
}
