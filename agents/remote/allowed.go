package remote

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"inbox/internal/safehttp"
)

// allowed reports whether the card may lead to an address: any on the card's own host, those that the operator named, and,
// where no credentials could be stolen, any public one over https.
func (a *Agent) allowed(u *url.URL) error {
	switch {
	case a.card.Scheme == "https" && u.Scheme != "https":
		return errors.New("leads away from https")
	case a.trusted(u):
		return nil
	case a.credentials.any():
		return fmt.Errorf("is on another host than the card; add %q to endpoint_hosts if the credentials may be shown there", hostPort(u))
	}
	return a.options.Client.CheckURL(u)
}

func (a *Agent) trusted(u *url.URL) bool {
	return strings.EqualFold(u.Hostname(), a.card.Hostname()) ||
		slices.ContainsFunc(a.options.EndpointHosts, func(hostport string) bool { return strings.EqualFold(hostport, hostPort(u)) })
}

// maxClients bounds the clients of a card that leads elsewhere each time.
const maxClients = 4

// clientFor returns the client of an endpoint: one that trusts it, or one that judges its address at each dial.
func (a *Agent) clientFor(u *url.URL) *safehttp.Client {
	if !a.trusted(u) {
		return a.options.Client.Limit(a.options.MaxResponseBytes)
	}
	if hostPort(u) == hostPort(a.card) {
		return a.cards.Limit(a.options.MaxResponseBytes)
	}
	a.peers.mu.Lock()
	defer a.peers.mu.Unlock()
	client, ok := a.peers.clients[hostPort(u)]
	if !ok {
		if len(a.peers.clients) >= maxClients {
			for other, old := range a.peers.clients {
				old.Close()
				delete(a.peers.clients, other)
			}
		}
		client = a.options.Client.Trusting(hostPort(u)).Limit(a.options.MaxResponseBytes)
		a.peers.clients[hostPort(u)] = client
	}
	return client
}
