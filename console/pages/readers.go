package pages

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
	"inbox/operator/lookup"
)

func (p *Pages) readersRoutes() []httpserver.Route {
	return []httpserver.Route{p.page(exchange.RoleRead, at("readers"), p.readers)}
}

// readers shows who can read a conversation.
func (p *Pages) readers(w http.ResponseWriter, r *http.Request, s account.Session) error {
	agent, id := r.URL.Query().Get("agent"), r.URL.Query().Get("id")
	if agent == "" || id == "" {
		return fault.InField("id", "and agent name a conversation; one of them is missing")
	}
	found, err := p.Operator.Arrivals.Readers(r.Context(), lookup.ConversationID{ID: id, Agent: agent, Whole: true})
	if err != nil {
		return err
	}
	return p.show(w, r, s, view{Title: text(r.Context(), "Who can read this?"), Section: sectionInbox}, readersPage(found))
}

// readersPath is the page that says who can read a conversation.
func readersPath(agent, id string) string {
	return at("readers") + "?" + url.Values{"agent": {agent}, "id": {id}}.Encode()
}

// partyName is the name of a party of the conversation.
func partyName(v operator.Readers, principal string) string {
	at := slices.IndexFunc(v.Readers, func(one operator.Reader) bool { return one.Principal == principal })
	if at < 0 {
		return principal
	}
	return readerName(v.Readers[at])
}

// readerName is the address of a party that wrote, else what it has to prove.
func readerName(one operator.Reader) string {
	if one.Address != "" {
		return one.Address
	}
	_, subject, _ := strings.Cut(one.Principal, " ")
	return subject
}
