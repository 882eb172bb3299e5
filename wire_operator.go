package inbox

import (
	"strings"

	"inbox/adapters/activitypub"
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
