package inbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"inbox/adapters/chat"
	"inbox/agents"
	"inbox/agents/clienttool"
	"inbox/agents/command"
	"inbox/agents/echo"
	"inbox/agents/llm"
	"inbox/agents/mcptool"
	"inbox/agents/pull"
	"inbox/agents/remote"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/webhook"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/history"
	"inbox/identity"
	"inbox/internal/config"
)

// runMargin is what is left of an agent's time when its webhook is given up, so that the reason is the webhook's.
const runMargin = 500 * time.Millisecond

// configuredAgents builds the agents of the configuration.
func (s *Server) configuredAgents(ctx context.Context) (*agents.Registry, error) {
	registry := agents.NewRegistry()
	var err error
	if s.pull, err = pull.New(pull.Options{Tokens: s.store, Mailbox: s.store.State(), Scope: exchange.TokenPull, Limits: s.limits(), Arrived: s.wakeTurns}); err != nil {
		return nil, err
	}
	s.clientTools = clienttool.New(s.store)
	for _, entry := range s.config.Agents {
		agent, err := s.newAgent(entry)
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", entry.Name, err)
		}
		if closer, holds := agent.(interface{ Close() }); holds {
			s.closers = append(s.closers, closer.Close)
		}
		shown := profile(s.config, entry)
		if shown.CreatedAt, err = s.agentSince(ctx, entry.Name); err != nil {
			return nil, err
		}
		err = registry.Add(agents.Entry{Agent: agent, Profile: shown, Settings: settings(entry)})
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", entry.Name, err)
		}
	}
	return registry, nil
}

// sinceNamespace holds when each agent was first configured here: name → RFC 3339.
const sinceNamespace = "agent.since"

// agentSince returns when an agent was first configured, and remembers it at its first start. Other servers show it as the
// age of the account, and judge it by that.
func (s *Server) agentSince(ctx context.Context, name string) (time.Time, error) {
	state, key := s.store.State(), strings.ToLower(name)
	value, found, err := state.Get(ctx, sinceNamespace, key)
	if err != nil {
		return time.Time{}, fmt.Errorf("agent %s: read since when it is here: %w", name, err)
	}
	if since, err := time.Parse(time.RFC3339, string(value)); found && err == nil {
		return since, nil
	}

	now := time.Now().UTC().Truncate(time.Second)
	if err := state.Put(ctx, sinceNamespace, key, []byte(now.Format(time.RFC3339)), time.Time{}); err != nil {
		return time.Time{}, fmt.Errorf("agent %s: remember since when it is here: %w", name, err)
	}
	return now, nil
}

func profile(c *Config, entry config.Agent) exchange.AgentProfile {
	access := entry.AccessPolicy()
	return exchange.AgentProfile{
		IdentityPolicy: &access,
		Name:           entry.Name, Address: identity.Address{Local: entry.Name, Domain: c.Domain}.String(),
		DisplayName: entry.DisplayName, Summary: entry.Summary, Version: "1.0.0", Kind: entry.Kind,
		Skills: []exchange.Skill{{
			ID: "conversation", Name: "Conversation", Description: orElse(entry.Summary, "Answers messages."), Tags: []string{entry.Kind},
		}},
	}
}

func settings(entry config.Agent) agents.Settings {
	return agents.Settings{
		Unverified: entry.Unverified, TimeLimit: entry.Timeout, AnswerAgents: entry.AnswerAgents,
		Access: entry.AccessPolicy(), MaxHops: entry.MaxHops, HistoryScope: entry.History.Scope,
		Approvers: entry.Approvers, ApproveReplies: entry.ApproveReplies, ReplyRules: replyRules(entry.Rules),
		Retry: agents.RetryPolicy{
			Schedule: entry.Retry.Schedule, Waiting: entry.Retry.Waiting, Rate: float64(entry.Retry.Rate),
			StaleAfter: entry.Retry.StaleAfter, Stale: entry.Retry.Stale,
		},
		AckAfter: entry.AckAfter, AckText: entry.AckText, AckLike: entry.AckLike, ExposeTools: entry.ExposeTools,
		History: history.Policy{
			KeepHead: entry.History.KeepHead, Window: entry.History.Window, Slide: entry.History.Slide,
			MaxBytes: int(entry.History.MaxBytes), MaxAge: entry.History.MaxAge, Alternation: history.Alternation(entry.History.Alternation),
		},
	}
}

