package pages

import (
	"context"
	"net/http"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/operator"
)

// restRoutes are about what rests: addresses to which no mail goes, agents and destinations that are not tried.
func (p *Pages) restRoutes() []httpserver.Route {
	return []httpserver.Route{
		p.act(exchange.RoleAdmin, at("work", "suppressed", "lift"), false, p.liftSuppressed),
		p.act(exchange.RoleWork, at("work", "breakers", "close"), false, p.closeBreakers),
	}
}

// suppressedView is a page of addresses to which no mail goes.
type suppressedView struct {
	workView

	Kind string
	Rows []exchange.Suppression
}

// failureKinds are why mail goes to an address no more.
func failureKinds() []string {
	return []string{exchange.FailureHard, exchange.FailureSoft, exchange.FailureComplaint}
}

func failureKindName(ctx context.Context, kind string) string {
	switch kind {
	case exchange.FailureHard:
		return text(ctx, "There is no such mailbox")
	case exchange.FailureSoft:
		return text(ctx, "The mailbox took nothing")
	case exchange.FailureComplaint:
		return text(ctx, "Its owner complained")
	}
	return kind
}

func (p *Pages) suppressed(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := suppressedView{workView: p.workView(r, s, "suppressed"), Kind: r.URL.Query().Get("kind")}
	found, err := p.Operator.Suppressions.List(r.Context(), exchange.SuppressionFilter{Kind: v.Kind, After: r.URL.Query().Get("before"), Limit: pageSize + 1})
	if err != nil {
		return err
	}
	var next string
	if v.Rows, next = exchange.NextPage(found, pageSize, func(one exchange.Suppression) string { return one.Address }); next != "" {
		v.Next = query(r, "before", next, "select", "")
	}
	return p.showWork(w, r, s, text(r.Context(), "Suppressed addresses"), suppressedPage(v))
}

// anySuppressed reports whether there is an address to which no mail goes.
func anySuppressed(ctx context.Context, o *operator.Operator) (bool, error) {
	found, err := o.Suppressions.List(ctx, exchange.SuppressionFilter{Limit: 1})
	return len(found) > 0, err
}

func (p *Pages) liftSuppressed(w http.ResponseWriter, r *http.Request, s account.Session) error {
	all, err := p.each(r, s, "suppressed", "lift", p.Operator.Suppressions.Lift)
	if err != nil {
		return err
	}
	words := count(r.Context(), all.done, "Mail goes to {n} address again.", "Mail goes to {n} addresses again.")
	return p.done(w, r, back(r, workPath("suppressed")), all.and(r.Context(), words))
}

// breakersView are the breakers that are open.
type breakersView struct {
	workView

	Rows []operator.Breaker
	More int // that are not shown
}

func (p *Pages) breakers(w http.ResponseWriter, r *http.Request, s account.Session) error {
	found, err := p.Operator.Breakers.List(r.Context())
	if err != nil {
		return err
	}
	v := breakersView{workView: p.workView(r, s, "breakers"), Rows: found[:min(len(found), pageSize)]}
	v.More = len(found) - len(v.Rows)
	return p.showWork(w, r, s, text(r.Context(), "Breakers"), breakersPage(v))
}

func (p *Pages) closeBreakers(w http.ResponseWriter, r *http.Request, s account.Session) error {
	all, err := p.each(r, s, "breakers", "close", func(ctx context.Context, target string) error {
		_, err := p.Operator.Breakers.Close(ctx, target, s.By())
		return err
	})
	if err != nil {
		return err
	}
	words := count(r.Context(), all.done, "{n} breaker was closed; what waits goes on at once.", "{n} breakers were closed; what waits goes on at once.")
	return p.done(w, r, back(r, workPath("breakers")), all.and(r.Context(), words))
}
