package outbound

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/message"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// maxTargets bounds the addresses that one attempt tries.
const maxTargets = 5

// mxTarget is one address of one mail server.
type mxTarget struct {
	host      string // as the MX record names it, without the final dot
	address   string // ip:port
	neighbour bool   // a domain of this server takes mail there
}

func (t mxTarget) String() string {
	ip, _, _ := net.SplitHostPort(t.address)
	return t.host + "[" + ip + "]"
}

// mailHosts returns the names of the servers that take mail for a domain, in the order in which they are tried (RFC 5321,
// section 5.1). A domain without MX records is its own server; a null MX takes no mail (RFC 7505).
func (m *Direct) mailHosts(ctx context.Context, domain string) ([]string, error) {
	records, err := m.dns.LookupMX(ctx, domain)
	switch {
	case len(records) > 0: // the resolver reports the names that it left out beside those that are good
	case dns.NotFound(err):
		return []string{domain}, nil
	case err != nil:
		return nil, fault.RetryIn(0, domain+": the mail servers cannot be looked up now (4.4.3): "+message.Clip(err.Error(), 200), err)
	default:
		return []string{domain}, nil
	}

	if len(records) == 1 && strings.Trim(records[0].Host, ".") == "" {
		return nil, fault.GiveUp(domain+" takes no mail: null MX (5.1.10)", nil)
	}

	return m.inOrder(domain, records)
}

// inOrder sorts by preference and mixes equals. Servers that are not preferred to ourselves would send the mail back to us.
func (m *Direct) inOrder(domain string, records []*net.MX) ([]string, error) {
	sorted := slices.Clone(records)
	rand.Shuffle(len(sorted), func(i, j int) { sorted[i], sorted[j] = sorted[j], sorted[i] })
	slices.SortStableFunc(sorted, func(a, b *net.MX) int { return int(a.Pref) - int(b.Pref) })
	var hosts []string
	for _, record := range sorted {
		host := strings.ToLower(strings.TrimSuffix(record.Host, "."))
		if m.isOurs(host) && !m.isNeighbour(domain) {
			if len(hosts) == 0 {
				return nil, fault.GiveUp("mail for "+domain+" loops: its MX record names this server (5.4.6)", nil)
			}
			equals := slices.IndexFunc(sorted, func(other *net.MX) bool { return other.Pref == record.Pref })
			hosts = hosts[:min(equals, len(hosts))]
			break
		}

		if _, err := netip.ParseAddr(host); host == "" || err == nil || slices.Contains(hosts, host) {
			continue // RFC 5321 wants a name
		}

		hosts = append(hosts, host)
	}

	if len(hosts) == 0 {
		return nil, fault.GiveUp("no MX record of "+domain+" names a mail server other than this one (5.4.6)", nil)
	}

	return hosts, nil
}

func (m *Direct) isOurs(host string) bool {
	return strings.EqualFold(host, m.hello) || strings.EqualFold(host, m.domain)
}

// targets returns the addresses of the hosts. Hosts without one are passed over.
func (m *Direct) targets(ctx context.Context, domain string, hosts []string) ([]mxTarget, error) {
	var found []mxTarget
	var trouble error
	for _, host := range hosts {
		addresses, err := m.dns.LookupIPAddr(ctx, host)
		if err != nil && !dns.NotFound(err) {
			trouble = err
		}

		for _, address := range addresses {
			target := mxTarget{host: host, address: net.JoinHostPort(address.String(), strconv.Itoa(m.port)), neighbour: m.isNeighbour(domain)}
			if len(found) < maxTargets && (target.neighbour || !m.isHere(target.address)) {
				found = append(found, target)
			}
		}

		if len(found) >= maxTargets {
			break
		}
	}

	switch {
	case len(found) > 0:
		return found, nil
	case trouble != nil:
		return nil, fault.RetryIn(0, domain+": no address of a mail server can be looked up now (4.4.3): "+message.Clip(trouble.Error(), 200), trouble)
	case len(hosts) == 1 && hosts[0] == domain:
		return nil, fault.GiveUp("there is no mail server for "+domain+": it has neither MX nor address records (5.1.2)", nil)
	}

	return nil, fault.RetryIn(0, "the mail servers of "+domain+" have no addresses, or only ours (4.4.4)", nil)
}

// isNeighbour reports whether a domain is another one of this server, to which its mail comes over the network as that of others.
func (m *Direct) isNeighbour(domain string) bool {
	return !strings.EqualFold(domain, m.domain) && m.neighbour != nil && m.neighbour(domain)
}

// isHere reports whether an address is that of our own listener.
func (m *Direct) isHere(address string) bool {
	if m.own == nil {
		return false
	}
	own := m.own()
	return own != nil && own.String() == address
}

// refusedByPolicy reports whether an address was not dialled because it is private: no later attempt is better.
func refusedByPolicy(err error) bool { return errors.Is(err, safehttp.ErrRefused) }
