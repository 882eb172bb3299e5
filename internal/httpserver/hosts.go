package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"inbox/internal/fault"
)

// Host lets s answer requests for hosts, which have no ports, with the routes of other. Other drains and stops with s, and must not
// listen. It is called before s serves.
func (s *Server) Host(other *Server, hosts ...string) {
	if s.hosted == nil {
		s.hosted = map[string]*Server{}
	}
	for _, host := range hosts {
		s.hosted[strings.ToLower(host)] = other
	}
	s.others = append(s.others, other)
	s.http.Handler = http.HandlerFunc(s.byHost)
}

// byHost hands a request to the server of its host. HTTP/1.1 demands the header, HTTP/2 has :authority for it; a host that no one has is
// that of s, as without other servers.
func (s *Server) byHost(w http.ResponseWriter, r *http.Request) {
	if other, is := s.hosted[hostOf(r)]; is {
		other.access.ServeHTTP(w, r)
		return
	}
	s.access.ServeHTTP(w, r)
}

// hostOf returns the host of a request without port, brackets and final dot, in lower case.
func hostOf(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// Named refuses a request for a host that is neither an address, nor one of names, nor a name without a domain. A browser inside
// of the operator's networks sends such a request for a page of a stranger whose name leads to this server (DNS rebinding), and the
// page reads the answer.
func Named(r *http.Request, names ...string) error {
	host := hostOf(r)
	_, err := netip.ParseAddr(host)
	if err == nil || !strings.Contains(strings.TrimSuffix(host, ".localhost"), ".") || slices.Contains(names, host) {
		return nil
	}
	return fault.New(fault.Forbidden, "metrics are not shown for this host: use the address or a name of the server, or an operator's token")
}
