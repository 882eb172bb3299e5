package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
	"inbox/normalized"
	"inbox/operator"
	"inbox/operator/operation"
)

const (
	maxEntryBytes  = 8 << 10
	maxImportBytes = 8 << 20
)

// listRoutes are the calls about one list: below /api/v1/blocks, /api/v1/allows and /api/v1/stops.
func (a *API) listRoutes() []httpserver.Route {
	routes := []httpserver.Route{a.route(http.MethodGet, "/api/v1/reports", a.listReports)}
	for path, list := range map[string]string{"/api/v1/blocks": exchange.ListBlock, "/api/v1/allows": exchange.ListAllow, "/api/v1/stops": exchange.ListStop} {
		routes = append(routes, a.route(http.MethodGet, path, a.entries(list)), a.route(http.MethodDelete, path, a.removeEntry(list)))
		if list != exchange.ListStop { // only its sender says stop
			routes = append(routes, a.route(http.MethodPost, path, a.addEntry(list)), a.route(http.MethodPost, path+"/import", a.importList(list)))
		}
	}
	return routes
}

func (a *API) entries(list string) call {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		query := r.URL.Query()
		cursor := func(e exchange.ListEntry) string { return e.ID }
		return page(r, cursor, func(limit int) ([]exchange.ListEntry, error) {
			return a.operator.Lists.Entries(r.Context(), exchange.ListFilter{
				List: list, Kind: query.Get("kind"), Target: query.Get("target"), Agent: query.Get("agent"), Before: query.Get("before"), Limit: limit,
			})
		})
	}
}

// addEntry takes {"target","effect","reason"}; effect is for blocks.
func (a *API) addEntry(list string) call {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		var wanted entryBody
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEntryBytes))
		decoder.DisallowUnknownFields()

		if err := decoder.Decode(&wanted); err != nil {
			if errors.As(err, new(*http.MaxBytesError)) || fault.Is(err, fault.Unavailable) {
				return nil, err
			}
			return nil, operation.Unreadable(err, `send {"target":"example.com","effect":"refuse","reason":"…"}`)
		}
		if len(wanted.Reason) > maxReasonBytes {
			return nil, fault.InField("reason", "must be at most 500 bytes of text")
		}

		entry, _, err := a.operator.Lists.Add(r.Context(), exchange.ListEntry{
			List: list, Target: wanted.Target, Effect: wanted.Effect, Reason: wanted.Reason, Source: caller(r),
		})

		return entry, err
	}
}

// removeEntry takes target (and agent, for stops) from the query: targets hold slashes, which proxies do not keep in a path.
func (a *API) removeEntry(list string) call {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		query := r.URL.Query()
		if query.Get("target") == "" {
			return nil, fault.InField("target", "is missing; take it from the list")
		}
		return nil, a.operator.Lists.Remove(r.Context(), exchange.ListEntry{List: list, Target: query.Get("target"), Agent: query.Get("agent")})
	}
}

// importList takes CSV as its body; ?silenced=hold|refuse|skip, ?dry_run=true.
func (a *API) importList(list string) call {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		query := r.URL.Query()
		return a.operator.Lists.Import(r.Context(), http.MaxBytesReader(w, r.Body, maxImportBytes), operator.ImportOptions{
			List: list, Silenced: query.Get("silenced"), DryRun: query.Get("dry_run") == "true",
		})
	}
}

func (a *API) listAudit(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	return page(r, auditCursor, func(limit int) ([]exchange.AuditRecord, error) {
		return a.operator.Audit.Records(r.Context(), exchange.AuditFilter{
			Code: query.Get("code"), TurnID: query.Get("turn"), Agent: query.Get("agent"), Before: query.Get("before"), Limit: limit,
		})
	})
}

func auditCursor(record exchange.AuditRecord) string { return record.ID }

