package store

import (
	"context"
	"sync/atomic"

	"inbox/exchange"
)

// act is what an operator does, whose record is written with the first change.
type act struct {
	record exchange.AuditRecord
	kept   atomic.Bool
}

type actKey struct{}

// WithAct returns a context of what an operator does without a running server between: the first transaction that commits with it writes
// the record, too, so that there is no change without its record. Further changes of the same act write none.
func WithAct(ctx context.Context, record exchange.AuditRecord) context.Context {
	return context.WithValue(ctx, actKey{}, &act{record: record})
}

// actOf returns the act of a context that has no record yet; nil when there is none.
func actOf(ctx context.Context) *act {
	if one, is := ctx.Value(actKey{}).(*act); is && !one.kept.Load() {
		return one
	}
	return nil
}
