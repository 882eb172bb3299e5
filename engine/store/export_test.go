package store

import (
	"context"
	"time"
)

// Pass makes all jobs older: what was due in d is due now, and leases end so much earlier.
func (s *Store) Pass(ctx context.Context, d time.Duration) error {
	return s.InTx(ctx, func(tx *Tx) error {
		return tx.do(ctx, `UPDATE jobs SET run_at = run_at - $1, lease_until = lease_until - $1`, d.Microseconds())
	})
}
