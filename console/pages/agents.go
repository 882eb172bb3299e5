package pages

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"

	"inbox/console/account"
	"inbox/engine/admission"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
	"inbox/operator/doctor"
)

func (p *Pages) agentRoutes() []httpserver.Route {
	agent := at("agents") + "/{agent}"
	return []httpserver.Route{
		p.page(exchange.RoleRead, at("agents"), p.agents),
		p.page(exchange.RoleAdmin, at("agents", "new"), p.newAgent),
		p.act(exchange.RoleAdmin, at("agents", "new"), true, p.addAgent),
		p.page(exchange.RoleRead, at("agents", "tokens"), p.tokens),
		p.act(exchange.RoleAdmin, at("agents", "tokens"), true, p.createToken),
		p.act(exchange.RoleAdmin, at("agents", "tokens", "revoke"), true, p.revokeToken),
		p.page(exchange.RoleRead, agent, p.agent),
		p.page(exchange.RoleRead, agent+"/access", p.agentAccess),
		p.page(exchange.RoleWork, agent+"/examination", p.examineAgent),
		p.act(exchange.RoleAdmin, agent+"/pause", false, p.pauseAgent),
		p.act(exchange.RoleAdmin, agent+"/resume", false, p.resumeAgent),
		p.act(exchange.RoleAdmin, agent+"/key", true, p.rotateAgentKey),
		p.act(exchange.RoleWork, agent+"/follows", false, p.decideFollow),
		p.act(exchange.RoleWork, agent+"/say", false, p.sayToAgent),
		p.act(exchange.RoleWork, agent+"/simulate", false, p.simulate),
		p.page(exchange.RoleAdmin, agent+"/remove", p.planRemoval),
		p.act(exchange.RoleAdmin, agent+"/remove", true, p.removeAgent),
	}
}

// agentsView is the list of all agents.
type agentsView struct {
	Agents   []operator.AgentSummary
	MayAdmin bool
}

func (p *Pages) agents(w http.ResponseWriter, r *http.Request, s account.Session) error {
	found, err := p.Operator.Agents.List(r.Context(), operator.AgentFilter{})
	if err != nil {
		return err
	}
	v := agentsView{Agents: found, MayAdmin: s.Role >= exchange.RoleAdmin}
	return p.show(w, r, s, view{Title: text(r.Context(), "Agents"), Section: sectionAgents}, agentsPage(v))
}

// agentState is a word for whether an agent works.
func agentState(ctx context.Context, agent operator.AgentSummary) (kind, word string) {
	switch {
	case agent.Paused != nil:
		return design.Warn, text(ctx, "Paused")
	case agent.PausedWithAll != nil:
		return design.Warn, text(ctx, "Paused with all")
	case agent.Down != nil:
		return design.Bad, text(ctx, "Down")
	}
	return design.OK, text(ctx, "Works")
}

// agentView is one agent.
type agentView struct {
	operator.AgentDetails

	Keys      []operator.PublishedKey
	Waiting   []operator.Follow
	Followers []operator.Follow
	Next      string // address of more followers

	CSRF     string
	MayWork  bool
	MayAdmin bool
	Path     string
	Key      string // names the message that the form of this page sends
	Channels []string
}

func (p *Pages) agent(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, err := p.readAgent(r, s)
	if err != nil {
		return err
	}
	return p.show(w, r, s, view{Title: v.Name, Section: sectionAgents}, agentPage(v))
}

func (p *Pages) readAgent(r *http.Request, s account.Session) (v agentView, err error) {
	ctx := r.Context()
	if v.AgentDetails, err = p.Operator.Agents.Details(ctx, httpserver.Param(r, "agent")); err != nil {
		return v, err
	}
	if v.Keys, err = p.Operator.Keys.List(ctx); err != nil {
		return v, err
	}
	if v.Waiting, err = p.Operator.Follows.List(ctx, operator.FollowFilter{Agent: v.Name, State: operator.FollowWaiting, Limit: pageSize}); err != nil {
		return v, err
	}
	followers, err := p.Operator.Follows.List(ctx, operator.FollowFilter{
		Agent: v.Name, State: operator.FollowFollowing, After: r.URL.Query().Get("after"), Limit: pageSize + 1,
	})
	if err != nil {
		return v, err
	}
	var next string
	if v.Followers, next = exchange.NextPage(followers, pageSize, operator.Follow.Cursor); next != "" {
		v.Next = query(r, "after", next)
	}

	v.CSRF, v.MayWork, v.MayAdmin = s.CSRF, s.Role >= exchange.RoleWork, s.Role >= exchange.RoleAdmin
	v.Path, v.Key, v.Channels = at("agents", v.Name), rand.Text(), p.Channels
	return v, nil
}

// agentPath is the page of the agent that a request is about.
func agentPath(r *http.Request) (name, path string) {
	name = httpserver.Param(r, "agent")
	return name, at("agents", name)
}

// maxPauseReason bounds why an agent rests, in bytes, as the operator API does.
const maxPauseReason = 500

func (p *Pages) pauseAgent(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	name, path := agentPath(r)
	reason := strings.TrimSpace(r.PostFormValue("reason"))
	if len(reason) > maxPauseReason {
		return fault.InField("reason", "must be at most 500 bytes")
	}
	if err := p.Operator.Pauses.Begin(r.Context(), name, reason); err != nil {
		return err
	}
	return p.done(w, r, path, text(r.Context(), "{agent} rests now.", "agent", name))
}

