package clienttool

import (
	"context"
	"maps"
	"net/http"
	"time"

	"inbox/agents/runtime/tool"
	"inbox/agents/runtime/tool/request"
	"inbox/agents/runtime/value"
	"inbox/internal/fault"
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
// A mediator may hand it calls of the agent's other tools, too.
func (s *Service) handPolicy(w http.ResponseWriter, r *http.Request, c caller) error {
	ctx, cancel := context.WithTimeout(r.Context(), listTime)
	defer cancel()
	tools, mediated, err := c.agent.declared(ctx)
	if err != nil {
		return fault.Wrap(fault.Unavailable, "the tools of the agent cannot be listed now", err)
	}

	policy := tool.RuntimePolicy(tools, map[string]any{"agent": c.agent.name})
	handed := make([]tool.Entry, len(mediated))
	for i := range mediated {
		handed[i] = tool.Entry{Name: mediated[i].Name, Value: delegable(mediated[i].Value)}
	}
	entries := value.Elements(policy["tools"])
	for _, one := range value.Elements(tool.RuntimePolicy(handed, nil)["tools"]) {
		entry := value.Assoc(one)
		entry["mediated"] = true
		entries = append(entries, entry)
	}
	policy["tools"] = entries
	httpserver.WriteJSON(w, http.StatusOK, policy)
	return nil
}

// listTime bounds the wait for servers of tools that are not connected yet.
const listTime = 5 * time.Second

// delegable is the declaration of a tool whose calls a mediator may hand to a delegated runtime, unless it says otherwise itself.
func delegable(declared any) any {
	tool := maps.Clone(value.Assoc(declared))
	if tool == nil {
		return declared
	}
	runtime := map[string]any{"environment": runtimeLocal, "capability_scope": runtimeLocal}
	maps.Copy(runtime, value.Assoc(tool["runtime"]))
	tool["runtime"] = runtime
	return tool
}
