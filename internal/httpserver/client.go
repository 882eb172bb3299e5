package httpserver

import (
	"net/http"
	"net/netip"
	"strings"
)

// ClientIP gives the address of the client: that of the connection, or, where the connection comes from a trusted
// proxy, the last address in X-Forwarded-For that is not a trusted proxy itself. What untrusted peers claim is not
// read. The zero Addr means unknown.
func ClientIP(r *http.Request) netip.Addr {
	address := peer(r)
	found, ok := r.Context().Value(requestKey{}).(*known)
	if !ok || !contains(found.access.trusted, address) {
		return address
	}
	claims := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(claims) - 1; i >= 0 && contains(found.access.trusted, address); i-- {
		claimed, err := parseClaim(claims[i])
		if err != nil {
			break
		}
		address = claimed
	}
	return address
}

func peer(r *http.Request) netip.Addr {
	endpoint, err := netip.ParseAddrPort(r.RemoteAddr)
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

// inside says whether a request comes from the operator's own networks. A request that a proxy passed on counts only
// when the proxy is trusted: behind one that nobody declared, the whole world has its address.
func inside(r *http.Request) bool {
	address := ClientIP(r)
	forwarded := r.Header.Get("X-Forwarded-For") != "" || r.Header.Get("Forwarded") != "" || r.Header.Get("X-Real-Ip") != ""
	if forwarded && address == peer(r) {
		return false
	}
	return address.IsLoopback() || address.IsPrivate()
}
