package httpserver

import (
	"net"
	"net/http"
	"strings"
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
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if other, is := s.hosted[strings.ToLower(strings.TrimSuffix(host, "."))]; is {
		other.access.ServeHTTP(w, r)
		return
	}
	s.access.ServeHTTP(w, r)
}
