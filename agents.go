package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"inbox/adapters/activitypub"
	"inbox/adapters/chat"
	"inbox/agents"
	"inbox/agents/clienttool"
	"inbox/agents/command"
	"inbox/agents/echo"
	"inbox/agents/hook"
	"inbox/agents/llm"
	"inbox/agents/mcptool"
	"inbox/agents/pull"
	"inbox/agents/remote"
	"inbox/agents/runtime/envelope"
	"inbox/agents/runtime/tool"
	"inbox/agents/webhook"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/history"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/normalized"
	"inbox/operator"
)

// runMargin ends an exchange with a webhook or another agent before the run itself ends, so that the reason that is kept names the exchange.
const runMargin = 500 * time.Millisecond

// agentSet is what the agents of this node share; the agents themselves are in the settings of now.
type agentSet struct {
	*trust

	registry    *agents.Registry
	pull        *pull.Service
	clientTools *clienttool.Service
	checkFiles  func(ctx context.Context, turnID string, parts []normalized.Part) error // set by the engine
	scratch     *command.Scratch                                                        // of command agents; nil until there is one

	ending  sync.WaitGroup // what agents that are gone held
	mu      sync.Mutex     // of what follows
	tools   map[*mcptool.Source]struct{}
	serving bool
}

// newAgents makes a set without agents. Wake is called when an agent can have more turns at once than before.
func newAgents(below *trust, wake func(agent string)) (_ *agentSet, err error) {
	a := &agentSet{trust: below, clientTools: clienttool.New(below.tokens), tools: map[*mcptool.Source]struct{}{}}
	a.registry = agents.RegistryOf(func() *agents.Table { return a.now().agents })
	a.pull, err = pull.New(pull.Options{Tokens: a.tokens, Mailbox: a.store.State(), Scope: exchange.TokenPull, Limits: a.limits(), Arrived: wake,
		Files: func(ctx context.Context, turnID string, parts []normalized.Part) error {
			return a.checkFiles(ctx, turnID, parts)
		},
	})
	return a, err
}

// sinceNamespace holds when each agent was first configured here: name → RFC 3339.
const sinceNamespace = "agent.since"