// listPeople lists all links page by page, or without pages those of which one side is the named one. Both sides of a link are next to each other.
func (a *API) listPeople(_ http.ResponseWriter, r *http.Request) (any, error) {
	if who := r.URL.Query().Get("sender"); who != "" {
		return whole(a.operator.People.Of(r.Context(), who))
	}

	cursor := func(p []exchange.PersonIdentity) string { return p[0].PersonID }
	found, err := page(r, cursor, func(limit int) ([][]exchange.PersonIdentity, error) {
		identities, err := a.operator.People.List(r.Context(), r.URL.Query().Get("before"), limit)
		return persons(identities), err
	})
	return exchange.NewList(slices.Concat(found.Items...), found.Next), err
}

// persons returns the sides of each link, which stand together.
func persons(identities []exchange.PersonIdentity) (persons [][]exchange.PersonIdentity) {
	for i, identity := range identities {
		if i == 0 || identity.PersonID != identities[i-1].PersonID {
			persons = append(persons, nil)
		}
		persons[len(persons)-1] = append(persons[len(persons)-1], identity)
	}
	return persons
}

// unlink takes the principal from the query: it holds blanks and slashes, which proxies do not keep in a path.
func (a *API) unlink(_ http.ResponseWriter, r *http.Request) (any, error) {
	principal := r.URL.Query().Get("principal")
	if principal == "" {
		return nil, fault.InField("principal", "is missing; take it from the list of people")
	}
	return nil, a.operator.People.Unlink(r.Context(), r.URL.Query().Get("agent"), principal, caller(r))
}

// listReports lists what other servers complained about.
func (a *API) listReports(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	return page(r, auditCursor, func(limit int) ([]exchange.AuditRecord, error) {
		return a.operator.Audit.Reports(r.Context(), query.Get("agent"), query.Get("before"), limit)
	})
}

func (a *API) listSuppressed(_ http.ResponseWriter, r *http.Request) (any, error) {
	query := r.URL.Query()
	cursor := func(s exchange.Suppression) string { return s.Address }
	if err := renamedCursor(query); err != nil {
		return nil, err
	}
	return page(r, cursor, func(limit int) ([]exchange.Suppression, error) {
		return a.operator.Suppressions.List(r.Context(), exchange.SuppressionFilter{Kind: query.Get("kind"), After: query.Get("before"), Limit: limit})
	})
}

// unsuppress takes the address from the query, because some proxies change an @ in a path.
func (a *API) unsuppress(_ http.ResponseWriter, r *http.Request) (any, error) {
	address := strings.TrimSpace(r.URL.Query().Get("address"))
	if address == "" {
		return nil, fault.InField("address", "is missing; take it from the list of suppressed addresses")
	}
	return nil, a.operator.Suppressions.Lift(r.Context(), address)
}

// listConnectors has one page: there are as many connectors as the settings name.
func (a *API) listConnectors(http.ResponseWriter, *http.Request) (any, error) {
	return whole(a.operator.Connectors.List(), nil)
}

// turnView is a turn with what its agent did: the rows of its timeline without the pieces of the growing answer.
type turnView struct {
	exchange.TurnRecord

	Found  string   `json:"found"`            // of which kind the id of the request is
	Others []string `json:"others,omitempty"` // further turns to which it leads, newest first

	Deliveries   []operator.Delivery    `json:"deliveries"`
	ToolRequests []exchange.ToolRequest `json:"tool_requests,omitempty"`

	AnsweredBy string `json:"answered_by,omitempty"` // the operator who wrote the answer; empty = it is the agent's

	Takeover *exchange.Takeover   `json:"takeover,omitempty"` // of its conversation, by an operator who has it now
	Draft    *normalized.Response `json:"draft,omitempty"`    // what the agent said while an operator had it: it did not leave

	Spent  *exchange.Spent  `json:"spent,omitempty"` // nil when the agent wrote no steps
	Events []exchange.Event `json:"events"`
}

