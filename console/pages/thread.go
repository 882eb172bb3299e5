package pages

import (
	"net/http"
	"net/url"
	"strings"

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
		p.page(exchange.RoleRead, at("readers"), p.readers),
		p.page(exchange.RoleRead, at("person"), p.person),
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
	title := text(r.Context(), "Conversation with {sender}", "sender", design.VisibleLine(v.Sender.Address))
	return p.show(w, r, s, view{Title: title, Section: sectionInbox}, threadPage(v))
}

// readers shows who can read a conversation.
func (p *Pages) readers(w http.ResponseWriter, r *http.Request, s account.Session) error {
	agent, id := r.URL.Query().Get("agent"), r.URL.Query().Get("id")
	if agent == "" || id == "" {
		return fault.InField("id", "and agent name a conversation; one of them is missing")
	}
	found, err := p.Operator.Takeovers.Readers(r.Context(), operator.ConversationID{ID: id, Agent: agent, Whole: true})
	if err != nil {
		return err
	}
	return p.show(w, r, s, view{Title: text(r.Context(), "Who can read this?"), Section: sectionInbox}, readersPage(found))
}

// readersPath is the page that says who can read a conversation.
func readersPath(agent, id string) string {
	return at("readers") + "?" + url.Values{"agent": {agent}, "id": {id}}.Encode()
}

// readerName is the address of a party that wrote, else what it has to prove.
func readerName(one operator.Reader) string {
	if one.Address != "" {
		return one.Address
	}
	_, subject, _ := strings.Cut(one.Principal, " ")
	return subject
}

// personView is someone by what is proven of them.
type personView struct {
	Who       string
	Addresses []exchange.PersonIdentity // that are linked with each other
	Rows      []inboxRow
	Next      string
}

func (p *Pages) person(w http.ResponseWriter, r *http.Request, s account.Session) error {
	ctx, who := r.Context(), r.URL.Query().Get("who")
	if who == "" {
		return fault.InField("who", "is missing; it is an address or a principal")
	}
	v := personView{Who: who}
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
