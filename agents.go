package inbox

import (
	"fmt"
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
func (s *Server) configuredAgents() (*agents.Registry, error) {
	registry := agents.NewRegistry()
	var err error
	if s.pull, err = pull.New(pull.Options{Tokens: s.store, Mailbox: s.store.State(), Scope: exchange.TokenPull, Limits: s.limits()}); err != nil {
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
		err = registry.Add(agents.Entry{Agent: agent, Profile: profile(s.config, entry), Settings: settings(entry)})
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", entry.Name, err)
		}
	}
	return registry, nil
}

func profile(c *Config, entry config.Agent) exchange.AgentProfile {
	access := entry.AccessPolicy()
	return exchange.AgentProfile{
		IdentityPolicy: &access,
		Name:           entry.Name, Address: identity.Address{Local: entry.Name, Domain: c.Domain}.String(),
		DisplayName: entry.DisplayName, Summary: entry.Summary, Version: "1.0.0", Kind: entry.Kind, CreatedAt: startOfEpoch,
		Skills: []exchange.Skill{{
			ID: "conversation", Name: "Conversation", Description: orElse(entry.Summary, "Answers messages."), Tags: []string{entry.Kind},
		}},
	}
}

// startOfEpoch stands in the published documents where an agent's creation is not known: they must not change with
// every start.
var startOfEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func settings(entry config.Agent) agents.Settings {
	return agents.Settings{
		Unverified: entry.Unverified, TimeLimit: entry.Timeout, AnswerAgents: entry.AnswerAgents,
		Access: entry.AccessPolicy(), MaxHops: entry.MaxHops, HistoryScope: entry.History.Scope,
		Approvers: entry.Approvers, ApproveReplies: entry.ApproveReplies, ReplyRules: replyRules(entry.Rules),
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
