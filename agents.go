package inbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"inbox/agents"
	"inbox/agents/clienttool"
	"inbox/agents/pull"
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
