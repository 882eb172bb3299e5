package pages

import (
	"net/http"
	"strings"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/operator"
)

// newAgentView is the form of a new agent, and what it would write.
type newAgentView struct {
	Wanted operator.NewAgent
	Plan   operator.FileChange
	Shown  bool // there is a plan
	Wrong  string
	CSRF   string
}

// newAgentOf reads the form of a new agent.
func newAgentOf(value func(name string) string) operator.NewAgent {
	field := func(name string) string { return strings.TrimSpace(value(name)) }
	return operator.NewAgent{
		Name: field("name"), Kind: field("kind"), Backend: field("backend"), Provider: field("provider"), Model: field("model"),
		Access: field("access"), Summary: field("summary"),
	}
}

// newAgent shows the form, and once it is filled in the difference that it makes.
func (p *Pages) newAgent(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := newAgentView{Wanted: newAgentOf(r.URL.Query().Get), CSRF: s.CSRF}
	if v.Wanted.Name != "" {
		var err error
		if v.Plan, err = p.Operator.PlanAgent(r.Context(), v.Wanted); err != nil {
			v.Wrong = faultWords(r.Context(), err)
		}
		v.Shown = err == nil
	}
	return p.show(w, r, s, view{Title: text(r.Context(), "New agent"), Section: sectionAgents}, newAgentPage(v))
}

func (p *Pages) addAgent(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	added, err := p.Operator.AddAgent(r.Context(), newAgentOf(r.PostFormValue))
	if err != nil {
		return err
	}
	words := text(r.Context(), "{agent} is there.", "agent", added.Agent)
	if added.SecretFile != "" {
		words += " " + text(r.Context(), "Its service checks requests with the secret in {file}.", "file", added.SecretFile)
	}
	return p.done(w, r, at("agents", added.Agent), words)
}

// removalView is what taking an agent out would change.
type removalView struct {
	Agent string
	Path  string
	Plan  operator.FileChange
	CSRF  string
}

func (p *Pages) planRemoval(w http.ResponseWriter, r *http.Request, s account.Session) error {
	name, path := agentPath(r)
	plan, err := p.Operator.PlanRemoval(r.Context(), name)
	if err != nil {
		return err
	}
	title := text(r.Context(), "Remove {agent}", "agent", name)
	return p.show(w, r, s, view{Title: title, Section: sectionAgents}, removalPage(removalView{name, path, plan, s.CSRF}))
}

func (p *Pages) removeAgent(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	removed, err := p.Operator.RemoveAgent(r.Context(), httpserver.Param(r, "agent"))
	if err != nil {
		return err
	}
	return p.done(w, r, at("agents"), text(r.Context(), "{agent} is removed. Its messages and keys stay.", "agent", removed.Agent))
}

// tokensView is a page of tokens.
type tokensView struct {
	Tokens   []exchange.Token
	Agents   []string
	Status   string
	Next     string
	CSRF     string
	MayAdmin bool

	Secret string // of the token that was made a moment ago
	Made   exchange.Token
}

func (p *Pages) tokens(w http.ResponseWriter, r *http.Request, s account.Session) error {
	return p.showTokens(w, r, s, tokensView{})
}

func (p *Pages) showTokens(w http.ResponseWriter, r *http.Request, s account.Session, v tokensView) (err error) {
	v.Status = r.URL.Query().Get("status")
	found, err := p.Operator.Tokens.Select(r.Context(), operator.TokenFilter{Status: v.Status, Before: r.URL.Query().Get("before"), Limit: pageSize + 1})
	if err != nil {
		return err
	}
	var next string
	if v.Tokens, next = exchange.NextPage(found, pageSize, func(t exchange.Token) string { return t.ID }); next != "" {
		v.Next = query(r, "before", next)
	}
	if v.Agents, err = p.agentNames(r.Context()); err != nil {
		return err
	}
	v.CSRF, v.MayAdmin = s.CSRF, s.Role >= exchange.RoleAdmin
	return p.show(w, r, s, view{Title: text(r.Context(), "Tokens"), Section: sectionAgents}, tokensPage(v))
}

// createToken shows the secret in its own answer: it is kept nowhere from which a page after it could take it.
func (p *Pages) createToken(w http.ResponseWriter, r *http.Request, s account.Session) error {
	secret, token, err := p.Operator.Tokens.New(r.Context(), operator.NewToken{
		Name: strings.TrimSpace(r.PostFormValue("name")), Scope: r.PostFormValue("scope"), Agent: r.PostFormValue("agent"),
		Expires: strings.TrimSpace(r.PostFormValue("expires")),
	})
	if err != nil {
		return err
	}
	return p.showTokens(w, r, s, tokensView{Secret: secret, Made: token})
}

func (p *Pages) revokeToken(w http.ResponseWriter, r *http.Request, _ account.Session) error {
	if err := p.Operator.Tokens.Revoke(r.Context(), r.PostFormValue("id")); err != nil {
		return err
	}
	return p.done(w, r, at("agents", "tokens"), text(r.Context(), "The token opens nothing any more."))
}
