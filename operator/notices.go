package operator

import (
	"context"
	"time"

	"inbox/engine/notice"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/clock"
)

// Notices are what the operator is told by mail, on the fediverse and by webhooks.
type Notices struct {
	store   *store.Store
	service *notice.Service
}

// PendingNotices are what no digest has told yet, and what lasts.
type PendingNotices struct {
	Counted []exchange.NoticeTally     `json:"counted"`
	Lasting []exchange.NoticeCondition `json:"lasting"`
	// DigestAt is when the last digest was made; zero = none was yet.
	DigestAt time.Time `json:"digest_at,omitzero"`
}

// List lists what was told, newest first. Before is the id of the last one of the page before.
func (n Notices) List(ctx context.Context, before string, limit int) ([]exchange.Notice, error) {
	found, err := n.store.Notices(ctx, before, limit)
	return listed(found), err
}

// Pending returns what waits for the next digest, and what lasts or was not told to be over yet.
func (n Notices) Pending(ctx context.Context) (pending PendingNotices, err error) {
	pending.Counted, pending.Lasting = []exchange.NoticeTally{}, []exchange.NoticeCondition{}
	tallies, err := n.store.NoticeTallies(ctx)
	if err != nil {
		return pending, err
	}
	for _, one := range tallies {
		if one.Count > 0 {
			pending.Counted = append(pending.Counted, one)
		}
	}

	conditions, err := n.store.NoticeConditions(ctx)
	if err != nil {
		return pending, err
	}
	for _, one := range conditions {
		if one.State != exchange.ConditionClosed {
			pending.Lasting = append(pending.Lasting, one)
		}
	}
	pending.DigestAt, err = n.store.LastDigest(ctx)
	return pending, err
}

// Test sends a test to every address of operator.notify and returns its notice. It is sent by a running server; see Outcome.
// fault.Conflict when there is no address.
func (n Notices) Test(ctx context.Context) (exchange.Notice, error) {
	id, err := n.service.Test(ctx)
	if err != nil {
		return exchange.Notice{}, err
	}
	return n.store.Notice(ctx, id)
}

const outcomePause = 200 * time.Millisecond

// Outcome waits until a notice has reached every address or was given up there, at most for the limit, and returns it as it is then.
func (n Notices) Outcome(ctx context.Context, id string, limit time.Duration) (exchange.Notice, error) {
	for end := time.Now().Add(limit); ; {
		found, err := n.store.Notice(ctx, id)
		if err != nil || settled(found) || !time.Now().Before(end) {
			return found, err
		}
		if err := clock.Sleep(ctx, outcomePause); err != nil {
			return found, err
		}
	}
}

// Reached reports whether a way came to its end well.
func Reached(way exchange.NoticeWay) bool {
	return way.State == "delivered" || way.State == exchange.NoticeSent && way.TurnID == ""
}

func settled(n exchange.Notice) bool {
	for _, way := range n.Ways {
		if !Reached(way) && way.State != exchange.NoticeFailed && way.State != "dead" && way.State != "cancelled" {
			return false
		}
	}
	return true
}
