package inbox

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"inbox/adapters/a2a"
)

// newPush returns what webhooks of A2A tasks need.
func (s *Server) newPush() a2a.Push {
	pairs := webhookPairs(s.config.A2A.WebhookHosts)
	named := func(u *url.URL) bool { return slices.Contains(pairs, webhookPair(u)) }
	return a2a.Push{Watches: s.store, Sealer: s.sealer, Web: s.client.Allowing(pairs...), Named: named}
}

// webhookPairs are the host:port pairs of a2a.webhook_hosts; a host without a port is meant at both ports of the web.
func webhookPairs(hosts []string) (pairs []string) {
	for _, host := range hosts {
		if _, _, err := net.SplitHostPort(host); err == nil {
			pairs = append(pairs, strings.ToLower(host))
			continue
		}
		bare := strings.ToLower(strings.Trim(host, "[]"))
		pairs = append(pairs, net.JoinHostPort(bare, "443"), net.JoinHostPort(bare, "80"))
	}
	return pairs
}

// webhookPair is the host:port of an address.
func webhookPair(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
