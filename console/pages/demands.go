package pages

import (
	"context"
	"net/http"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/operator"
	"inbox/policypart"
)

func (p *Pages) demandRoutes() []httpserver.Route {
	return []httpserver.Route{
		p.act(exchange.RoleWork, at("work", "demands", "withdraw"), false, p.withdrawDemands),
	}
}

// demandsView is a page of what agents asked back.
type demandsView struct {
	workView

	Rows []operator.Demand
}

func (p *Pages) demands(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := demandsView{workView: p.workView(r, s, "demands")}
	found, err := p.Operator.Demands.List(r.Context(), r.URL.Query().Get("agent"), r.URL.Query().Get("before"), pageSize+1)
	if err != nil {
		return err
	}
	var next string
	if v.Rows, next = exchange.NextPage(found, pageSize, operator.DemandCursor); next != "" {
		v.Next = query(r, "before", next, "select", "")
	}
	return p.showWork(w, r, s, text(r.Context(), "Demands"), demandsPage(v))
}

func (p *Pages) withdrawDemands(w http.ResponseWriter, r *http.Request, s account.Session) error {
	all, err := p.each(r, s, "demands", "withdraw", func(ctx context.Context, id string) error {
		return p.Operator.Demands.Withdraw(ctx, id, s.By())
	})
	if err != nil {
		return err
	}
	words := count(r.Context(), all.done, "{n} demand was withdrawn; the sender was told.", "{n} demands were withdrawn; the senders were told.")
	return p.done(w, r, back(r, workPath("demands")), all.and(r.Context(), words))
}

// demandKind says what a demand is for.
func demandKind(ctx context.Context, one operator.Demand) string {
	switch {
	case one.Purpose == policypart.PurposeLink, one.Purpose == policypart.PurposeLinkConfirm, one.Purpose == policypart.PurposeLinkComplete:
		return text(ctx, "Link of two addresses")
	case one.Kind == policypart.ConsentRequired:
		return text(ctx, "Consent")
	case one.Kind == policypart.PaymentRequired:
		return text(ctx, "Payment")
	case one.Kind == policypart.Unauthorized:
		return text(ctx, "Sign-in elsewhere")
	}
	return one.Kind
}
