package pages

import (
	"net/http"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/httpserver"
)

func (p *Pages) overviewRoutes() []httpserver.Route {
	return []httpserver.Route{p.page(exchange.RoleRead, Root, p.overview)}
}

func (p *Pages) overview(w http.ResponseWriter, r *http.Request, s account.Session) error {
	waiting := p.work.current(r.Context(), p.Operator.Waiting)
	return p.show(w, r, s, view{Title: text(r.Context(), "Overview"), Section: sectionOverview}, overviewPage(waiting))
}
