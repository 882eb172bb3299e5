package console

import (
	"net/http"

	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/operator"
)

// listSessions lists all sessions for admins, and those that the caller's token began for others.
func (a *API) listSessions(_ http.ResponseWriter, r *http.Request) (any, error) {
	filter := exchange.ConsoleSessionFilter{Before: r.URL.Query().Get("before")}
	if token, _ := r.Context().Value(tokenKey{}).(exchange.Token); token.Role() < exchange.RoleAdmin {
		filter.Owner.TokenID = token.ID
	}

	cursor := func(s operator.SignedIn) string { return s.ID }
	return page(r, cursor, func(limit int) ([]operator.SignedIn, error) {
		filter.Limit = limit
		return a.operator.Sessions.List(r.Context(), filter)
	})
}

func (a *API) endSession(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Sessions.End(r.Context(), httpserver.Param(r, "session"), exchange.SessionOwner{})
}
