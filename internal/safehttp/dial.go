package safehttp

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// DialContext connects to host:port over TCP. Every address that the name resolves to is checked at the moment of
// dialling, so a name that answers differently the second time gains nothing. The port is the caller's choice.
func (c *Client) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, &Refused{Target: network + " " + address, Reason: "only TCP leaves this server"}
	}

	switch name := strings.ToLower(address); {
	case c.trusted[name]:
		return c.open.DialContext(ctx, network, address)
	case c.options.AllowPrivate, c.allowed[name]:
		return c.private.DialContext(ctx, network, address)
	}

	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &Refused{Target: address, Reason: "not host:port"}
	}

	return c.guarded.DialContext(ctx, network, net.JoinHostPort(complete(host), port))
}

func (o Options) dialer(control func(network, address string, _ syscall.RawConn) error) *net.Dialer {
	return &net.Dialer{
		Timeout: o.ConnectTimeout, KeepAlive: 30 * time.Second,
		Resolver: o.Resolver.Resolver, Control: control,
	}
}

// checking is checkDial with another check, for targets that need not be public.
func checking(check func(netip.Addr) error) func(network, address string, _ syscall.RawConn) error {
	return func(network, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err != nil {
			return &Refused{Target: network + " " + address, Reason: "not a TCP address"}
		}
		if err := check(target.Addr()); err != nil {
			refusedDials.Inc()
			return err
		}
		return nil
	}
}

// checkDial runs after name resolution, once for each address, before the connection is opened.
func checkDial(network, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return &Refused{Target: network + " " + address, Reason: "not a TCP address"}
	}
	if err := CheckAddr(target.Addr()); err != nil {
		refusedDials.Inc()
		return err
	}
	return nil
}
