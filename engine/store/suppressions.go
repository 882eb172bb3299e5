package store

import (
	"context"
	"time"

	"inbox/exchange"
)

const putFailure = `INSERT INTO mail_failures (address, delivery_id, failed_at) VALUES ($1, $2, $3)
	ON CONFLICT (address, delivery_id) DO NOTHING`

const countFailures = `SELECT COUNT(*) FROM mail_failures WHERE address = $1 AND failed_at > $2`

const putSuppression = `INSERT INTO mail_suppressions (address, kind, reason, delivery_id, created_at) VALUES ($1, $2, $3, $4, $5)
	ON CONFLICT (address) DO NOTHING`

const suppressionColumns = `address, kind, reason, delivery_id, created_at`

const sweepFailures = `DELETE FROM mail_failures WHERE failed_at <= $1 AND (address, delivery_id) IN
	(SELECT address, delivery_id FROM mail_failures ORDER BY failed_at LIMIT $2 + 0)`

// MailFailed counts a failure of an address, once for each delivery. It reports whether the address is suppressed now and was
// not before: after one hard failure, one complaint, or as many soft failures as exchange allows.
func (s *Store) MailFailed(ctx context.Context, failure exchange.MailFailure) (suppressed bool, err error) {
	if err := requireStorable("address", failure.Address, "delivery", failure.DeliveryID); err != nil {
		return false, err
	}
	err = s.InTx(ctx, func(tx *Tx) error {
		suppressed = false
		at := microsOrNow(failure.At)
		if failure.Kind == exchange.FailureSoft {
			if err := tx.do(ctx, putFailure, failure.Address, failure.DeliveryID, at); err != nil {
				return err
			}
			var count int64
			since := at - exchange.SoftFailureWindow.Microseconds()
			if _, err := first(ctx, tx, countFailures, []any{failure.Address, since}, &count); err != nil || count < exchange.MaxSoftFailures {
				return err
			}
		}
		changed, err := tx.change(ctx, putSuppression, failure.Address, failure.Kind, cleaned(failure.Reason), failure.DeliveryID, at)
		suppressed = changed > 0
		return err
	})
	return suppressed, err
}

// Suppressed returns those of the addresses that are suppressed; at most 500 are asked for.
func (s *Store) Suppressed(ctx context.Context, addresses []string) ([]exchange.Suppression, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	addresses = addresses[:min(len(addresses), 500)]
	arguments := make([]any, 0, len(addresses))
	for _, address := range addresses {
		arguments = append(arguments, cleaned(address))
	}
	query := `SELECT ` + suppressionColumns + ` FROM mail_suppressions WHERE address IN (` + placeholders(1, len(addresses)) + `) ORDER BY address`
	return s.suppressions(ctx, query, arguments)
}

// Suppressions lists suppressed addresses, in order of the address.
func (s *Store) Suppressions(ctx context.Context, filter exchange.SuppressionFilter) ([]exchange.Suppression, error) {
	var chosen selection
	chosen.addWhen(filter.Kind != "", "kind = ?", cleaned(filter.Kind))
	chosen.addWhen(filter.After != "", "address > ?", cleaned(filter.After))
	query := `SELECT ` + suppressionColumns + ` FROM mail_suppressions` + chosen.sql() + chosen.page("address", filter.Limit)
	return s.suppressions(ctx, query, chosen.arguments)
}

func (s *Store) suppressions(ctx context.Context, query string, arguments []any) ([]exchange.Suppression, error) {
	var found []exchange.Suppression
	err := s.engine.reader().each(ctx, query, arguments, func(r row) error {
		var one exchange.Suppression
		var created int64
		err := r.Scan(&one.Address, &one.Kind, &one.Reason, &one.DeliveryID, &created)
		one.CreatedAt = instant(created)
		found = append(found, one)
		return err
	})
	return found, err
}

// Unsuppress lets mail go to an address again and forgets its failures. It reports whether the address was suppressed.
func (s *Store) Unsuppress(ctx context.Context, address string) (lifted bool, err error) {
	err = s.InTx(ctx, func(tx *Tx) error {
		if err := tx.do(ctx, `DELETE FROM mail_failures WHERE address = $1`, cleaned(address)); err != nil {
			return err
		}
		changed, err := tx.change(ctx, `DELETE FROM mail_suppressions WHERE address = $1`, cleaned(address))
		lifted = changed > 0
		return err
	})
	return lifted, err
}

// failureAge is how long failures are kept: as long as they count, and a day for clocks that differ.
const failureAge = exchange.SoftFailureWindow + 24*time.Hour
