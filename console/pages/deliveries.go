package pages

import (
	"net/http"

	"inbox/console/account"
	"inbox/exchange"
	"inbox/internal/design"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/operator"
)

func (p *Pages) deliveryRoutes() []httpserver.Route {
	list := at("work", "deliveries")
	return []httpserver.Route{
		p.page(exchange.RoleRead, list+"/retry", p.previewRetry("deliveries")),
		p.page(exchange.RoleRead, list+"/{delivery}", p.delivery),
		p.act(exchange.RoleWork, list+"/retry", false, p.retryAll("deliveries")),
		p.act(exchange.RoleWork, list+"/again", false, p.retryDeliveries),
		p.act(exchange.RoleWork, list+"/drop", false, p.dropDeliveries),
		p.act(exchange.RoleWork, list+"/{delivery}/compare", false, p.compareDelivery),
		p.act(exchange.RoleWork, list+"/{delivery}/edit", false, p.editDelivery),
	}
}

func (p *Pages) deadDeliveries(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v, filter, err := p.failures(r, s, "deliveries")
	if err != nil {
		return err
	}
	found, err := p.Operator.Deliveries.List(r.Context(), operator.DeliveryFilter{
		State: operator.DeliveryDead, Agent: filter.Agent, Channel: filter.Channel, ChangedSince: filter.Since, Before: r.URL.Query().Get("before"), Limit: pageSize + 1,
	})
	if err != nil {
		return err
	}
	found, next := exchange.NextPage(found, pageSize, func(one operator.Delivery) string { return one.ID })
	v.next(r, next)
	for i := range found {
		one := &found[i]
		v.Rows = append(v.Rows, failureRow{
			ID: one.ID, Href: at("work", "deliveries", one.ID), What: one.Address, Excerpt: one.Key, Channel: one.Channel, Agent: one.Agent,
			Words: one.Reason, At: one.UpdatedAt, Tries: one.Attempt, Turn: one.TurnID,
		})
	}
	return p.showWork(w, r, s, text(r.Context(), "Dead deliveries"), deliveriesPage(v))
}

func (p *Pages) retryDeliveries(w http.ResponseWriter, r *http.Request, s account.Session) error {
	return p.again(w, r, s, "deliveries", p.Operator.Deliveries.Retry)
}

func (p *Pages) dropDeliveries(w http.ResponseWriter, r *http.Request, s account.Session) error {
	all, err := p.each(r, s, "deliveries", "cancel", p.Operator.Deliveries.Cancel)
	if err != nil {
		return err
	}
	words := count(r.Context(), all.done, "{n} delivery was given up for good.", "{n} deliveries were given up for good.")
	return p.done(w, r, back(r, workPath("deliveries")), all.and(r.Context(), words))
}

// deliveryView is one delivery with its answer.
type deliveryView struct {
	workView
	operator.ShownDelivery
}

// again reports whether it can be sent again.
func (v deliveryView) again() bool {
	return v.State == operator.DeliveryDead || v.State == operator.DeliveryCancelled
}

func (p *Pages) delivery(w http.ResponseWriter, r *http.Request, s account.Session) error {
	v := deliveryView{workView: p.workView(r, s, "deliveries")}
	var err error
	if v.ShownDelivery, err = p.Operator.Deliveries.Show(r.Context(), httpserver.Param(r, "delivery")); err != nil {
		return err
	}
	return p.showWork(w, r, s, text(r.Context(), "Delivery to {who}", "who", design.VisibleLine(v.Address)), deliveryPage(v))
}

// comparedDelivery reads what an operator wants the answer of a delivery to say.
func (p *Pages) comparedDelivery(r *http.Request, s account.Session) (one operator.ShownDelivery, v compareView, err error) {
	if one, err = p.Operator.Deliveries.Show(r.Context(), httpserver.Param(r, "delivery")); err != nil {
		return one, v, err
	}
	if one.Answer == nil || one.Fixed != "" {
		return one, v, fault.New(fault.Unsupported, text(r.Context(), "The text of this answer cannot be changed: {reason}", "reason", one.Fixed))
	}
	before := writtenText(one.Answer.Parts)
	return one, compareView{
		workView: p.workView(r, s, "deliveries"), Title: text(r.Context(), "Delivery to {who}", "who", design.VisibleLine(one.Address)),
		Back: at("work", "deliveries", one.ID), Before: before, After: plainText(r.PostFormValue("text")), Was: fingerprint(before),
		Action: at("work", "deliveries", one.ID, "edit"), Send: text(r.Context(), "Save and send again"),
	}, nil
}

func (p *Pages) compareDelivery(w http.ResponseWriter, r *http.Request, s account.Session) error {
	_, v, err := p.comparedDelivery(r, s)
	if err != nil {
		return err
	}
	return p.showWork(w, r, s, v.Title, comparePage(v))
}

// editDelivery changes the answer that a delivery brings, and sends it. Who has the answer already is told of the change.
func (p *Pages) editDelivery(w http.ResponseWriter, r *http.Request, s account.Session) error {
	one, v, err := p.comparedDelivery(r, s)
	if err != nil {
		return err
	}
	if v.Stale = r.PostFormValue("was") != v.Was; v.Stale {
		return p.showWork(w, r, s, v.Title, comparePage(v))
	}
	if v.Before != v.After {
		if err := p.Operator.Answers.Edit(r.Context(), one.ReplyID, s.By(), v.After, ""); err != nil {
			return err
		}
	}
	if err := p.Operator.Deliveries.Retry(r.Context(), one.ID); err != nil {
		return err
	}
	return p.done(w, r, workPath("deliveries"), text(r.Context(), "The answer was changed and is sent again."))
}
