package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/httpserver"
)

// Lists are the operator's lists of who is kept out and let in, and who told an agent to stop. Errors: fault.Malformed,
// fault.NotFound.
type Lists interface {
	Entries(ctx context.Context, filter exchange.ListFilter) ([]exchange.ListEntry, error)
	Add(ctx context.Context, entry exchange.ListEntry) (exchange.ListEntry, error)
	Remove(ctx context.Context, entry exchange.ListEntry) error
	// ImportList reads a list as Mastodon exports it.
	ImportList(ctx context.Context, from io.Reader, list, silenced string, dryRun bool) (exchange.ImportResult, error)
}

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

type entryList struct {
	Entries []exchange.ListEntry `json:"entries"`
	Next    string               `json:"next,omitempty"` // value of "before" for the following page
}

func (a *API) entries(list string) call {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		size, err := limit(r)
		if err != nil {
			return nil, err
		}
		query := r.URL.Query()
		found, err := a.Lists.Entries(r.Context(), exchange.ListFilter{
			List: list, Kind: query.Get("kind"), Target: query.Get("target"), Agent: query.Get("agent"), Before: query.Get("before"), Limit: size + 1,
		})
		found, next := exchange.NextPage(found, size, func(e exchange.ListEntry) string { return e.ID })
		return entryList{Entries: listed(found), Next: next}, err
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
			return nil, fault.New(fault.Malformed, `send {"target":"example.com","effect":"refuse","reason":"…"}`)
		}
		if len(wanted.Reason) > maxReasonBytes {
			return nil, fault.InField("reason", "must be at most 500 bytes of text")
		}
		return a.Lists.Add(r.Context(), exchange.ListEntry{
			List: list, Target: wanted.Target, Effect: wanted.Effect, Reason: wanted.Reason, Source: caller(r),
		})
	}
}

// removeEntry takes target (and agent, for stops) from the query: targets hold slashes, which proxies do not keep in a path.
func (a *API) removeEntry(list string) call {
	return func(_ http.ResponseWriter, r *http.Request) (any, error) {
		query := r.URL.Query()
		if query.Get("target") == "" {
			return nil, fault.InField("target", "is missing; take it from the list")
		}
		return nil, a.Lists.Remove(r.Context(), exchange.ListEntry{List: list, Target: query.Get("target"), Agent: query.Get("agent")})
	}
}

// importList takes CSV as its body; ?silenced=hold|refuse|skip, ?dry_run=true.
func (a *API) importList(list string) call {
	return func(w http.ResponseWriter, r *http.Request) (any, error) {
		query := r.URL.Query()
		return a.Lists.ImportList(r.Context(), http.MaxBytesReader(w, r.Body, maxImportBytes), list, query.Get("silenced"), query.Get("dry_run") == "true")
	}
}
