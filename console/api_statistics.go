package console

import (
	"cmp"
	"net/http"
	"time"

	"inbox/internal/httpserver"
	"inbox/operator"
)

func (a *API) statisticsRoutes() []httpserver.Route {
	return []httpserver.Route{
		a.route(http.MethodGet, "/api/v1/statistics", a.statistics),
		a.route(http.MethodPost, "/api/v1/doctor", a.doctor),
		a.route(http.MethodGet, "/api/v1/dns", a.dns),
		a.route(http.MethodPost, "/api/v1/dns", a.lookUpRecords),
		a.route(http.MethodGet, "/api/v1/certificates", a.certificates),
		a.route(http.MethodGet, "/api/v1/limits", a.limits),
		a.route(http.MethodGet, "/api/v1/nodes", a.nodes),
		a.route(http.MethodGet, "/api/v1/backlog", a.backlog),
		a.route(http.MethodGet, "/api/v1/settings", a.settings),
	}
}

// statistics takes since (24h before now), step=hour (the default) or day, and agent.
func (a *API) statistics(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	since, err := operator.Moment("since", cmp.Or(query.Get("since"), "23h"), time.Now())
	if err != nil {
		return nil, err
	}
	return a.operator.Statistics.Read(r.Context(), query.Get("agent"), cmp.Or(query.Get("step"), operator.StepHour), since)
}

// doctor looks at what this node needs of the world, once.
func (a *API) doctor(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Examinations.Run(r.Context())
}

func (a *API) dns(_ http.ResponseWriter, r *http.Request) (any, error) {
	return whole(a.operator.Doctor.DNSRecords(r.Context()))
}

// settingsBody are the settings as a file would say them.
type settingsBody struct {
	TOML string `json:"toml"`
}

func (a *API) settings(http.ResponseWriter, *http.Request) (any, error) {
	document, err := a.operator.Settings()
	return settingsBody{document}, err
}

// lookUpRecords asks the DNS for every record, once.
func (a *API) lookUpRecords(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.RecordLooks.Run(r.Context())
}

func (a *API) certificates(_ http.ResponseWriter, r *http.Request) (any, error) {
	return whole(a.operator.Certificates(r.Context()))
}

func (a *API) limits(_ http.ResponseWriter, r *http.Request) (any, error) {
	return whole(a.operator.Limits(r.Context()))
}

func (a *API) nodes(_ http.ResponseWriter, r *http.Request) (any, error) {
	return whole(a.operator.Nodes.List(r.Context()))
}

func (a *API) backlog(_ http.ResponseWriter, r *http.Request) (any, error) {
	return a.operator.Jobs.Backlog(r.Context())
}
