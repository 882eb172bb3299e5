package inbox

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"inbox/adapters/a2a"
	"inbox/adapters/activitypub"
	"inbox/adapters/bridge"
	"inbox/adapters/tasks"
	"inbox/agents"
	"inbox/agents/clienttool"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/safehttp"
	"inbox/internal/webtoken"
	"inbox/normalized"
	"inbox/operator"
)

// settings are what a reload replaces: all that follows from the changeable part of the configuration, in one value. It is made whole
// before it comes into force and never changes afterwards; who decides something reads it once.
type settings struct {
	config *Config // changeable keys as read last, the others as at the start

	agents      *agents.Table
	registered  []agents.Entry                // of the embedding program, which no file has
	clientTools map[string]*clienttool.Source // by the agent's name
	toolKind    func(agent, name string) string

	validator  *identity.Validator
	webTokens  *webtoken.Verifier
	caller     pipeline.Caller
	callClient *safehttp.Client // of caller
	connectors []bridge.Connector
	targets    *tasks.Targets

	limiters pipeline.Limiters
	quotas   pipeline.Quotas
	bounds   moderation.MeterOptions
}

// newSettings are those of a node that has no parts yet.
func newSettings(config *Config) *settings { return &settings{config: config, agents: &agents.Table{}} }

// now returns the settings that are in force.
func (r *resources) now() *settings { return r.live.Load() }

// table returns what the configuration says about an agent.
func (s *settings) table(name string) config.Agent {
	for _, agent := range s.config.Agents {
		if strings.EqualFold(agent.Name, name) {
			return agent
		}
	}
	return config.Agent{Follows: activitypub.FollowAccept} // an agent of an embedding program
}

// checkDefaultAgent refuses a default agent that is not there, now that all agents are.
func (s *settings) checkDefaultAgent() error {
	name := s.config.A2A.DefaultAgent
	if _, known := s.agents.Lookup(name); name != "" && !known {
		return fmt.Errorf("a2a.default_agent: there is no agent %q: write the name of one of [[agents]]", name)
	}
	return nil
}

// build makes the settings of a configuration. Nothing of them is in force, and an error leaves nothing behind.
func (e *engine) build(ctx context.Context, config *Config) (_ *settings, _ *builder, err error) {
	before := e.now()
	b := &builder{agentSet: e.agentSet, config: config, clientTools: map[string]*clienttool.Source{}}
	defer func() {
		if err != nil {
			b.discard()
		}
	}()

	next := &settings{
		config: config, registered: before.registered, clientTools: b.clientTools, toolKind: clientToolKinds(config.Agents),
		limiters: e.limiters(config), quotas: quotas(config), bounds: bounds(config),
	}
	if err := e.buildEdges(next, before); err != nil {
		return nil, nil, err
	}
	if next.agents, err = b.table(ctx, before); err != nil {
		return nil, nil, err
	}
	for _, agent := range next.agents.Entries() {
		if e.activitypubName(agent.Profile.Name) {
			return nil, nil, fmt.Errorf("agent %s: the server's own account has this name: choose another one", agent.Profile.Name)
		}
	}
	return next, b, nil
}

// buildEdges makes what checks and calls others. Parts whose keys are as before are kept, with what they remember of others: keys of
// issuers, open connections.
func (e *engine) buildEdges(next, before *settings) (err error) {
	config, earlier := next.config, before.config
	began := before.validator != nil
	next.validator, next.webTokens, next.connectors, next.targets = before.validator, before.webTokens, before.connectors, before.targets
	next.caller, next.callClient = before.caller, before.callClient

	if !began || !reflect.DeepEqual(config.Trust, earlier.Trust) {
		if next.validator, err = e.newValidator(config); err != nil {
			return err
		}
	}
	if !began || !reflect.DeepEqual(config.A2A.Issuers, earlier.A2A.Issuers) {
		if next.webTokens, err = e.newWebTokens(config); err != nil {
			return err
		}
	}
	if !began || !reflect.DeepEqual(config.Connectors, earlier.Connectors) {
		if next.connectors, err = e.connectors(config); err != nil {
			return err
		}
	}
	if !began || !reflect.DeepEqual(config.Targets, earlier.Targets) {
		if next.targets, err = targets(config); err != nil {
			return err
		}
	}
	if !began || !reflect.DeepEqual(config.Peers, earlier.Peers) {
		caller, client, err := e.newCaller(config)
		if err != nil {
			return err
		}
		next.caller, next.callClient = listedCaller{caller, e.lists}, client
	}
	return nil
}

// activitypubName reports whether an agent would have the name of the server's own account.
func (e *engine) activitypubName(name string) bool {
	return strings.EqualFold(name, strings.Trim(strings.ReplaceAll(identity.HostOf(e.config.Domain), ":", "-"), "[]"))
}

// begin puts the settings of the start in force.
func (e *engine) begin(ctx context.Context) error {
	next, b, err := e.build(ctx, e.config)
	if err != nil {
		return err
	}
	e.enforce(next, b)
	return nil
}