// turn takes any id that a peer, a client or a line of the log showed.
func (a *API) turn(_ http.ResponseWriter, r *http.Request) (any, error) {
	shown, err := a.operator.Messages.Show(r.Context(), httpserver.Param(r, "turn"))
	if err != nil {
		return nil, err
	}

	events := slices.DeleteFunc(shown.Events, func(event exchange.Event) bool { return event.Kind == exchange.EventDelta })
	return turnView{
		TurnRecord: shown.Turn, Found: shown.Found, Others: shown.Others, Deliveries: shown.Deliveries, ToolRequests: shown.ToolRequests,
		AnsweredBy: shown.AnsweredBy, Takeover: shown.Takeover, Draft: shown.Draft, Spent: shown.Spent, Events: listed(events),
	}, nil
}

// RetryBody selects failed messages.
type RetryBody struct {
	Agent   string `json:"agent,omitempty"`   // empty = of all agents
	Channel string `json:"channel,omitempty"` // empty = of all channels
	Since   string `json:"since"`             // "2h", or a time (RFC 3339): those that failed later
	DryRun  bool   `json:"dry_run,omitempty"` // returns what would run, and changes nothing
}

const (
	maxRetryBytes = 4 << 10
	maxAgentName  = 64
)

func (a *API) retry(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Messages.Retry(r.Context(), httpserver.Param(r, "turn"), caller(r))
}

func (a *API) retryFailed(w http.ResponseWriter, r *http.Request) (any, error) {
	filter, dryRun, err := wantedRetry(w, r)
	if err != nil {
		return nil, err
	}
	return a.operator.Messages.RetryFailed(r.Context(), filter, caller(r), dryRun)
}

// retryDead runs dead deliveries or dead jobs again.
func (a *API) retryDead(retry func(ctx context.Context, filter exchange.RetryFilter, dryRun bool) (exchange.RetriedWork, error)) call {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		filter, dryRun, err := wantedRetry(w, r)
		if err != nil {
			return nil, err
		}
		return retry(r.Context(), filter, dryRun)
	}
}

func wantedRetry(w http.ResponseWriter, r *http.Request) (filter exchange.RetryFilter, dryRun bool, err error) {
	var wanted RetryBody
	if err := readOptional(w, r, maxRetryBytes, &wanted, `send {"since":"2h"} and perhaps "agent", "channel" and "dry_run"`); err != nil {
		return filter, false, err
	}
	if filter.Since, err = operator.SinceTime(wanted.Since, time.Now()); err != nil {
		return filter, false, err
	}
	filter.Agent, filter.Channel = wanted.Agent, wanted.Channel
	return filter, wanted.DryRun, checkFilter(filter)
}

func checkFilter(filter exchange.RetryFilter) error {
	if len(filter.Agent) > maxAgentName || !utf8.ValidString(filter.Agent) {
		return fault.InField("agent", "must be the name of an agent")
	}
	if len(filter.Channel) > maxAgentName || !utf8.ValidString(filter.Channel) {
		return fault.InField("channel", "must be the name of a channel, such as email")
	}
	return nil
}

func (a *API) deleteAnswer(_ http.ResponseWriter, r *http.Request) (any, error) {
	return nil, a.operator.Answers.Delete(r.Context(), httpserver.Param(r, "reply"), caller(r))
}

// editAnswer takes {"text": "…", "mime": "text/markdown"}; mime may be left out.
func (a *API) editAnswer(w http.ResponseWriter, r *http.Request) (any, error) {
	var wanted answerBody
	if err := readOptional(w, r, maxEditBytes, &wanted, `send {"text":"…"}`); err != nil {
		return nil, err
	}
	return nil, a.operator.Answers.Edit(r.Context(), httpserver.Param(r, "reply"), caller(r), wanted.Text, wanted.MIME)
}

func (a *API) pinAnswer(pinned bool) call {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		return nil, a.operator.Answers.Pin(r.Context(), httpserver.Param(r, "reply"), pinned)
	}
}
