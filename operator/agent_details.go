package operator

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"inbox/agents/upstream"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/internal/fault"
	"inbox/operator/doctor"
)

// AgentDetails is one agent with the ways that lead to it and the settings that decide about its messages. No secret is in it.
type AgentDetails struct {
	AgentSummary

	Ways       AgentWays      `json:"ways"`
	Settings   []AgentSetting `json:"settings"`
	Rules      []string       `json:"rules"`      // in the order in which they are asked
	Tools      []string       `json:"tools"`      // MCP servers as name/*, client tools by their full names
	Connectors []Connector    `json:"connectors"` // that may hand it messages
}

// AgentWays are the ways by which others reach an agent.
type AgentWays struct {
	Handle string `json:"handle"`         // in the fediverse
	Mail   string `json:"mail,omitempty"` // empty = the server takes no mail
	Page   string `json:"page"`           // public page, as people see the agent
	Actor  string `json:"actor"`          // document of the account in the fediverse
	Card   string `json:"card"`           // agent card of A2A
}

// AgentSetting is a key of the table of an agent with the value that holds.
type AgentSetting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Details describes one agent. fault.NotFound when there is none of that name.
func (a Agents) Details(ctx context.Context, name string) (AgentDetails, error) {
	c := a.config()
	agent, err := configuredAgent(c, name)
	if err != nil {
		return AgentDetails{}, err
	}
	found, err := a.List(ctx, AgentFilter{Name: agent.Name})
	if err != nil {
		return AgentDetails{}, err
	}
	if len(found) == 0 {
		return AgentDetails{}, fault.Newf(fault.NotFound, "there is no agent %q any more", name)
	}

	details := AgentDetails{AgentSummary: found[0], Ways: waysOf(c, agent), Settings: settingsOf(agent), Rules: []string{}, Tools: []string{}, Connectors: []Connector{}}
	for i := range agent.Rules {
		details.Rules = append(details.Rules, ruleText(agent.Rules[i]))
	}
	for i := range agent.MCP {
		details.Tools = append(details.Tools, agent.MCP[i].Name+"/*")
	}
	for i := range agent.ClientTools {
		details.Tools = append(details.Tools, agent.ClientTools[i].FullName())
	}
	for _, connector := range (Connectors{a.config}).List() {
		if connector.leadsTo(agent.Name) {
			details.Connectors = append(details.Connectors, connector)
		}
	}
	return details, nil
}

// leadsTo reports whether the connector may hand messages to an agent.
func (c Connector) leadsTo(agent string) bool {
	return slices.ContainsFunc(c.Agents, func(name string) bool { return strings.EqualFold(name, agent) })
}

func waysOf(c *config.Config, agent *config.Agent) AgentWays {
	ways := AgentWays{
		Handle: identity.Address{Local: agent.Name, Domain: c.Domain}.String(),
		Page:   c.PublicURL + "/@" + agent.Name, Actor: c.PublicURL + "/agents/" + agent.Name,
		Card: c.PublicURL + "/a2a/" + agent.Name + "/.well-known/agent-card.json",
	}
	if c.SMTP.Listen != "" || c.HostedBy != "" {
		ways.Mail = agent.Name + "@" + identity.HostOf(c.Domain)
	}
	return ways
}

func settingsOf(agent *config.Agent) (settings []AgentSetting) {
	for _, one := range []AgentSetting{
		{"kind", agent.Kind}, {config.KindNamed(agent.Kind).BackEnd, upstream.WithoutQuery(agent.BackEnd())}, {"model", agent.LLM.Model},
		{"access", agent.Access}, {"unverified", agent.Unverified}, {"follows", agent.Follows}, {"followers_only", strconv.FormatBool(agent.FollowersOnly)},
		{"answer_agents", strconv.FormatBool(agent.AnswerAgents)}, {"approve_replies", agent.ApproveReplies}, {"approvers", strings.Join(agent.Approvers, ", ")},
		{"timeout", agent.Timeout.String()}, {"ack_after", agent.AckAfter.String()}, {"max_hops", strconv.Itoa(agent.MaxHops)}, {"show_tools", agent.ShowTools},
	} {
		if one.Key != "" && one.Value != "" {
			settings = append(settings, one)
		}
	}
	return settings
}

// ExamineAgent looks whether what answers for an agent is there and which tools it has; see doctor.ExamineAgent. fault.NotFound when there
// is no such agent.
func (o *Operator) ExamineAgent(ctx context.Context, name string) ([]doctor.Finding, error) {
	c := o.options.Current()
	agent, err := configuredAgent(c, name)
	if err != nil {
		return nil, err
	}
	return o.Doctor.ExamineAgent(ctx, c, agent), nil
}
