package clienttool

import (
	"context"
	"net/http"
	"time"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/internal/httpserver"
)

// controlPlane is the word of tools that no delegated runtime may have (agent runtime contract, section 4.1).
const controlPlane = "control_plane"

// delegated shows a program outside the requests of tools that a delegated runtime may have. Those of the control plane are the
// operator's: for a program they are not there.
type delegated struct{ request.Store }

func forDelegated(lifecycle request.Lifecycle) request.Lifecycle {
	lifecycle.Store = delegated{lifecycle.Store}
	return lifecycle
}

func keptBack(stored map[string]any) bool {
	runtime := value.Assoc(stored["runtime"])
	return runtime["capability_scope"] == controlPlane || runtime["environment"] == controlPlane
}

// Get implements request.Store.
func (d delegated) Get(ctx context.Context, requestID string) (map[string]any, error) {
	stored, err := d.Store.Get(ctx, requestID)
	if err != nil || keptBack(stored) {
		return nil, err //nolint:wrapcheck // the store's
	}
	return stored, nil
}

// RecentPending implements request.Store. Requests that are kept back take no place in the list.
func (d delegated) RecentPending(ctx context.Context, query request.Query) ([]map[string]any, error) {
	shown, limit := []map[string]any{}, query.Limit
	query.Limit = maxPage
	for {
		page, err := d.Store.RecentPending(ctx, query)
		if err != nil {
			return nil, err //nolint:wrapcheck // the store's
		}

		for _, one := range page {
			if !keptBack(one) && len(shown) < limit {
				shown = append(shown, one)
			}
		}
		if len(page) < maxPage || len(shown) == limit {
			return shown, nil
		}

		last, err := time.Parse(time.RFC3339Nano, value.Text(page[len(page)-1]["created_at"]))
		if err != nil || !last.After(query.After) {
			return shown, nil //nolint:nilerr // a store that keeps no time is read as far as one page
		}
		query.After = last
	}
}

// handPolicy tells a delegated runtime which tools of the agent it may have (agent runtime contract, section 4.8).
func (s *Service) handPolicy(w http.ResponseWriter, _ *http.Request, c caller) error {
	httpserver.WriteJSON(w, http.StatusOK, tool.RuntimePolicy(c.agent.declared(), map[string]any{"agent": c.agent.name}))
	return nil
}
