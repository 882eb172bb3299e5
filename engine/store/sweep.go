package store

import (
	"context"
	"regexp"
	"time"

	"inbox/exchange"
)

// sweeper removes rows that have ended.
type sweeper struct{ *shared }

// auditRows is how many audit records are kept at most, whatever their age.
const auditRows = 100_000

// DefaultCeilings say how long what ended is kept at most, and mail for the operator, where no settings say it. A demand's resolution is the
// receipt of a payment and the record of a consent, so it outlives a year's bookkeeping; a call between agents is only looked at, and one of a tool
// stays for repeats of a submit.
func DefaultCeilings() Periods {
	const day = 24 * time.Hour
	return Periods{
		RetainResults: 90 * day, RetainDemands: 400 * day, RetainDispatches: 180 * day, RetainTools: 30 * day, RetainAudit: 90 * day,
		RetainOperatorMail: 90 * day, RetainCapturedMail: 30 * day, RetainMailReports: 400 * day,
	}
}

// Kinds that have a ceiling alone. Demands, dispatches, tools and audit have one beside their period.
const (
	RetainResults      = "results"       // results of runs
	RetainOperatorMail = "operator_mail" // mail to role addresses, reports among it
	RetainCapturedMail = "captured_mail" // answers that were captured in the place of being sent
	RetainMailReports  = "mail_reports"  // lines that were read from reports
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

// How long stays what no setting is about: notes about the control of other runs, and hashes that keep a payment from being used twice.
const (
	runNoteAge = 30 * 24 * time.Hour
	paymentAge = 400 * 24 * time.Hour
)

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
	ceilings := s.options.Ceilings()
	// since is the instant before which rows of a kind end; for ever: 0, before all of them.
	since := func(kind string) int64 {
		if ceilings[kind] == 0 {
			return 0
		}
		return micros(s.now().Add(-ceilings[kind]))
	}

	for _, step := range []struct {
		query string
		bound any
	}{
		{sweepDocuments, s.nowMicros()},
		{sweepOldAudit, since(RetainAudit)},
		{sweepExcessAudit, keep},
		{sweepToolRequests, since(RetainTools)},
		{sweepWatches, micros(s.now().Add(-exchange.WatchLife))},
		{sweepRunNotes, micros(s.now().Add(-runNoteAge))},
		{sweepPayments, micros(s.now().Add(-paymentAge))},
		{sweepConditions, micros(s.now().Add(-conditionAge))},
		{sweepRemovedEntries, micros(s.now().Add(-removedAge))},
		{sweepCounters, s.nowMicros()},
		{sweepFailures, micros(s.now().Add(-failureAge))},
		{sweepBridgeItems, micros(s.now().Add(-ackedAge))},
		{sweepNoticeWays, micros(s.now().Add(-noticeAge))},
		{sweepNotices, micros(s.now().Add(-noticeAge))},
		{sweepNoticeConditions, micros(s.now().Add(-noticeAge))},
		{sweepConsoleSessions, s.nowMicros()},
		{sweepTakeovers, micros(s.now().Add(-takeoverAge))},
		{sweepReadMarks, firstID(s.now().Add(-unreadFor))},
	} {
		if err := s.sweepBatches(ctx, step.query, step.bound); err != nil {
			return err
		}
	}

	if err := s.quotas().sweepUnanswered(ctx, s.now()); err != nil {
		return err
	}
	if err := uploadStore(s).sweepUploads(ctx, s.now().Add(-uploadAge)); err != nil {
		return err
	}
	if err := mailStore(s).sweepMail(ctx, ceilings, s.now()); err != nil {
		return err
	}
	for _, rows := range []struct {
		kind  string
		sweep func(before time.Time) error
	}{
		{RetainResults, func(before time.Time) error { return s.sweepResults(ctx, before) }},
		{RetainDemands, func(before time.Time) error { return s.sweepEnded(ctx, endedDemands, before) }},
		{RetainDispatches, func(before time.Time) error { return s.sweepEnded(ctx, endedDispatches, before) }},
	} {
		if ceilings[rows.kind] == 0 {
			continue
		}
		if err := rows.sweep(s.now().Add(-ceilings[rows.kind])); err != nil {
			return err
		}
	}
	return nil
}

func (s sweeper) sweepBatches(ctx context.Context, query string, bound any) error {
	for range maxBatches {
		var removed int64
		err := s.InTx(ctx, func(tx *Tx) (err error) {
			removed, err = tx.sql.Change(ctx, query, bound, int64(maxSwept))
			return err
		})
		if err != nil || removed < maxSwept {
			return err
		}
	}
	return nil
}

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
	err = tx.sql.Each(ctx, `SELECT `+rows.text+which, arguments, func(r row) error {
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

	return tx.sql.Change(ctx, `DELETE`+which, arguments...)
}
