package operator

import (
	"context"

	"inbox/engine/store"
)

// Usage is what is kept on the disk.
type Usage struct{ store *store.Store }

// Kept is what Measure found.
type Kept = store.Usage

// Measure says how much of the database each agent takes. With many messages it estimates from a sample.
func (u Usage) Measure(ctx context.Context) (Kept, error) { return u.store.Usage(ctx) }
