package inbox

import (
	"strings"

	"inbox/adapters/activitypub"
	"inbox/console"
	"inbox/internal/config"
)

// operatorFields are the lines on every profile that say who operates the server.
func operatorFields(c *Config) []activitypub.Field {
	var fields []activitypub.Field
	for _, field := range []activitypub.Field{
		{Name: "Operator", Value: c.Operator.Name}, {Name: "Contact", Value: c.Operator.Contact}, {Name: "Account", Value: c.Operator.Account},
		{Name: "Privacy", Value: c.Operator.Privacy}, {Name: "Source", Value: c.Operator.Source},
	} {
		if field.Value != "" {
			fields = append(fields, field)
		}
	}
	return fields
}

// operatorLines are the same lines on the page of every agent.
func operatorLines(c *Config) []console.Field {
	var lines []console.Field
	for _, field := range operatorFields(c) {
		line := console.Field{Name: field.Name, Value: field.Value}
		switch field.Name {
		case "Contact":
			line.Href = "mailto:" + strings.TrimPrefix(field.Value, "@")
		case "Privacy", "Source":
			line.Href = field.Value
		}
		lines = append(lines, line)
	}
	return lines
}

func (s *Server) agentTable(name string) config.Agent {
	for _, agent := range s.config.Agents {
		if strings.EqualFold(agent.Name, name) {
			return agent
		}
	}
	return config.Agent{Follows: activitypub.FollowAccept} // an agent of an embedding program
}

func (s *Server) follows(name string) string     { return s.agentTable(name).Follows }
func (s *Server) followersOnly(name string) bool { return s.agentTable(name).FollowersOnly }
