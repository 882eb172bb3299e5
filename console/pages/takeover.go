package pages

import (
	"context"
	"crypto/rand"
	"net/http"
	"strings"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator/lookup"
	"inbox/operator/takeover"
)

func (p *Pages) takeoverRoutes() []httpserver.Route {
	return []httpserver.Route{
		p.act(exchange.RoleWork, at("thread", "take"), false, p.takeOver),
		p.act(exchange.RoleWork, at("thread", "reply"), false, p.reply),
		p.act(exchange.RoleWork, at("thread", "hand-back"), false, p.handBack),
	}
}

// takeoverView is who writes in a conversation, and what an operator may do about it.
type takeoverView struct {
	Holder  string // the operator who writes as the agent; empty = none does
	Mine    bool
	Waiting int
	Key     string // names the answer that the form of this page writes
}

// words say who has the conversation.
func (v takeoverView) words(ctx context.Context, agent string) string {
	said := text(ctx, "{name} writes as {agent} in this conversation.", "name", v.Holder, "agent", agent)
	if v.Mine {
		said = text(ctx, "You write as {agent} in this conversation.", "agent", agent)
	}
	if v.Waiting > 0 {
		said += " " + count(ctx, v.Waiting, "One message waits for an answer.", "{n} messages wait for an answer.")
	}
	return said
}

// takeoverOf looks who has a conversation.
func (p *Pages) takeoverOf(ctx context.Context, s account.Session, agent, thread string) (v takeoverView, err error) {
	v.Key = rand.Text()
	found, err := p.Operator.Takeovers.Of(ctx, lookup.ConversationID{ID: thread, Agent: agent})
	if fault.Is(err, fault.NotFound) {
		return v, nil
	}
	v.Holder, v.Mine, v.Waiting = operatorName(found.Holder), found.Holder == s.By(), found.Waiting
	return v, err
}

// operatorName is how pages call an operator: the principal without its kind.
func operatorName(principal string) string {
	return strings.TrimPrefix(principal, exchange.OperatorPrincipal(""))
}

// conversationOf reads which conversation a form is about.
func conversationOf(r *http.Request) (id lookup.ConversationID, page string) {
	id = lookup.ConversationID{ID: r.PostFormValue("id"), Agent: r.PostFormValue("agent"), Whole: true}
	return id, threadPath(id.Agent, id.ID)
}

func (p *Pages) takeOver(w http.ResponseWriter, r *http.Request, s account.Session) error {
	id, page := conversationOf(r)
	if _, err := p.Operator.Takeovers.Take(r.Context(), id, s.By(), r.PostFormValue("force") == "true"); err != nil {
		return err
	}
	return p.done(w, r, page, text(r.Context(), "You write as {agent} now. The agent is silent in this conversation.", "agent", id.Agent))
}

func (p *Pages) reply(w http.ResponseWriter, r *http.Request, s account.Session) error {
	id, page := conversationOf(r)
	_, err := p.Operator.Takeovers.Reply(r.Context(), id, s.By(), takeover.WrittenReply{Text: r.PostFormValue("text"), Key: r.PostFormValue("key")})
	if err != nil {
		return err
	}
	return p.done(w, r, page, text(r.Context(), "Your answer leaves now."))
}

func (p *Pages) handBack(w http.ResponseWriter, r *http.Request, s account.Session) error {
	id, page := conversationOf(r)
	how := takeover.HandBack{Note: strings.TrimSpace(r.PostFormValue("note")), Drop: r.PostFormValue("drop") == "true", Force: r.PostFormValue("force") == "true"}
	if _, err := p.Operator.Takeovers.End(r.Context(), id, s.By(), how); err != nil {
		return err
	}
	return p.done(w, r, page, text(r.Context(), "{agent} answers again.", "agent", id.Agent))
}
