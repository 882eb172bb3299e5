package console

import (
	"context"
	"net/http"

	"inbox/exchange"
	"inbox/internal/httpserver"
)

// Bounds of a timeline in one answer.
const (
	timelinePage = 500
	timelineRows = 5000
)

// turnView is a turn with what its agent did: the rows of its timeline without the pieces of the growing answer.
type turnView struct {
	exchange.TurnRecord

	Spent  *exchange.Spent  `json:"spent,omitempty"` // nil when the agent wrote no steps
	Events []exchange.Event `json:"events"`
}

func (a *API) turn(_ http.ResponseWriter, r *http.Request) (any, error) {
	turn, err := a.Turns.Turn(r.Context(), httpserver.Param(r, "turn"))
	if err != nil {
		return nil, err
	}
	events, err := a.timeline(r.Context(), turn.ID)
	if err != nil {
		return nil, err
	}
	return turnView{TurnRecord: turn, Spent: exchange.SpentBy(events), Events: events}, nil
}

func (a *API) timeline(ctx context.Context, turnID string) ([]exchange.Event, error) {
	rows, after := []exchange.Event{}, int64(0)
	for seen := 0; seen < timelineRows; {
		page, err := a.Turns.Events(ctx, turnID, after, timelinePage)
		if err != nil {
			return nil, err
		}
		for i := range page {
			after = page[i].Seq
			if page[i].Kind != exchange.EventDelta {
				rows = append(rows, page[i])
			}
		}
		if seen += len(page); len(page) < timelinePage {
			break
		}
	}
	return rows, nil
}
