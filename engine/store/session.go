package store

import (
	"context"
	"slices"
	"time"

	"inbox/engine/delivery"
	"inbox/engine/pipeline"
)

// row is the current row of a result.
type row interface {
	Scan(destinations ...any) error
}

// querier reads.
type querier interface {
	// each calls scan for every row in order, until scan gives an error.
	each(ctx context.Context, query string, arguments []any, scan func(row) error) error
}

// session is one running transaction of an engine.
type session interface {
	querier
	// do changes rows when nobody needs to know how many. An engine may send it together with a later statement:
	// its error then comes back from that one or from the commit.
	do(ctx context.Context, query string, arguments ...any) error
	// change changes rows and says how many.
	change(ctx context.Context, query string, arguments ...any) (int64, error)
}

// wake is a notification to be sent after the commit.
type wake struct{ channel, payload string }

// Tx is one running transaction. It is valid inside the function that got it and not safe for several goroutines.
type Tx struct {
	session
	dialect *dialect
	now     func() time.Time // this node's clock
	wakes   []wake
}

var (
	_ pipeline.Tx = (*Tx)(nil)
	_ delivery.Tx = (*Tx)(nil)
)

func (t *Tx) wake(channel, payload string) {
	w := wake{channel, payload}
	if !slices.Contains(t.wakes, w) {
		t.wakes = append(t.wakes, w)
	}
}

// first scans the first row and reports whether there was one.
func first(ctx context.Context, from querier, query string, arguments []any, destinations ...any) (bool, error) {
	found := false
	err := from.each(ctx, query, arguments, func(r row) error {
		if found {
			return nil
		}
		found = true
		return r.Scan(destinations...)
	})
	return found, err
}
