package store

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"inbox/exchange"
)

// portions are the sizes of the statements that add to counters: few texts, so that they stay prepared.
var portions = []int{256, 32, 4, 1}

// AddCounts adds to counters in one transaction and gives their sums on all nodes. Rows are taken in the order of their
// keys, so that nodes never wait for each other in a circle. A key must not be given twice.
func (s *Store) AddCounts(ctx context.Context, counts []exchange.Count) (sums []exchange.Count, err error) {
	sorted := slices.SortedFunc(slices.Values(counts), func(a, b exchange.Count) int { return cmp.Compare(a.Key, b.Key) })
	err = s.InTx(ctx, func(tx *Tx) error {
		sums = sums[:0]
		rest := sorted
		for _, size := range portions {
			for len(rest) >= size {
				added, err := tx.addCounts(ctx, rest[:size])
				if err != nil {
					return err
				}
				sums, rest = append(sums, added...), rest[size:]
			}
		}
		return nil
	})
	return sums, err
}

func (t *Tx) addCounts(ctx context.Context, counts []exchange.Count) ([]exchange.Count, error) {
	values, arguments := make([]string, len(counts)), make([]any, 0, 3*len(counts))
	for i, c := range counts {
		if err := requireStorable("key", c.Key); err != nil {
			return nil, err
		}
		n := len(arguments)
		values[i] = "($" + strconv.Itoa(n+1) + ", CAST($" + strconv.Itoa(n+2) + " AS BIGINT), CAST($" + strconv.Itoa(n+3) + " AS BIGINT))"
		arguments = append(arguments, c.Key, c.Amount, micros(c.Ends))
	}
	query := `INSERT INTO counters (counter_key, amount, ends_at) VALUES ` + strings.Join(values, ", ") + `
		ON CONFLICT (counter_key) DO UPDATE SET amount = counters.amount + excluded.amount
		RETURNING counter_key, amount, ends_at`
	var sums []exchange.Count
	err := t.each(ctx, query, arguments, func(r row) error {
		count, err := scanCount(r)
		sums = append(sums, count)
		return err
	})
	return sums, err
}

// Counts returns the sums of counters; those that are not there are left out.
func (s *Store) Counts(ctx context.Context, keys []string) ([]exchange.Count, error) {
	arguments := make([]any, len(keys))
	for i, key := range keys {
		arguments[i] = cleaned(key)
	}
	var sums []exchange.Count
	if len(keys) == 0 {
		return nil, nil
	}
	query := `SELECT counter_key, amount, ends_at FROM counters WHERE counter_key IN (` + placeholders(1, len(keys)) + `)`
	err := s.engine.reader().each(ctx, query, arguments, func(r row) error {
		count, err := scanCount(r)
		sums = append(sums, count)
		return err
	})
	return sums, err
}

func scanCount(r row) (exchange.Count, error) {
	var c exchange.Count
	var ends int64
	err := r.Scan(&c.Key, &c.Amount, &ends)
	c.Ends = instant(ends)
	return c, err
}

const sweepCounters = `DELETE FROM counters WHERE counter_key IN (SELECT counter_key FROM counters
	WHERE ends_at <= $1 ORDER BY ends_at LIMIT $2 + 0)`