// replyRules are the rules that say something about answers.
func replyRules(rules []config.Rule) (list []agents.ReplyRule) {
	for i := range rules {
		if word := rules[i].ApproveReplies; word != "" {
			list = append(list, agents.ReplyRule{Rule: rules[i].Identity(), ApproveReplies: word})
		}
	}
	return list
}

func orElse(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

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

// newLLM makes an agent that answers with a model and the tools of MCP servers.
func (s *Server) newLLM(entry config.Agent) (agents.Agent, error) {
	table := entry.LLM
	provider, err := llm.Connect(llm.Connection{
		API: table.Provider, BaseURL: table.BaseURL, APIKey: table.APIKey.Reveal(), Client: s.client,
		TimeLimit: table.CallTimeout, IdleLimit: table.IdleTimeout,
		Retry: llm.Retry{Attempts: table.Attempts, Base: table.RetryBase, Max: table.RetryMax},
	})
	if err != nil {
		return nil, err
	}
	tools, err := s.newTools(entry.MCP)
	if err != nil {
		return nil, err
	}
	outside, err := s.newClientTools(entry)
	if err != nil {
		return nil, err
	}
	tools = append(tools, outside...)
	if len(table.Agents) > 0 {
		asking, err := llm.Asking(table.Agents)
		if err != nil {
			return nil, err
		}
		tools = append(tools, asking)
	}
	return llm.New(llm.Options{
		Provider: provider, Model: table.Model, System: table.System, MaxTokens: table.MaxTokens, MaxTurns: table.MaxTurns,
		ToolCalls: table.MaxToolCalls, WallClock: table.WallClock, Temperature: table.Temperature, Whole: !table.Streaming,
		Tools: tools, Approvals: llm.ByDemand{Tools: tools, Claims: s.store.State()},
		Compaction: s.compaction(table.Compaction), Actions: actions(table.Actions), Price: llm.Price(table.Price),
		ToolPolicy: toolPolicy(table.ToolPolicy, entry.ClientTools),
		Files:      s.blobs, Client: s.client, Limits: s.limits(),
	})
}

const (
	archiveNamespace = "agents.archive" // turn id, "/", id of the archive → list of envelopes
	archiveLife      = 30 * 24 * time.Hour
)

// archive keeps what was taken out of conversations that were too long.
type archive struct{ server *Server }

// Keep stores messages under the turn.
func (a archive) Keep(ctx context.Context, turn agents.Turn, id string, items []envelope.Envelope) error {
	body, err := json.Marshal(items)
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return a.server.store.State().Put(ctx, archiveNamespace, turn.ID+"/"+id, body, time.Now().Add(archiveLife))
}

func (s *Server) compaction(table config.Compaction) *llm.Compaction {
	if !table.Enabled {
		return nil
	}
	return &llm.Compaction{
		Threshold: int(table.Threshold), Keep: table.KeepMessages, ArchiveOver: int(table.ArchiveOver), Model: table.Model, Archive: archive{s},
	}
}

// actions reads the three lists. Validation has made sure that nothing is in two of them.
func actions(table config.Actions) llm.Actions {
	read := llm.Actions{Tools: map[string]string{}, Categories: map[string]string{}}
	for policy, entries := range map[string][]string{"direct": table.Direct, "preview": table.Preview, "forbidden": table.Forbidden} {
		for _, entry := range entries {
			if category, is := strings.CutPrefix(entry, "category:"); is {
				read.Categories[category] = policy
				continue
			}
			read.Tools[entry] = policy
		}
	}
	return read
}

// toolPolicy is the operator's table. Client tools are declared by the operator alone, which is the opt-in that the
// policy wants for tools that run outside.
func toolPolicy(table config.ToolPolicy, outside []config.ClientTool) map[string]any {
	for _, one := range outside {
		table.RuntimeTools = append(slices.Clip(table.RuntimeTools), clienttool.Namespace+one.Name)
	}
	list := func(words []string) []any {
		values := make([]any, len(words))
		for i, word := range words {
			values[i] = word
		}
		return values
	}
	return map[string]any{
		"mode": table.Mode, "tools": list(table.Tools), "categories": list(table.Categories),
		"mandatory_tools": list(table.MandatoryTools), "mandatory_categories": list(table.MandatoryCategories),
		"allow_only": list(table.AllowOnly), "deny": list(table.Deny),
		"runtime_tools": list(table.RuntimeTools), "runtime_categories": list(table.RuntimeCategories),
		"allow_write_tools": table.AllowWriteTools,
	}
}

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
