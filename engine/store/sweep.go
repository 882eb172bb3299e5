package store

import (
	"context"
	"regexp"
	"time"

	"inbox/exchange"
)

// sweeper removes rows that have ended.
type sweeper struct{ *database }

// Audit records end by age and by number.
const (
	auditAge  = 90 * 24 * time.Hour
	auditRows = 100_000
)

// maxSwept bounds what one transaction of a sweep removes, so that no caller waits long for the writer; maxBatches bounds
// the transactions of one sweep.
const (
	maxSwept   = 1000
	maxBatches = 50
)

const sweepDocuments = `DELETE FROM documents WHERE (namespace, key) IN (SELECT namespace, key FROM documents
	WHERE expires_at > 0 AND expires_at <= $1 LIMIT $2 + 0)`

// Records are written in the order of their ids, so that old ones are found at the beginning without an index on at.
const sweepOldAudit = `DELETE FROM audit WHERE at <= $1 AND id IN (SELECT id FROM audit ORDER BY id LIMIT $2 + 0)`

const sweepExcessAudit = `DELETE FROM audit WHERE id IN (SELECT id FROM audit
	WHERE id <= (SELECT id FROM audit ORDER BY id DESC LIMIT 1 OFFSET $1 + 0) ORDER BY id LIMIT $2 + 0)`

// What ended stays for a while: for repeats of a submit, and for a reader who asks what became of it.
const toolAge = 30 * 24 * time.Hour

const sweepToolRequests = `DELETE FROM tool_requests WHERE id IN (SELECT id FROM tool_requests
	WHERE status <> 'runtime_tool_pending' AND updated_at <= $1 ORDER BY updated_at, id LIMIT $2 + 0)`

// Runs of tasks stay with their turns; what ends are notes about the control of others.
const sweepRunNotes = `DELETE FROM task_runs WHERE id IN (SELECT id FROM task_runs
	WHERE turn_id = '' AND updated_at <= $1 ORDER BY updated_at, id LIMIT $2 + 0)`

// sweep removes what has ended, until ctx ends.
func (s sweeper) sweep(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}

		if err := s.sweepOnce(ctx, auditRows); err != nil && ctx.Err() == nil {
			s.options.Logger.Warn("sweep of ended rows", "error", err)
		}
	}
}

// sweepOnce removes ended documents, which readers do not see anyway, what ended of tools, tasks, demands and calls, and
// audit records that are too old or beyond the newest keep.
func (s sweeper) sweepOnce(ctx context.Context, keep int64) error {
	for _, step := range []struct {
		query string
		bound int64
	}{
		{sweepDocuments, nowMicros()},
		{sweepOldAudit, micros(time.Now().Add(-auditAge))},
		{sweepExcessAudit, keep},
		{sweepToolRequests, micros(time.Now().Add(-toolAge))},
		{sweepWatches, micros(time.Now().Add(-exchange.WatchLife))},
		{sweepRunNotes, micros(time.Now().Add(-toolAge))},
		{sweepPayments, micros(time.Now().Add(-demandAge))},
		{sweepConditions, micros(time.Now().Add(-conditionAge))},
		{sweepRemovedEntries, micros(time.Now().Add(-removedAge))},
		{sweepCounters, nowMicros()},
		{sweepFailures, micros(time.Now().Add(-failureAge))},
		{sweepBridgeItems, micros(time.Now().Add(-ackedAge))},
		{sweepNoticeWays, micros(time.Now().Add(-noticeAge))},
		{sweepNotices, micros(time.Now().Add(-noticeAge))},
		{sweepNoticeConditions, micros(time.Now().Add(-noticeAge))},
		{sweepConsoleSessions, nowMicros()},
		{sweepTakeovers, micros(time.Now().Add(-takeoverAge))},
	} {
		if err := s.sweepBatches(ctx, step.query, step.bound); err != nil {
			return err
		}
	}

	if err := s.quotas().sweepUnanswered(ctx, time.Now()); err != nil {
		return err
	}
	if err := s.sweepResults(ctx, time.Now().Add(-exchange.RunResultLife)); err != nil {
		return err
	}
	if err := uploadStore(s).sweepUploads(ctx, time.Now().Add(-uploadAge)); err != nil {
		return err
	}
	if err := mailStore(s).sweepMail(ctx, time.Now()); err != nil {
		return err
	}
	if err := s.sweepEnded(ctx, endedDemands, time.Now().Add(-demandAge)); err != nil {
		return err
	}

	return s.sweepEnded(ctx, endedDispatches, time.Now().Add(-dispatchAge))
}

func (s sweeper) sweepBatches(ctx context.Context, query string, bound int64) error {
	for range maxBatches {
		var removed int64
		err := s.InTx(ctx, func(tx *Tx) (err error) {
			removed, err = tx.change(ctx, query, bound, int64(maxSwept))
			return err
		})
		if err != nil || removed < maxSwept {
			return err
		}
	}
	return nil
}

// How long what ended about a turn stays. A demand's resolution is the receipt of a payment and the record of a consent,
// so it outlives a year's bookkeeping; a call between agents is only looked at.
const (
	demandAge   = 400 * 24 * time.Hour
	dispatchAge = 180 * 24 * time.Hour
)

// ended are rows that go with what they refer to. Their ids begin with their time, so old ones are found at the beginning
// without an index on updated_at.
type ended struct{ table, turn, done, text string }

var (
	endedDemands    = ended{"demands", "turn_id", "status NOT IN ('issued', 'claimed')", "terms || notes || resolution"}
	endedDispatches = ended{"dispatches", "turn_id", "state = 'done'", "call || response"}

	endedToolRequests = ended{"tool_requests", "run_id", "status <> 'runtime_tool_pending'", "request || result"}
)

// contentDigest finds the contents outside of the database that parts in a document refer to.
var contentDigest = regexp.MustCompile(`"digest":"([0-9a-f]{64})"`)

// sweepEnded removes rows that ended before the instant.
func (s sweeper) sweepEnded(ctx context.Context, rows ended, before time.Time) error {
	for range maxBatches {
		var removed int64
		err := s.InTx(ctx, func(tx *Tx) (err error) {
			removed, err = removeEnded(ctx, tx, rows, before)
			return err
		})
		if err != nil || removed < maxSwept {
			return err
		}
	}
	return nil
}

// removeEnded runs the same condition in both statements: nothing that is older than the instant can end meanwhile.
func removeEnded(ctx context.Context, tx *Tx, rows ended, before time.Time) (removed int64, err error) {
	which := ` FROM ` + rows.table + ` WHERE ` + rows.done + ` AND updated_at <= $1
		AND id IN (SELECT id FROM ` + rows.table + ` ORDER BY id LIMIT $2 + 0)`
	arguments := []any{micros(before), int64(maxSwept)}
	var digests []string
	err = tx.each(ctx, `SELECT `+rows.text+which, arguments, func(r row) error {
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

	if err := tx.discard(ctx, digests...); err != nil {
		return 0, err
	}

	return tx.change(ctx, `DELETE`+which, arguments...)
}
