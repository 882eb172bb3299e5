package console

import (
	"context"
	"net/http"
	"strings"

	"inbox/exchange"
	"inbox/internal/fault"
)

// Suppressions are the addresses to which no mail is sent any more.
type Suppressions interface {
	Suppressions(ctx context.Context, filter exchange.SuppressionFilter) ([]exchange.Suppression, error)
	// Unsuppress says whether the address, in lower case, was suppressed.
	Unsuppress(ctx context.Context, address string) (bool, error)
}

type suppressionList struct {
	Suppressed []exchange.Suppression `json:"suppressed"`
	Next       string                 `json:"next,omitempty"` // value of "after" for the following page
}

func (a *API) listSuppressed(_ http.ResponseWriter, r *http.Request) (any, error) {
	size, err := limit(r)
	if err != nil {
		return nil, err
	}
	query := r.URL.Query()
	found, err := a.Suppressions.Suppressions(r.Context(), exchange.SuppressionFilter{Kind: query.Get("kind"), After: query.Get("after"), Limit: size + 1})
	found, next := exchange.NextPage(found, size, func(s exchange.Suppression) string { return s.Address })
	return suppressionList{Suppressed: listed(found), Next: next}, err
}

// unsuppress takes the address from the query, because some proxies change an @ in a path.
func (a *API) unsuppress(_ http.ResponseWriter, r *http.Request) (any, error) {
	address := strings.ToLower(strings.TrimSpace(r.URL.Query().Get("address")))
	if address == "" {
		return nil, fault.InField("address", "is missing; take it from the list of suppressed addresses")
	}
	lifted, err := a.Suppressions.Unsuppress(r.Context(), address)
	if err == nil && !lifted {
		err = fault.Newf(fault.NotFound, "%s is not suppressed", address)
	}
	return nil, err
}