// enforce puts settings in force. What only the earlier ones used ends with its last user.
func (e *engine) enforce(next *settings, b *builder) {
	next.agents.Hold()
	for _, commit := range b.commits {
		commit()
	}

	before := e.live.Swap(next)
	e.clientTools.Open(next.clientTools)
	_ = e.level.UnmarshalText([]byte(next.config.Log.Level)) // the validation has let only levels pass
	before.agents.Release()
	e.dropIdle(before, next)
}

// dropIdle closes the idle connections of clients that are not used any more. Those that are busy end by themselves.
func (e *engine) dropIdle(before, next *settings) {
	if before.callClient != nil && before.callClient != next.callClient {
		before.callClient.Close()
	}
	used := map[exchange.WebClient]bool{e.client: true}
	for _, one := range next.connectors {
		used[one.Web] = true
	}
	for _, one := range before.connectors {
		if client, is := one.Web.(*safehttp.Client); is && !used[one.Web] {
			client.Close()
		}
	}
}

// register adds an agent of the embedding program.
func (e *engine) register(entry agents.Entry) error {
	e.reloading.Lock()
	defer e.reloading.Unlock()
	before := e.now()
	table, err := agents.NewTable(append(before.agents.Entries(), entry)...)
	if err != nil {
		return err
	}

	next := *before
	next.agents, next.registered = table, slices.Concat(before.registered, []agents.Entry{entry})
	table.Hold()
	e.live.Store(&next)
	before.agents.Release()
	return nil
}

// endAgents ends what the agents hold. Nothing runs any more.
func (e *engine) endAgents() {
	last := *e.now()
	e.live.Swap(newSettings(last.config)).agents.Release()
	e.ending.Wait()
	e.closeScratch()
}

// reload reads the configuration again and puts its changeable part in force, for all domains of the node. An error changes nothing, and
// says where it is wrong.
func (e *engine) reload(ctx context.Context) (operator.Reloaded, error) {
	if e.top != nil {
		return e.top.reload(ctx)
	}
	e.reloading.Lock()
	defer e.reloading.Unlock()

	answer, err := e.tryReload(ctx)
	if err != nil {
		e.logger.ErrorContext(ctx, "the configuration was read again and changes nothing, because it is wrong", "file", e.config.File, "error", err)
		return answer, err
	}
	e.logger.InfoContext(ctx, "the configuration was read again", "file", e.config.File, "changed", strings.Join(answer.Changed, " "),
		"unchanged_until_restart", strings.Join(answer.UnchangedUntilRestart, " "))
	return answer, nil
}

func (e *engine) tryReload(ctx context.Context) (answer operator.Reloaded, err error) {
	mixed, difference, err := e.now().config.Reload()
	if err != nil {
		return answer, err
	}

	answer = operator.Reloaded{
		File: e.config.File, Changed: append([]string{}, difference.Changed...),
		UnchangedUntilRestart: append([]string{}, difference.UnchangedUntilRestart...),
	}
	if len(difference.Changed) == 0 {
		return answer, nil
	}

	// All domains are made ready before the first of them changes.
	type change struct {
		of   *engine
		next *settings
		made *builder
	}
	var changes []change
	defer func() {
		if err != nil {
			for _, one := range changes {
				one.made.discard()
			}
		}
	}()
	for _, one := range append([]*engine{e}, e.further...) {
		its, known := mixed.WithDomain(one.config.Domain)
		if !known {
			continue // it was gone from the settings before; its end needs a restart
		}
		next, b, err := one.build(ctx, its)
		if err != nil {
			return operator.Reloaded{}, err
		}
		changes = append(changes, change{one, next, b})
		if err := next.checkDefaultAgent(); err != nil {
			return operator.Reloaded{}, err
		}
	}

	for _, one := range changes {
		one.of.enforce(one.next, one.made)
		one.of.queue.Wake(pipeline.JobKind)
	}
	return answer, nil
}

// currentCaller calls agents elsewhere with the peers of now.
type currentCaller struct{ *resources }

// Call is listedCaller.Call.
func (c currentCaller) Call(ctx context.Context, d exchange.Dispatch) (normalized.Response, error) {
	return c.now().caller.Call(ctx, d)
}

// currentValidator checks evidence against the trusted issuers of now.
type currentValidator struct{ *resources }

// Validate is that of identity.Validator.
func (v currentValidator) Validate(ctx context.Context, offered identity.Offered, recipient identity.Recipient) identity.Validation {
	return v.now().validator.Validate(ctx, offered, recipient)
}

// Covers is that of identity.Validator.
func (v currentValidator) Covers(evidence identity.Evidence) bool {
	return v.now().validator.Covers(evidence)
}

// currentTokens checks signed tokens against the issuers of now.
type currentTokens struct{ *resources }

// Verify is that of webtoken.Verifier.
func (t currentTokens) Verify(ctx context.Context, presented webtoken.Presented) (webtoken.Claims, error) {
	return t.now().webTokens.Verify(ctx, presented)
}

var _ a2a.Verifier = currentTokens{}
