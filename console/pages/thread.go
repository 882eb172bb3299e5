package pages

import (
	"context"
	"net/http"
	"time"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
	"inbox/operator"
)

func (p *Pages) threadRoutes() []httpserver.Route {
	return []httpserver.Route{
		p.page(exchange.RoleRead, at("thread"), p.thread),
		p.page(exchange.RoleRead, at("person"), p.person),
		p.page(exchange.RoleAdmin, at("person", "data"), p.personData),
	}
}

// threadView is a conversation, oldest message of the page first.
type threadView struct {
	Agent, ID string
	Sender    normalized.Sender // of the newest message
	Principal string
	Channel   string
	Turns     []exchange.TurnRecord
	Older     string
	Writing   takeoverView
	CSRF      string
	MayWork   bool
	Path      string
}

func (p *Pages) thread(w http.ResponseWriter, r *http.Request, s account.Session) error {
	agent, id := r.URL.Query().Get("agent"), r.URL.Query().Get("id")
	if agent == "" || id == "" {
		return fault.InField("id", "and agent name a conversation; one of them is missing")
	}
	turns, err := p.Operator.Arrivals.Thread(r.Context(), agent, id, r.URL.Query().Get("before"), pageSize)
	if err != nil {
		return err
	}
	if len(turns) == 0 {
		return fault.New(fault.NotFound, text(r.Context(), "There is no such conversation, or it was removed."))
	}

	newest := turns[0]
	v := threadView{
		Agent: agent, ID: id, Sender: newest.Message.Sender, Principal: newest.Principal, Channel: newest.Channel,
		CSRF: s.CSRF, MayWork: s.Role >= exchange.RoleWork, Path: r.URL.RequestURI(),
	}
	if v.Writing, err = p.takeoverOf(r.Context(), s, agent, id); err != nil {
		return err
	}
	if len(turns) == pageSize {
		v.Older = query(r, "before", exchange.TurnCursor(turns[len(turns)-1]))
	}
	for i := range turns {
		v.Turns = append(v.Turns, turns[len(turns)-1-i])
	}
	p.markRead(r, s, newest)
	title := text(r.Context(), "Conversation with {sender}", "sender", design.VisibleLine(v.Sender.Address.String()))
	return p.show(w, r, s, view{Title: title, Section: sectionInbox}, threadPage(v))
}

// personView is someone by what is proven of them.
type personView struct {
	Who       string
	Addresses []exchange.PersonIdentity // both sides of links
	MayAdmin  bool
	Rows      []inboxRow
	Next      string
}

func (p *Pages) person(w http.ResponseWriter, r *http.Request, s account.Session) error {
	ctx, who := r.Context(), r.URL.Query().Get("who")
	if who == "" {
		return fault.InField("who", "is missing; it is an address or a principal")
	}
	v := personView{Who: who, MayAdmin: s.Role >= exchange.RoleAdmin}
	var err error
	if v.Addresses, err = p.Operator.People.Of(ctx, who); err != nil {
		return err
	}
	page, err := p.Operator.Arrivals.Page(ctx, exchange.ArrivalFilter{Sender: who, Before: r.URL.Query().Get("before"), Limit: pageSize})
	if err != nil {
		return err
	}
	for i := range page.Turns {
		v.Rows = append(v.Rows, messageRow(&page.Turns[i]))
	}
	if page.Next != "" {
		v.Next = query(r, "before", page.Next)
	}
	return p.show(w, r, s, view{Title: design.VisibleLine(who), Section: sectionInbox}, personPage(v))
}

// personDataView says who a name means for an export or an erasure, and why.
type personDataView struct {
	Who                      string
	Preview                  operator.ErasurePreview
	WithLinked, WithUnproven string // addresses of the page with what is left out
}

// personData reads all messages, as the export and the erasure do: it is a page that someone asks for.
func (p *Pages) personData(w http.ResponseWriter, r *http.Request, s account.Session) error {
	asked := r.URL.Query()
	name := operator.PersonName{Name: asked.Get("who"), Linked: asked.Get("linked") == "true", Unproven: asked.Get("unproven") == "true"}
	if name.Name == "" {
		return fault.InField("who", "is missing; it is an address or a principal")
	}
	preview, err := p.Operator.Erasures.Preview(r.Context(), name)
	if err != nil {
		return err
	}
	v := personDataView{Who: name.Name, Preview: preview, WithLinked: query(r, "linked", "true"), WithUnproven: query(r, "unproven", "true")}
	return p.show(w, r, s, view{Title: design.VisibleLine(name.Name), Section: sectionInbox}, personDataPage(v))
}

// because says why a principal belongs to a person.
func because(ctx context.Context, one operator.Belonging) string {
	switch one.Because {
	case operator.BecauseEvidence:
		return text(ctx, "{method} vouches for {address}", "method", one.Method, "address", design.VisibleLine(string(one.Address)))
	case operator.BecauseLink:
		return text(ctx, "Linked with {other} by consent for {agent} at {time}, for messages to {agent} only",
			"other", design.VisibleLine(one.With), "agent", one.Agent, "time", one.LinkedAt.UTC().Format(time.RFC3339))
	case operator.BecauseUnproven:
		return text(ctx, "States the address, and you count that as enough")
	}
	return text(ctx, "You named it")
}

// whyNot says why a principal that states an address does not belong to the person.
func whyNot(ctx context.Context, one operator.Statement) string {
	stated := design.VisibleLine(one.Address.String())
	switch one.Because {
	case operator.OtherSender:
		return text(ctx, "Is proven to be another sender, and states {address}", "address", stated)
	case operator.OtherCapitals:
		return text(ctx, "States {address}, which is another address: capital letters count", "address", stated)
	}
	return text(ctx, "States {address} without proof", "address", stated)
}

// turnPath is a message in its conversation.
func turnPath(turn *exchange.TurnRecord) string {
	return threadPath(turn.Agent, turn.ThreadID) + "&" + values("turn", turn.ID) + "#turn-" + turn.ID
}
