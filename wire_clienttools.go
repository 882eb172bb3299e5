package inbox

import (
	"inbox/agents/clienttool"
	"inbox/agents/llm"
	"inbox/internal/config"
)

// newClientTools makes the source of the tools that programs outside execute for an agent, and opens their routes.
func (s *Server) newClientTools(entry config.Agent) ([]llm.Tools, error) {
	if len(entry.ClientTools) == 0 {
		return nil, nil
	}
	tools := make([]clienttool.Tool, 0, len(entry.ClientTools))
	for _, table := range entry.ClientTools {
		tools = append(tools, clienttool.Tool{
			Name: table.Name, Description: table.Description, Parameters: []byte(table.Parameters), Timeout: table.Timeout,
			Action: table.Action, AtMostOnce: table.AtMostOnce, Untrusted: table.Untrusted,
		})
	}
	source, err := clienttool.NewSource(tools)
	if err != nil {
		return nil, err
	}
	s.clientTools.Open(entry.Name)
	return []llm.Tools{source}, nil
}
