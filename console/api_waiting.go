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

type failedList struct {
	Failed []exchange.TurnRecord `json:"failed"`
	Next   string                `json:"next,omitempty"` // value of "before" for the following page
}

// listFailed takes agent, channel, since, before and limit.
func (a *API) listFailed(_ http.ResponseWriter, r *http.Request) (any, error) {
	filter, err := askedFilter(r)
	if err != nil {
		return nil, err
	}
	turns, next, err := page(r, exchange.TurnCursor, func(limit int) ([]exchange.TurnRecord, error) {
		return a.operator.Waiting.Failed(r.Context(), filter, r.URL.Query().Get("before"), limit)
	})
	return failedList{Failed: turns, Next: next}, err
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

type demandList struct {
	Demands []operator.Demand `json:"demands"`
	Next    string            `json:"next,omitempty"` // value of "after" for the following page
}

// listDemands takes agent, after and limit.
func (a *API) listDemands(_ http.ResponseWriter, r *http.Request) (any, error) {
	found, next, err := page(r, operator.DemandCursor, func(limit int) ([]operator.Demand, error) {
		return a.operator.Demands.List(r.Context(), r.URL.Query().Get("agent"), r.URL.Query().Get("after"), limit)
	})
	return demandList{Demands: found, Next: next}, err
}

func (a *API) withdrawDemand(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Demands.Withdraw(r.Context(), httpserver.Param(r, "demand"), caller(r))
}

type jobList struct {
	Jobs []operator.DeadJob `json:"jobs"`
	Next string             `json:"next,omitempty"` // value of "before" for the following page
}

// listJobs takes agent, channel, since, before and limit.
func (a *API) listJobs(_ http.ResponseWriter, r *http.Request) (any, error) {
	filter, err := askedFilter(r)
	if err != nil {
		return nil, err
	}
	jobs, next, err := page(r, func(job operator.DeadJob) string { return job.ID }, func(limit int) ([]operator.DeadJob, error) {
		return a.operator.Jobs.List(r.Context(), filter, r.URL.Query().Get("before"), limit)
	})
	return jobList{Jobs: jobs, Next: next}, err
}

func (a *API) retryJob(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Jobs.Retry(r.Context(), httpserver.Param(r, "job"))
}

func (a *API) removeJob(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Jobs.Remove(r.Context(), httpserver.Param(r, "job"))
}

type breakerList struct {
	Breakers []operator.Breaker `json:"breakers"`
}

// listBreakers has one page: who fails is few, and at most 10,000 destinations are remembered.
func (a *API) listBreakers(_ http.ResponseWriter, r *http.Request) (any, error) {
	open, err := a.operator.Breakers.List(r.Context())
	return breakerList{listed(open)}, err
}

// closeBreaker takes the target from the query, as lists do. The answer are those that were closed.
func (a *API) closeBreaker(_ http.ResponseWriter, r *http.Request) (any, error) {
	closed, err := a.operator.Breakers.Close(r.Context(), r.URL.Query().Get("target"), caller(r))
	return breakerList{listed(closed)}, err
}
