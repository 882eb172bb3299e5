package email

import (
	"net"
	"net/http"
	"strings"

	"inbox/adapters/email/outbound"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/httpserver"
)

// Links returns the agent's mailto link (message contract, section 11).
func (a *Adapter) Links(agent exchange.AgentProfile) []exchange.Link {
	address, err := identity.ParseAddress(agent.Address)
	if err != nil {
		return nil
	}
	return []exchange.Link{{Rel: "mailto", Href: "mailto:" + address.Mail()}}
}

// PolicyPath is where the policy of MTA-STS is found, on the host mta-sts.<domain> (RFC 8461, section 3.3).
const PolicyPath = "/.well-known/mta-sts.txt"

// PolicyFile returns the MTA-STS policy of a domain whose only mail server is hostname, and the id of its TXT record.
func PolicyFile(mode, hostname string) (text, id string) { return outbound.PolicyFile(mode, hostname) }

// SmarthostAddress returns host:port of a smarthost URL, for the dialer that must allow it.
func SmarthostAddress(text string) (string, error) { return outbound.SmarthostAddress(text) }

// Routes are the adapter's web pages: the policy file, for its own host only.
func (a *Adapter) Routes() []httpserver.Route {
	return []httpserver.Route{{Method: http.MethodGet, Pattern: PolicyPath, Handler: http.HandlerFunc(a.servePolicy)}}
}

func (a *Adapter) servePolicy(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}

	if a.options.PolicyMode == "" || !strings.EqualFold(strings.TrimSuffix(host, "."), "mta-sts."+a.domain) {
		http.NotFound(w, r)
		return
	}

	text, _ := PolicyFile(a.options.PolicyMode, a.options.Hostname)
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Cache-Control", "max-age=300")
	_, _ = w.Write([]byte(text))
}
