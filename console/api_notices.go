package console

import (
	"net/http"

	"inbox/exchange"
	"inbox/operator"
)

type noticeList struct {
	exchange.List[exchange.Notice]

	Pending operator.PendingNotices `json:"pending"`
}

// listNotices tells what the operator was told, and what waits for the next digest.
func (a *API) listNotices(_ http.ResponseWriter, r *http.Request) (any, error) {
	cursor := func(n exchange.Notice) string { return n.ID }
	found, err := page(r, cursor, func(limit int) ([]exchange.Notice, error) {
		return a.operator.Notices.List(r.Context(), r.URL.Query().Get("before"), limit)
	})
	if err != nil {
		return nil, err
	}
	pending, err := a.operator.Notices.Pending(r.Context())
	return noticeList{found, pending}, err
}

// testNotices sends a test to every address. What becomes of it is in the list.
func (a *API) testNotices(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Notices.Test(r.Context())
}
