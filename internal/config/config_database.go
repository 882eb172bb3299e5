package config

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
