package store

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
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
	maxSwept   = 200
	maxBatches = 250
)

const sweepDocuments = `DELETE FROM documents WHERE (namespace, key) IN (SELECT namespace, key FROM documents
	WHERE expires_at > 0 AND expires_at <= $1 LIMIT $2 + 0)`

// sweepByAge removes rows that were written before $1 from a table without an index of the time. The oldest ids are looked at, and those made
// before then (idBefore, as $3): a clock that was wrong may have made ids of another time, and rows that stay must not be in the way of others.
func sweepByAge(table, at string) string {
	return `DELETE FROM ` + table + ` WHERE id IN (
		SELECT id FROM (SELECT id, ` + at + ` FROM ` + table + ` ORDER BY id LIMIT $2 + 0) AS oldest WHERE ` + at + ` <= $1
		UNION ALL SELECT id FROM (SELECT id FROM ` + table + ` WHERE id < $3 AND ` + at + ` <= $1 ORDER BY id LIMIT $2 + 0) AS early)`
}

var (
	sweepOldAudit   = sweepByAge("audit", "at")
	sweepNotices    = sweepByAge("notices", "created_at")
	sweepNoticeWays = sweepByAge("notice_ways", "updated_at")
)

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
// audit records that are too old or beyond the newest keep. A kind whose rows cannot be removed does not keep the others.
func (s sweeper) sweepOnce(ctx context.Context, keep int64) error {
	ceilings := s.options.Ceilings()
	// since is the instant before which rows of a kind end; for ever: 0, before all of them.
	since := func(kind string) int64 {
		if ceilings[kind] == 0 {
			return 0
		}
		return micros(s.now().Add(-ceilings[kind]))
	}
	oldNotice := s.now().Add(-noticeAge)

	var steps []func() error
	for _, one := range []struct {
		query  string
		bounds []any // the first and, after the size of a batch, the others
	}{
		{sweepDocuments, []any{s.nowMicros()}},
		{sweepOldAudit, []any{since(RetainAudit), idBefore(instant(since(RetainAudit)))}},
		{sweepExcessAudit, []any{keep}},
		{sweepToolRequests, []any{since(RetainTools)}},
		{sweepWatches, []any{micros(s.now().Add(-exchange.WatchLife))}},
		{sweepRunNotes, []any{micros(s.now().Add(-runNoteAge))}},
		{sweepPayments, []any{micros(s.now().Add(-paymentAge))}},
		{sweepConditions, []any{micros(s.now().Add(-conditionAge))}},
		{sweepRemovedEntries, []any{micros(s.now().Add(-removedAge))}},
		{sweepCounters, []any{s.nowMicros()}},
		{sweepFailures, []any{micros(s.now().Add(-failureAge))}},
		{sweepBridgeItems, []any{micros(s.now().Add(-ackedAge))}},
		{sweepNoticeWays, []any{micros(oldNotice), idBefore(oldNotice)}},
		{sweepNotices, []any{micros(oldNotice), idBefore(oldNotice)}},
		{sweepNoticeConditions, []any{micros(oldNotice)}},
		{sweepConsoleSessions, []any{s.nowMicros()}},
		{sweepTakeovers, []any{micros(s.now().Add(-takeoverAge))}},
		{sweepReadMarks, []any{firstID(s.now().Add(-unreadFor))}},
	} {
		steps = append(steps, func() error { return s.sweepBatches(ctx, one.query, one.bounds...) })
	}

	steps = append(steps,
		func() error { return s.quotas().sweepUnanswered(ctx, s.now()) },
		func() error { return uploadStore(s).sweepUploads(ctx, s.now().Add(-uploadAge)) },
		func() error { return mailStore(s).sweepMail(ctx, ceilings, s.now()) },
	)
	for _, rows := range []struct {
		kind  string
		sweep func(before time.Time) error
	}{
		{RetainResults, func(before time.Time) error { return s.sweepResults(ctx, before) }},
		{RetainDemands, func(before time.Time) error { return s.sweepEnded(ctx, endedDemands, before) }},
		{RetainDispatches, func(before time.Time) error { return s.sweepEnded(ctx, endedDispatches, before) }},
	} {
		if ceilings[rows.kind] > 0 {
			steps = append(steps, func() error { return rows.sweep(s.now().Add(-ceilings[rows.kind])) })
		}
	}

	var failures []error
	for _, step := range steps {
		err := step()
		failures = append(failures, err)
		if fault.Is(err, fault.Unavailable) { // of the other kinds, too
			break
		}
	}
	return errors.Join(failures...)
}

func (s sweeper) sweepBatches(ctx context.Context, query string, bounds ...any) error {
	arguments := slices.Insert(slices.Clone(bounds), 1, any(int64(maxSwept)))
	for range maxBatches {
		var removed int64
		err := s.inBackground(ctx, func(tx *Tx) (err error) {
			removed, err = tx.sql.Change(ctx, query, arguments...)
			return err
		})
		if err != nil || removed < maxSwept {
			return err
		}
	}
	return nil
}

// ended are rows that go with what they refer to.
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
		var removed int
		err := s.inBackground(ctx, func(tx *Tx) (err error) {
			texts := mustColumn(ctx, tx.sql, &err, removeEnded(rows), micros(before), int64(maxSwept))
			if err != nil {
				return err
			}

			removed = len(texts)
			for _, text := range texts {
				for _, found := range contentDigest.FindAllStringSubmatch(text, -1) {
					if err := tx.discard(ctx, found[1]); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil || removed < maxSwept {
			return err
		}
	}
	return nil
}

// removeEnded returns the texts of what it removes. It reads the index of ended rows, such as demands_ended.
func removeEnded(rows ended) string {
	return `DELETE FROM ` + rows.table + ` WHERE id IN (SELECT id FROM ` + rows.table + ` WHERE ` + rows.done + ` AND updated_at <= $1
		ORDER BY updated_at, id LIMIT $2 + 0) RETURNING ` + rows.text
}
