package inbox

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"inbox/agents"
	"inbox/agents/command"
	"inbox/agents/echo"
	"inbox/agents/llm"
	"inbox/agents/mcptool"
	"inbox/agents/pull"
	"inbox/agents/remote"
	"inbox/agents/runtime/tool"
	"inbox/agents/webhook"
	"inbox/internal/config"
)

// newAgent makes the agent of a table [[agents]].
func (s *Server) newAgent(entry config.Agent) (agents.Agent, error) {
	switch entry.Kind {
	case "echo":
		return echo.New(), nil
	case "webhook":
		return webhook.New(webhook.Options{
			URL: entry.Webhook.URL, Secret: entry.Webhook.Secret.Reveal(), PreviousSecret: entry.Webhook.PreviousSecret.Reveal(),
			Events: entry.Webhook.Events,
			Client: s.client, TimeLimit: min(webhook.DefaultTimeLimit, entry.Timeout-runMargin), Limits: s.limits(),
		})
	case "llm":
		return s.newLLM(entry)
	case "command":
		return s.newCommand(entry.Command)
	case "remote":
		return s.newRemote(entry.Remote, entry.Timeout)
	case "pull":
		return s.pull.Agent(entry.Name, pull.Settings{Lease: entry.Pull.Lease, MaxWait: entry.Pull.MaxWait})
	}
	return nil, fmt.Errorf("kind %q is not known", entry.Kind)
}

func (s *Server) newCommand(table config.Command) (agents.Agent, error) {
	return command.New(command.Options{
		Program: table.Program, Arguments: table.Arguments, Environment: table.Environment, Directory: table.Directory,
		MemoryBytes: int64(table.MemoryBytes), Output: table.Output, Logger: s.logger, Limits: s.limits(),
	})
}

func (s *Server) newRemote(table config.Remote, limit time.Duration) (agents.Agent, error) {
	base, err := url.Parse(s.config.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("public_url: %w", err)
	}
	options := remote.Options{
		CardURL: table.CardURL, Client: s.client, State: s.store.State(), Token: table.Token.Reveal(), Blobs: s.blobs,
		BaseURL: base, Limits: s.limits(), TimeLimit: min(remote.DefaultTimeLimit, limit-runMargin), EndpointHosts: table.EndpointHosts,
		Assert: s.assert,
	}
	if table.TokenURL != "" {
		options.Credentials = &remote.ClientCredentials{
			TokenURL: table.TokenURL, ClientID: table.ClientID, ClientSecret: table.ClientSecret.Reveal(), Scopes: table.Scopes,
		}
	}
	return remote.New(options)
}

// newTools makes the source of an agent's MCP servers; they are started with the server.
func (s *Server) newTools(tables []config.MCP) ([]llm.Tools, error) {
	if len(tables) == 0 {
		return nil, nil
	}
	servers := make([]mcptool.Server, 0, len(tables))
	for _, table := range tables {
		servers = append(servers, mcptool.Server{
			Name: table.Name, Command: table.Command, Arguments: table.Arguments, Environment: table.Environment, Directory: table.Directory,
			URL: table.URL, Token: table.Token.Reveal(), Timeout: table.Timeout, Tools: table.Tools, Preview: table.Preview,
			Forbidden: table.Forbidden, AtMostOnce: table.AtMostOnce,
		})
	}
	source, err := mcptool.New(servers, mcptool.Options{Client: s.client, Log: s.logger, Version: Version})
	if err != nil {
		return nil, err
	}
	s.tools = append(s.tools, source)
	return []llm.Tools{mcpTools{source}}, nil
}

// mcpTools is a source of MCP tools as the models take it.
type mcpTools struct{ *mcptool.Source }

// Declarations returns the tools of all servers.
func (m mcpTools) Declarations(ctx context.Context, _ agents.Turn) ([]tool.Entry, error) {
	list := m.Source.Declarations(ctx)
	values := make([]any, len(list))
	for i, declaration := range list {
		values[i] = declaration
	}
	return tool.Entries(values), nil
}
