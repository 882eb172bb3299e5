package inbox

import (
	"inbox/identity"
	"inbox/internal/config"
)

// Config is every setting of the server; docs/configuration.md describes each key.
type Config = config.Config

// LoadConfig reads the file (none = development mode) and INBOX_… variables of the environment, and validates. Its
// error names key, place and remedy of every problem.
func LoadConfig(file string, environment []string) (*Config, error) {
	return config.Load(file, environment)
}

// AgentSummary is one configured agent as `inbox agents list` shows it.
type AgentSummary struct {
	Name        string `json:"name"`
	Kind        string `json:"kind"`
	Address     string `json:"address"`
	DisplayName string `json:"display_name"`
	Summary     string `json:"summary,omitempty"`
	Access      string `json:"access"`
	Unverified  string `json:"unverified"`
}

// ConfiguredAgents lists the agents of a configuration.
func ConfiguredAgents(c *Config) []AgentSummary {
	list := make([]AgentSummary, 0, len(c.Agents))
	for _, a := range c.Agents {
		list = append(list, AgentSummary{
			Name: a.Name, Kind: a.Kind, Address: identity.Address{Local: a.Name, Domain: c.Domain}.String(),
			DisplayName: a.DisplayName, Summary: a.Summary, Access: a.Access, Unverified: a.Unverified,
		})
	}
	return list
}
