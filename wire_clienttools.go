package inbox

import (
	"context"
	"strings"

	"inbox/adapters/chat"
	"inbox/agents/clienttool"
	"inbox/agents/llm"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/engine/pipeline"
	"inbox/engine/store"
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

// clientToolKinds says who executes the client tools of the configured agents; see chat.Options.ToolKind.
func clientToolKinds(configured []config.Agent) func(agent, name string) string {
	kinds := map[string]string{}
	for i := range configured {
		agent := strings.ToLower(configured[i].Name) + "\x00"
		for _, one := range configured[i].ClientTools {
			kind := chat.ToolOfProgram
			if one.Asker {
				kind = chat.ToolOfAsker
			}
			name := clienttool.Namespace + one.Name
			kinds[agent+name], kinds[agent+tool.ProviderSafeName(name)] = kind, kind
			if kinds[agent] != chat.ToolOfAsker {
				kinds[agent] = kind
			}
		}
	}
	return func(agent, name string) string { return kinds[strings.ToLower(agent)+"\x00"+name] }
}

// chatTools are the requests of tools whose results come by chat.
type chatTools struct {
	*store.Store
	pipeline *pipeline.Service
}

// Submit hands in the result of a request.
func (c chatTools) Submit(ctx context.Context, agent, by string, result map[string]any) (*request.Envelope, error) {
	return c.pipeline.ToolRequests(agent, by).Submit(ctx, result, nil, nil)
}