// agentSince returns when an agent was first configured, and remembers it at its first start. Other servers show it as the
// age of the account, and judge it by that.
func (a *agentSet) agentSince(ctx context.Context, name string) (time.Time, error) {
	state, key := a.store.State(), strings.ToLower(name)
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

func agentSettings(entry config.Agent) agents.Settings {
	settings := operator.AccessSettings(&entry)
	settings.TimeLimit, settings.AnswerAgents, settings.MaxHops = entry.Timeout, entry.AnswerAgents, entry.MaxHops
	settings.ApproveReplies, settings.ReplyRules = entry.ApproveReplies, replyRules(entry.Rules)
	settings.Retry = agents.RetryPolicy{
		Schedule: entry.Retry.Schedule, Waiting: entry.Retry.Waiting, Rate: float64(entry.Retry.Rate), Probe: entry.Retry.Probe,
		StaleAfter: entry.Retry.StaleAfter, Stale: entry.Retry.Stale,
	}
	settings.AckAfter, settings.AckText, settings.AckLike, settings.ShowTools = entry.AckAfter, entry.AckText, entry.AckLike, entry.ShowTools
	settings.HistoryScope = entry.History.Scope
	settings.History = history.Policy{
		KeepHead: entry.History.KeepHead, Window: entry.History.Window, Slide: entry.History.Slide,
		MaxBytes: int(entry.History.MaxBytes), MaxAge: entry.History.MaxAge, Alternation: history.Alternation(entry.History.Alternation),
	}
	return settings
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

// builder makes the agents of one configuration. Nothing of it is in force before commit.
type builder struct {
	*agentSet
	config *Config

	held        func()                        // ends what the agent under way holds
	clientTools map[string]*clienttool.Source // by the agent's name
	fresh       []*agents.Held
	commits     []func()
}

// discard ends what was made for a configuration that does not come into force.
func (b *builder) discard() {
	for _, held := range b.fresh {
		held.Discard()
	}
}

// holds adds to what ends with the agent under way.
func (b *builder) holds(end func()) {
	earlier := b.held
	b.held = func() {
		if end(); earlier != nil {
			earlier()
		}
	}
}

// table makes the agents. Those of before whose back end is configured as it was go on, with the settings of now.
func (b *builder) table(ctx context.Context, before *settings) (*agents.Table, error) {
	list := make([]agents.Entry, 0, len(b.config.Agents)+len(before.registered))
	for i, table := range b.config.Agents {
		entry, err := b.entry(ctx, table, before)
		if err != nil {
			return nil, b.refused(i, err)
		}
		list = append(list, entry)
	}

	made, err := agents.NewTable(append(list, before.registered...)...)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	return made, nil
}

// refused is the error of an agent that cannot be made. The fault of a setting names the key in the table of the agent's kind.
func (b *builder) refused(number int, err error) error {
	table := b.config.Agents[number]
	wrong, is := errors.AsType[*fault.Fault](err)
	if !is || wrong.Field == "" {
		return fmt.Errorf("agent %s: %w", table.Name, err)
	}
	key := fmt.Sprintf("agents[%d].", number)
	if !strings.HasPrefix(wrong.Field, "mcp[") && !strings.HasPrefix(wrong.Field, "client_tools") {
		key += table.Kind + "."
	}
	return b.config.Problem(key+wrong.Field, wrong.Public)
}

func (b *builder) entry(ctx context.Context, table config.Agent, before *settings) (entry agents.Entry, err error) {
	entry.Settings, entry.Profile = agentSettings(table), profile(b.config, table)
	if entry.Profile.CreatedAt, err = b.agentSince(ctx, table.Name); err != nil {
		return entry, err
	}

	kept, known := before.agents.Lookup(table.Name)
	if known && reflect.DeepEqual(backEnd(table), backEnd(before.table(table.Name))) {
		entry.Agent, entry.Held = kept.Agent, kept.Held
		if source, is := before.clientTools[table.Name]; is {
			b.clientTools[table.Name] = source
		}
		return entry, nil
	}

	b.held = nil
	entry.Agent, err = b.newAgent(table)
	if closer, holds := entry.Agent.(interface{ Close() }); err == nil && holds {
		b.holds(closer.Close)
	}
	if end := b.held; end != nil {
		// Programs of tools may take their time to end, for which neither a run nor a reload waits.
		entry.Held = agents.NewHeld(func() { b.ending.Go(end) })
		b.fresh = append(b.fresh, entry.Held)
	}
	return entry, err
}

// backEnd is the part of a table [[agents]] of which its Agent is made: where it differs the agent is another one.
func backEnd(table config.Agent) config.Agent {
	return config.Agent{
		Name: table.Name, Kind: table.Kind, Timeout: table.Timeout, Webhook: table.Webhook, LLM: table.LLM, Command: table.Command,
		Remote: table.Remote, Pull: table.Pull, MCP: table.MCP, ClientTools: table.ClientTools,
	}
}

// newAgent makes the agent of a table [[agents]].
func (b *builder) newAgent(entry config.Agent) (agents.Agent, error) {
	switch entry.Kind {
	case "echo":
		return echo.New(), nil
	case "webhook":
		return webhook.New(webhook.Options{
			URL: entry.Webhook.URL, Secret: entry.Webhook.Secret.Reveal(), PreviousSecret: entry.Webhook.PreviousSecret.Reveal(),
			Events: entry.Webhook.Events,
			Client: b.client, TimeLimit: entry.Timeout - runMargin, Limits: b.limits(),
		})
	case "llm":
		return b.newLLM(entry)
	case "command":
		return b.newCommand(entry.Command)
	case "remote":
		return b.newRemote(entry.Remote, entry.Timeout)
	case "pull":
		agent, err := b.pull.NewAgent(entry.Name, pull.Settings{Lease: entry.Pull.Lease, MaxWait: entry.Pull.MaxWait})
		if err != nil {
			return nil, err
		}
		b.commits = append(b.commits, func() { b.pull.Open(agent) })
		b.holds(func() { b.pull.Close(agent) }) // its last run needs the routes
		return agent, nil
	}
	return nil, fmt.Errorf("kind %q is not known", entry.Kind)
}

func (a *agentSet) newCommand(table config.Command) (_ agents.Agent, err error) {
	if a.scratch == nil {
		if a.scratch, err = command.OpenScratch(filepath.Join(a.config.DataDir, "programs")); err != nil {
			return nil, err
		}
	}

	return command.New(command.Options{
		Program: table.Program, Arguments: table.Arguments, Environment: table.Environment, Directory: table.Directory,
		MemoryBytes: int64(table.MemoryBytes), Output: table.Output, Logger: a.logger, Limits: a.limits(), Scratch: a.scratch,
	})
}

// closeScratch ends with the agents. What stays is removed by the next process.
func (a *agentSet) closeScratch() {
	if a.scratch == nil {
		return
	}
	if err := a.scratch.Close(); err != nil {
		a.logger.Warn("files of programs are removed later", "error", err)
	}
}

func (a *agentSet) newRemote(table config.Remote, limit time.Duration) (agents.Agent, error) {
	base, err := url.Parse(a.config.PublicURL)
	if err != nil {
		return nil, fmt.Errorf("public_url: %w", err)
	}

	options := remote.Options{
		CardURL: table.CardURL, Client: a.client, State: a.store.State(), Token: table.Token.Reveal(), Blobs: a.blobs,
		BaseURL: base, Limits: a.limits(), TimeLimit: limit - runMargin, EndpointHosts: table.EndpointHosts,
		Assert: a.assert,
	}

	if table.TokenURL != "" {
		options.Credentials = &remote.ClientCredentials{
			TokenURL: table.TokenURL, ClientID: table.ClientID, ClientSecret: table.ClientSecret.Reveal(), Scopes: table.Scopes,
		}
	}

	return remote.New(options)
}

// newTools makes the source of an agent's MCP servers; they are started with the server.
func (b *builder) newTools(entry *config.Agent) ([]llm.Tools, error) {
	warn := warnOfUnmatched(b.logger, entry)
	if len(entry.MCP) == 0 {
		b.commits = append(b.commits, func() { warn(nil) })
		return nil, nil
	}

	servers := make([]mcptool.Server, 0, len(entry.MCP))
	for _, table := range entry.MCP {
		servers = append(servers, mcptool.Server{
			Name: table.Name, Command: table.Command, Arguments: table.Arguments, Environment: table.Environment, Directory: table.Directory,
			URL: table.URL, Token: table.Token.Reveal(), Timeout: table.Timeout, Tools: table.Tools, Preview: table.Preview,
			Forbidden: table.Forbidden, AtMostOnce: table.AtMostOnce,
		})
	}

	var source *mcptool.Source
	listed := func() { warn(source.Status()) }
	source, err := mcptool.New(servers, mcptool.Options{Client: b.client, Log: b.logger.With("agent", entry.Name), Version: Version, Listed: listed})
	if err != nil {
		return nil, err
	}

	b.commits = append(b.commits, func() { b.start(source) })
	b.holds(func() { b.stop(source) })
	return []llm.Tools{mcpTools{source}}, nil
}

// warnOfUnmatched returns what logs the entries of an agent's settings that match no tool, each once until it matches one. An approval under a
// wrong name would be missing without a word.
func warnOfUnmatched(logger *slog.Logger, entry *config.Agent) func(servers []mcptool.Status) {
	var mutex sync.Mutex
	var warned []config.UnmatchedTool
	return func(servers []mcptool.Status) {
		mutex.Lock()
		defer mutex.Unlock()
		served, unknown := map[string]string{}, []string{}
		for _, server := range servers {
			if server.TooMany || !server.Connected && len(server.Tools) == 0 {
				unknown = append(unknown, server.Server)
			}
			for _, name := range server.Tools {
				served[name] = llm.ToolName(name)
			}
		}

		unmatched := entry.UnmatchedTools(served, unknown)
		for _, one := range unmatched {
			if !slices.Contains(warned, one) {
				logger.Warn("a setting names a tool that the agent does not have", "setting", one.Setting, "reason", one.Detail)
			}
		}
		warned = unmatched
	}
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
func (b *builder) newLLM(entry config.Agent) (agents.Agent, error) {
	table := entry.LLM
	provider, err := llm.Connect(llm.Connection{
		API: table.Provider, BaseURL: table.BaseURL, APIKey: table.APIKey.Reveal(), Client: b.client,
		TimeLimit: table.CallTimeout, IdleLimit: table.IdleTimeout,
		Retry: llm.Retry{Attempts: table.Attempts, Base: table.RetryBase, Max: table.RetryMax},
	})
	if err != nil {
		return nil, err
	}

	tools, err := b.newTools(&entry)
	if err != nil {
		return nil, err
	}

	outside, err := b.newClientTools(entry)
	if err != nil {
		return nil, err
	}

	hooks, err := b.newHooks(entry, tools)
	if err != nil {
		return nil, err
	}

	tools = append(slices.Clip(tools), outside...)
	if len(table.Agents) > 0 {
		asking, err := llm.Asking(table.Agents)
		if err != nil {
			return nil, err
		}
		tools = append(tools, asking)
	}

	return llm.New(llm.Options{
		Provider: provider, Secret: b.tokenKey, Model: table.Model, System: table.System, MaxTokens: table.MaxTokens, MaxTurns: table.MaxTurns,
		ToolCalls: cmp.Or(table.Budgets.ToolCalls, table.MaxToolCalls), WallClock: cmp.Or(table.Budgets.WallClock, table.WallClock),
		Budgets: budgets(table.Budgets), Rules: rules(table.ToolCallRules), Hooks: hooks, Temperature: table.Temperature, Whole: !table.Streaming,
		Tools: tools, Approvals: llm.ByDemand{Tools: tools, Claims: b.store.State(), Secret: b.tokenKey},
		Compaction: b.compaction(table.Compaction), Actions: actions(table.Actions), Price: llm.Price(table.Price),
		ToolPolicy: toolPolicy(table.ToolPolicy, entry.ClientTools),
		Files:      b.blobs, Client: b.client, Limits: b.limits(),
	})
}

// newHooks makes the hooks of an agent. A mediator may hand calls of its own tools to programs outside, so their routes are opened.
func (b *builder) newHooks(entry config.Agent, own []llm.Tools) (hooks llm.Hooks, err error) {
	table := entry.LLM.Hooks
	if table.URL == "" {
		return hooks, nil
	}

	if table.Mediator {
		b.clientTools[entry.Name] = b.clientTools[entry.Name].Mediating(func(ctx context.Context) (list []tool.Entry, err error) {
			for _, source := range own {
				declared, err := source.Declarations(ctx, agents.Turn{})
				if err != nil {
					return nil, err
				}
				list = append(list, declared...)
			}
			return list, nil
		})
	}

	hooks = llm.Hooks{
		Mediator: table.Mediator, Completion: table.Completion, Observer: table.Observer, Proceed: table.OnFailure == "proceed",
	}
	if hooks.Hook, err = hook.New(hook.Options{
		URL: table.URL, Secret: table.Secret.Reveal(), PreviousSecret: table.PreviousSecret.Reveal(), Client: b.client, Timeout: table.Timeout,
	}); err != nil {
		wrong := fault.Of(err)
		return hooks, fault.InField("hooks."+wrong.Field, wrong.Public)
	}
	return hooks, nil
}

func rules(tables []config.ToolCallRule) []llm.Rule {
	list := make([]llm.Rule, len(tables))
	for i, table := range tables {
		list[i] = llm.Rule{
			ID: orElse(table.ID, "tool-call-rule"), AfterTool: table.AfterTool, LimitedTools: table.LimitedTools, MaxCalls: table.MaxCalls,
			RequireOneOf: table.RequireOneOf, RequireToolUse: table.RequireToolUse, MinToolCalls: table.MinToolCalls,
			FreeCalls: !table.GateCalls, FreeCompletion: !table.GateCompletion,
		}
	}
	return list
}

func budgets(table config.Budgets) llm.Budgets {
	read := llm.Budgets{Turns: table.Turns, Tokens: table.Tokens, Cost: table.Cost, Tools: map[string]int{}}
	for _, one := range table.Tools {
		read.Tools[one.Name] = one.Calls
	}
	return read
}

const (
	archiveNamespace = "agents.archive" // turn id, "/", id of the archive → list of envelopes
	archiveLife      = 30 * 24 * time.Hour
)

// archive keeps what was taken out of conversations that were too long.
type archive struct{ state *store.State }

// Keep stores messages under the turn.
func (a archive) Keep(ctx context.Context, turn agents.Turn, id string, items []envelope.Envelope) error {
	body, err := json.Marshal(items)
	if err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return a.state.Put(ctx, archiveNamespace, turn.ID+"/"+id, body, time.Now().Add(archiveLife))
}

func (a *agentSet) compaction(table config.Compaction) *llm.Compaction {
	if !table.Enabled {
		return nil
	}
	return &llm.Compaction{
		Threshold: int(table.Threshold), Keep: table.KeepMessages, ArchiveOver: int(table.ArchiveOver), Model: table.Model, Archive: archive{a.store.State()},
	}
}

func actions(table config.Actions) (read llm.Actions) {
	read.Tools, read.Categories = table.Policies()
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
func (b *builder) newClientTools(entry config.Agent) ([]llm.Tools, error) {
	if len(entry.ClientTools) == 0 {
		return nil, nil
	}

	tools := make([]clienttool.Tool, 0, len(entry.ClientTools))
	for _, table := range entry.ClientTools {
		tools = append(tools, clienttool.Tool{
			Name: table.Name, Description: table.Description, Parameters: []byte(table.Parameters), Timeout: table.Timeout,
			Bindings: []byte(table.ParameterBindings), Defaults: []byte(table.ParameterDefaults),
			Action: table.Action, Untrusted: table.Untrusted,
			DuplicatePolicy: table.Duplicates(), CompletionSignal: table.CompletionSignal,
			CapabilityScope: table.CapabilityScope, Environment: table.Environment,
		})
	}

	source, err := clienttool.NewSource(tools)
	if err != nil {
		return nil, err
	}

	b.clientTools[entry.Name] = source
	return []llm.Tools{source}, nil
}

func (a *agentSet) answersAgents(name string) bool {
	entry, known := a.registry.Lookup(name)
	return known && entry.Settings.AnswerAgents
}

// likes reports whether an agent acknowledges a note by liking it.
func (a *agentSet) likes(name string) bool {
	entry, known := a.registry.Lookup(name)
	return known && entry.Settings.AckLike
}

func (a *agentSet) agentTable(name string) config.Agent {
	return a.now().table(name)
}

func (a *agentSet) follows(name string) string { return a.agentTable(name).Follows }

func (a *agentSet) followersOnly(name string) bool { return a.agentTable(name).FollowersOnly }

// fediverseProfile is what the configuration says about an agent's account, with the picture that is drawn from its address where none is
// configured.
func (a *agentSet) fediverseProfile(name string) activitypub.Profile {
	profile := a.account(name)
	if agent, known := a.registry.Agent(name); known && profile.Icon == "" {
		profile.Icon, profile.IconSize = strings.TrimSuffix(a.config.PublicURL, "/")+design.AvatarAddress(agent.Name, agent.Address), design.PictureSize
	}
	return profile
}

// account is what the configuration says about an agent's account.
func (a *agentSet) account(name string) activitypub.Profile {
	for _, agent := range a.now().config.Agents {
		if agent.Name == name {
			f := agent.Fediverse
			return activitypub.Profile{
				Icon: f.Icon, Image: f.Image, Hidden: !f.Discoverable, Indexable: f.Indexable, AlsoKnownAs: f.AlsoKnownAs,
				QuotesByFans: f.Quotes == "followers",
			}
		}
	}
	return activitypub.Profile{}
}

// opening is what a chat with an agent begins with.
func (a *agentSet) opening(name string) chat.Opening {
	for _, agent := range a.now().config.Agents {
		if strings.EqualFold(agent.Name, name) {
			return chat.Opening{Greeting: agent.Greeting, Suggestions: agent.Suggestions}
		}
	}
	return chat.Opening{}
}

// listenerOf returns the agent if it wants to hear what became of its answers.
func listenerOf(entry agents.Entry) (agents.Listener, bool) {
	listener, is := entry.Agent.(agents.Listener)
	if choosy, able := entry.Agent.(interface{ Hears() bool }); is && able {
		is = choosy.Hears()
	}
	return listener, is
}

func (a *agentSet) listens(name string) bool {
	entry, _ := a.registry.Lookup(name)
	_, is := listenerOf(entry)
	return is
}

// aliasOf returns the agent that has a mail address as an alias; empty = none. The address is in lower case.
func (a *agentSet) aliasOf(address string) string {
	tables := a.now().config.Agents
	for i := range tables {
		if slices.Contains(tables[i].Aliases, address) {
			return tables[i].Name
		}
	}
	return ""
}

// answersLists reports whether an agent answers mail of mailing lists.
func (a *agentSet) answersLists(agent string) bool {
	if own := a.agentTable(agent).AnswerLists; own != nil {
		return *own
	}
	return a.now().config.Mail.AnswerLists
}

// followsReplyTo returns how far an agent follows a Reply-To.
func (a *agentSet) followsReplyTo(agent string) string {
	return orElse(a.agentTable(agent).ReplyTo, a.now().config.Mail.ReplyTo)
}

// repliesToAll reports whether an agent's mails go to all of To and Cc.
func (a *agentSet) repliesToAll(agent string) bool {
	if own := a.agentTable(agent).ReplyAll; own != nil {
		return *own
	}
	return a.now().config.Mail.ReplyAll
}

// maxHops is the ceiling of an agent for chains of agents.
func (a *agentSet) maxHops(name string) int {
	if entry, known := a.registry.Lookup(name); known {
		return entry.Settings.MaxHops
	}
	return agents.DefaultMaxHops
}

// takesGuests reports whether an agent takes messages of senders who prove nothing: it answers them, or they wait for the
// operator who wants that.
func (a *agentSet) takesGuests(name string) bool {
	entry, known := a.registry.Lookup(name)
	held := a.now().config.Chat.HoldGuests && entry.Settings.Unverified == agents.UnverifiedHold
	if !known || entry.Settings.Unverified != agents.UnverifiedAnswer && !held {
		return false
	}
	guest := identity.Address{Local: "guest", Domain: a.config.Domain}
	return entry.Settings.Access.Decide(identity.PurposeMessage, identity.Stated(guest.String()), nil).Allowed
}

// start connects to MCP servers, now or when the server runs.
func (a *agentSet) start(source *mcptool.Source) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tools[source] = struct{}{}
	if a.serving {
		source.Start()
	}
}

// stop ends the connections to MCP servers.
func (a *agentSet) stop(source *mcptool.Source) {
	a.mu.Lock()
	delete(a.tools, source)
	a.mu.Unlock()
	source.Close()
}

// serveTools keeps the connections to MCP servers until ctx ends.
func (a *agentSet) serveTools(ctx context.Context) error {
	a.mu.Lock()
	a.serving = true
	for source := range a.tools {
		source.Start()
	}
	a.mu.Unlock()

	<-ctx.Done()
	a.mu.Lock()
	a.serving = false
	left := slices.Collect(maps.Keys(a.tools))
	a.mu.Unlock()
	for _, source := range left {
		source.Close()
	}
	return ctx.Err()
}

// names returns the names of all agents.
func (a *agentSet) names() (list []string) {
	for _, agent := range a.registry.Agents() {
		list = append(list, agent.Name)
	}
	return list
}

// namesLocal reports whether a rule of an agent, its approvers or a list of the operator may be about the whole address of a sender
// with this local part.
func (a *agentSet) namesLocal(agent, local string) bool {
	entry, known := a.registry.Lookup(agent)
	if !known {
		return false
	}

	named := func(rule agents.ReplyRule) bool {
		return identity.AccessPolicy{Rules: []identity.Rule{rule.Rule}}.NamesLocal(local)
	}

	approves := func(address string) bool {
		parsed, err := identity.ParseAddress(address)
		return err == nil && strings.EqualFold(parsed.Local, local)
	}

	return entry.Settings.Access.NamesLocal(local) || slices.ContainsFunc(entry.Settings.ReplyRules, named) ||
		slices.ContainsFunc(entry.Settings.Approvers, approves) || a.lists.NamesLocal(local)
}
