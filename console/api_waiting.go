package console

import (
	"net/http"
	"time"

	"inbox/exchange"
	"inbox/internal/httpserver"
	"inbox/operator"
)

func (a *API) waiting(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Waiting.Overview(r.Context())
}

// listFailed takes agent, channel, since, before and limit.
func (a *API) listFailed(_ http.ResponseWriter, r *http.Request) (any, error) {
	filter, err := askedFilter(r)
	if err != nil {
		return nil, err
	}
	return page(r, exchange.TurnCursor, func(limit int) ([]exchange.TurnRecord, error) {
		return a.operator.Waiting.Failed(r.Context(), filter, r.URL.Query().Get("before"), limit)
	})
}

// askedFilter reads agent, channel and since of a list; all of them may be left out.
func askedFilter(r *http.Request) (filter exchange.RetryFilter, err error) {
	query := r.URL.Query()
	filter.Agent, filter.Channel = query.Get("agent"), query.Get("channel")
	if text := query.Get("since"); text != "" {
		if filter.Since, err = operator.SinceTime(text, time.Now()); err != nil {
			return filter, err
		}
	}
	return filter, checkFilter(filter)
}

func (a *API) retryDelivery(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Deliveries.Retry(r.Context(), httpserver.Param(r, "delivery"))
}

func (a *API) delivery(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Deliveries.Show(r.Context(), httpserver.Param(r, "delivery"))
}

func (a *API) cancelDelivery(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Deliveries.Cancel(r.Context(), httpserver.Param(r, "delivery"))
}

// listDemands takes agent, before and limit.
func (a *API) listDemands(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	if err := renamedCursor(query); err != nil {
		return nil, err
	}
	return page(r, operator.DemandCursor, func(limit int) ([]operator.Demand, error) {
		return a.operator.Demands.List(r.Context(), query.Get("agent"), query.Get("before"), limit)
	})
}

func (a *API) withdrawDemand(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Demands.Withdraw(r.Context(), httpserver.Param(r, "demand"), caller(r))
}

// listJobs takes agent, channel, since, before and limit.
func (a *API) listJobs(_ http.ResponseWriter, r *http.Request) (any, error) {
	filter, err := askedFilter(r)
	if err != nil {
		return nil, err
	}
	return page(r, func(job operator.DeadJob) string { return job.ID }, func(limit int) ([]operator.DeadJob, error) {
		return a.operator.Jobs.List(r.Context(), filter, r.URL.Query().Get("before"), limit)
	})
}

func (a *API) retryJob(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Jobs.Retry(r.Context(), httpserver.Param(r, "job"))
}

func (a *API) removeJob(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Jobs.Remove(r.Context(), httpserver.Param(r, "job"))
}

// listBreakers has one page: who fails is few, and at most 10,000 destinations are remembered.
func (a *API) listBreakers(_ http.ResponseWriter, r *http.Request) (any, error) {
	return whole(a.operator.Breakers.List(r.Context()))
}

// closeBreaker takes the target from the query, as lists do. The answer are those that were closed.
func (a *API) closeBreaker(_ http.ResponseWriter, r *http.Request) (any, error) {
	return whole(a.operator.Breakers.Close(r.Context(), r.URL.Query().Get("target"), caller(r)))
}
