package store

import (
	"context"
	"regexp"
	"time"
)

// How long what ended about a turn stays. A demand's resolution is the receipt of a payment and the record of a consent,
// so it outlives a year's bookkeeping; a call between agents is only looked at.
const (
	demandAge   = 400 * 24 * time.Hour
	dispatchAge = 180 * 24 * time.Hour
)

// ended are rows that go with what they refer to. Their ids begin with their time, so old ones are found at the beginning
// without an index on updated_at.
type ended struct{ table, done, text string }

var (
	endedDemands    = ended{"demands", "status NOT IN ('issued', 'claimed')", "terms || notes || resolution"}
	endedDispatches = ended{"dispatches", "state = 'done'", "call || response"}
)

// contentDigest finds the contents outside of the database that parts in a document refer to.
var contentDigest = regexp.MustCompile(`"digest":"([0-9a-f]{64})"`)

// sweepEnded removes rows that ended before the instant.
func (s *Store) sweepEnded(ctx context.Context, rows ended, before time.Time) error {
	for range maxBatches {
		var removed int64
		err := s.InTx(ctx, func(tx *Tx) (err error) {
			removed, err = tx.removeEnded(ctx, rows, before)
			return err
		})
		if err != nil || removed < maxSwept {
			return err
		}
	}
	return nil
}

// removeEnded asks twice the same: nothing that is older than the instant can end meanwhile.
func (t *Tx) removeEnded(ctx context.Context, rows ended, before time.Time) (removed int64, err error) {
	which := ` FROM ` + rows.table + ` WHERE ` + rows.done + ` AND updated_at <= $1
		AND id IN (SELECT id FROM ` + rows.table + ` ORDER BY id LIMIT $2 + 0)`
	arguments := []any{micros(before), int64(maxSwept)}
	var digests []string
	err = t.each(ctx, `SELECT `+rows.text+which, arguments, func(r row) error {
		var text string
		err := r.Scan(&text)
		for _, found := range contentDigest.FindAllStringSubmatch(text, -1) {
			digests = append(digests, found[1])
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if err := t.discard(ctx, digests...); err != nil {
		return 0, err
	}
	return t.change(ctx, `DELETE`+which, arguments...)
}
