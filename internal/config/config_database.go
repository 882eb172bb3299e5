package config

import (
	"net/url"
	"strings"
)

// Database is how the server uses PostgreSQL; SQLite needs none of it.
type Database struct {
	// Sessions of PostgreSQL that a node opens at most for each domain, `[[domains]]` included. A node needs three more for each
	// domain: to listen, to find the primary, and during a backup.
	Connections int `toml:"connections"`
	// Acknowledge nothing that is not on a synchronous standby. While `synchronous_standby_names` of PostgreSQL is empty the server
	// is not ready and stores nothing. Without it a failover may lose the messages of the last moments.
	RequireSynchronous bool `toml:"require_synchronous"`
}

// minConnections is how many sessions a node needs at least: work that runs at once must not wait for itself.
const minConnections = 4

func (c *Config) validateDatabase(p *problems) {
	between(p, "database.connections", c.Database.Connections, minConnections, 10_000)
	if c.Database.RequireSynchronous && c.DatabaseURL == "sqlite" {
		p.add("database.require_synchronous", "SQLite has no standby", "write the URL of PostgreSQL as database_url, or remove the line")
	}
}

// readAlike reports whether net/url reads an address, and as libpq does: in u:12#3@host it takes the beginning of a password for a port.
func readAlike(address string) bool {
	parsed, err := url.Parse(address)
	if err != nil {
		return false
	}
	if parsed.User != nil || parsed.Port() == "" {
		return true
	}
	begin, _, found := strings.Cut(address, "@")
	return !found || strings.Contains(begin, "=") // that of a parameter
}

// plainHosts moves the hosts of a PostgreSQL address into its parameters where net/url cannot read them and libpq can: hosts without a port
// beside hosts with one, several addresses of IPv6, and directories of sockets.
func plainHosts(address SecretURL) SecretURL {
	scheme, rest, _ := strings.Cut(address.Reveal(), "://")
	if _, err := url.Parse(address.Reveal()); err == nil || scheme != "postgres" && scheme != "postgresql" {
		return address
	}

	authority, rest, end := rest, "", strings.IndexAny(rest, "/?#")
	if end >= 0 {
		authority, rest = authority[:end], authority[end:]
	}
	user := strings.LastIndex(authority, "@") + 1
	var hosts, ports []string
	for one := range strings.SplitSeq(authority[user:], ",") {
		host, port := one, ""
		if at := strings.LastIndex(one, ":"); at > strings.LastIndex(one, "]") {
			host, port = one[:at], one[at+1:]
		}
		host, err := url.PathUnescape(strings.Trim(host, "[]"))
		if err != nil {
			return address
		}
		hosts, ports = append(hosts, url.QueryEscape(host)), append(ports, url.QueryEscape(port))
	}

	between := "?"
	if strings.Contains(rest, "?") {
		between = "&"
	}
	moved := scheme + "://" + authority[:user] + rest + between + "host=" + strings.Join(hosts, ",") + "&port=" + strings.Join(ports, ",")
	if _, err := url.Parse(moved); err != nil {
		return address
	}
	return SecretURL(moved)
}
