package httpserver

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"inbox/internal/admission"
)

// Networks says which clients are what.
type Networks struct {
	Trusted []netip.Prefix // proxies whose X-Forwarded-For is believed
	Inside  []netip.Prefix // the operator's own: /metrics is shown to them and requests are not counted
	Socket  bool           // connections without an address come by a socket of this machine: from a trusted proxy, or a program at 127.0.0.1
}

// ofSocket is the address of programs that connect by a socket of this machine.
var ofSocket = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// peer returns the address of the other end of a connection, and whether it is a trusted proxy.
func (n Networks) peer(remote string) (address netip.Addr, trusted bool) {
	if address = addressOf(remote); n.Socket && !address.IsValid() {
		return ofSocket, true
	}
	return address, contains(n.Trusted, address)
}

// Client is the address behind a connection from remote: that of the connection, or, where it comes from a trusted proxy,
// the last address in forwarded (the values of X-Forwarded-For) that is not a trusted proxy itself. What untrusted peers
// claim is not read. The zero Addr means unknown.
func (n Networks) Client(remote string, forwarded []string) netip.Addr {
	address, trusted := n.peer(remote)
	if len(forwarded) == 0 || !trusted {
		return address
	}

	claims := strings.Split(strings.Join(forwarded, ","), ",")
	for i := len(claims) - 1; i >= 0 && trusted; i-- {
		claimed, err := parseClaim(claims[i])
		if err != nil {
			break
		}
		address, trusted = claimed, contains(n.Trusted, claimed)
	}

	return address
}

// untrustedForward reports whether a request names a client for which it is not believed.
func (n Networks) untrustedForward(r *http.Request) bool {
	_, trusted := n.peer(r.RemoteAddr)
	return !trusted && r.Header.Get("X-Forwarded-For") != ""
}

// ClientIP returns the address of the client: see Networks.Client.
func ClientIP(r *http.Request) netip.Addr {
	return networksOf(r.Context()).Client(r.RemoteAddr, r.Header.Values("X-Forwarded-For"))
}

// ClientSource returns the networks of the client, for what is counted by them. A client of the operator's own networks has
// the zero Source, like one that is not known.
func ClientSource(r *http.Request) admission.Source {
	if inside(r) {
		return admission.Source{}
	}
	return admission.SourceOf(ClientIP(r))
}

func networksOf(ctx context.Context) Networks {
	if found, ok := ctx.Value(requestKey{}).(*known); ok {
		return found.access.networks
	}
	return Networks{Inside: loopback}
}

// loopback are the operator's own networks where none are named.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func addressOf(remote string) netip.Addr {
	endpoint, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return plain(endpoint.Addr())
}

// parseClaim also takes address:port, which Azure's gateways write.
func parseClaim(text string) (netip.Addr, error) {
	text = strings.TrimSpace(text)
	if endpoint, err := netip.ParseAddrPort(text); err == nil {
		return plain(endpoint.Addr()), nil
	}
	address, err := netip.ParseAddr(text)
	return plain(address), err
}

func plain(address netip.Addr) netip.Addr { return address.Unmap().WithZone("") }

func contains(networks []netip.Prefix, address netip.Addr) bool {
	for _, network := range networks {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

// inside reports whether a request comes from the operator's own networks. A request that a proxy passed on counts only when
// the proxy is trusted: behind one that the operator did not declare, the whole world has its address.
func inside(r *http.Request) bool {
	networks := networksOf(r.Context())
	address := ClientIP(r)
	passedOn := false
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "X-Forwarded-Host", "X-Forwarded-Proto", "Via"} {
		passedOn = passedOn || len(r.Header.Values(name)) > 0
	}

	if peer, _ := networks.peer(r.RemoteAddr); passedOn && address == peer {
		return false
	}
	return contains(networks.Inside, address)
}