func (p *Pages) resumeAgent(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	name, path := agentPath(r)
	if err := p.Operator.Pauses.End(r.Context(), name); err != nil {
		return err
	}
	return p.done(w, r, path, text(r.Context(), "{agent} works again.", "agent", name))
}

func (p *Pages) rotateAgentKey(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	name, path := agentPath(r)
	if _, err := p.Operator.Agents.Details(r.Context(), name); err != nil {
		return err
	}
	key, err := p.Operator.Node.RotateActorKey(r.Context(), name)
	if err != nil {
		return err
	}
	return p.done(w, r, path, text(r.Context(), "The account signs with a new key: {key}", "key", key))
}

func (p *Pages) decideFollow(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	name, path := agentPath(r)
	actor, accept := r.PostFormValue("actor"), r.PostFormValue("accept") == "true"
	if err := p.Operator.Follows.Decide(r.Context(), name, actor, accept); err != nil {
		return err
	}
	words := text(r.Context(), "{actor} is told that it may not follow.", "actor", design.VisibleLine(actor))
	if accept {
		words = text(r.Context(), "{actor} follows {agent} now.", "actor", design.VisibleLine(actor), "agent", name)
	}
	return p.done(w, r, path, words)
}

func (p *Pages) sayToAgent(w http.ResponseWriter, r *http.Request, s account.Session) error {
	name, _ := agentPath(r)
	turn, err := p.Say(r.Context(), name, s.Token(), r.PostFormValue("text"), r.PostFormValue("key"))
	if err != nil {
		return err
	}
	return p.done(w, r, at("messages", turn), text(r.Context(), "{agent} has the message. Load the page again to see the answer.", "agent", name))
}

// findingsView is what an examination of an agent found.
type findingsView struct {
	Agent    string
	Path     string
	Findings []doctor.Finding
}

func (p *Pages) examineAgent(w http.ResponseWriter, r *http.Request, s account.Session) error {
	name, path := agentPath(r)
	found, err := p.Operator.ExamineAgent(r.Context(), name)
	if err != nil {
		return err
	}
	title := text(r.Context(), "Examination of {agent}", "agent", name)
	return p.show(w, r, s, view{Title: title, Section: sectionAgents}, findingsPage(findingsView{name, path, found}))
}

// accessView is a question who would be let in, with its answer.
type accessView struct {
	Agent    string
	Path     string
	Channels []string
	Channel  string
	Asked    operator.AccessQuestion
	Answer   operator.AccessAnswer
}

func (p *Pages) agentAccess(w http.ResponseWriter, r *http.Request, s account.Session) error {
	name, path := agentPath(r)
	field := func(name string) string { return strings.TrimSpace(r.URL.Query().Get(name)) }
	v := accessView{Agent: name, Path: path, Channels: p.Channels, Channel: field("channel")}
	v.Asked = operator.AccessQuestion{
		Agent: name, Purpose: field("purpose"), Address: field("address"), Method: field("method"), Subject: field("subject"), Issuer: field("issuer"), Automatic: field("automatic") != "",
	}

	var err error
	if v.Answer, err = p.Operator.Why(r.Context(), v.Asked, v.Channel); err != nil {
		return err
	}
	title := text(r.Context(), "Who {agent} lets in", "agent", name)
	return p.show(w, r, s, view{Title: title, Section: sectionAgents}, accessPage(v))
}

// outcomeOf is what becomes of a sender, in a word.
func outcomeOf(ctx context.Context, outcome admission.Outcome) (kind, words string) {
	switch outcome {
	case admission.Allowed:
		return design.OK, text(ctx, "Would be let in")
	case admission.Held:
		return design.Warn, text(ctx, "Would wait for you")
	case admission.Silent:
		return design.Warn, text(ctx, "Would be kept and never answered")
	}
	return design.Bad, text(ctx, "Would be refused")
}

// detailOf is what a check found. Why an agent is paused is what its operator wrote.
func detailOf(ctx context.Context, step operator.AccessStep) string {
	if step.Check == admission.CheckPause {
		return step.Detail
	}
	return sentence(ctx, step.Detail)
}

// stepOf is a check with its result.
func stepOf(ctx context.Context, step operator.AccessStep) (kind, check, result string) {
	names := map[string]string{
		operator.CheckEvidence: text(ctx, "Proof"), admission.CheckPause: text(ctx, "Pause of the agent"), admission.CheckLists: text(ctx, "Blocked and allowed"),
		admission.CheckUnverified: text(ctx, "Senders without proof"), admission.CheckSetting: text(ctx, "Without a rule"),
		admission.CheckAutomatic: text(ctx, "Automatic mail"), admission.CheckApprover: text(ctx, "Approvers"),
	}
	check = names[step.Check]
	if step.Check == admission.CheckRule {
		check = text(ctx, "Rule {n}", "n", step.Rule)
	}

	switch step.Result {
	case admission.Allows:
		return design.OK, check, text(ctx, "Lets in")
	case admission.Holds:
		return design.Warn, check, text(ctx, "Lets wait")
	case admission.Denies:
		return design.Bad, check, text(ctx, "Keeps out")
	case admission.Ignores:
		return design.Warn, check, text(ctx, "Never answers")
	}
	return design.Plain, check, text(ctx, "Goes on")
}
