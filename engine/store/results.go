package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inbox/exchange"
)

// resultStore reads the conversation results of runs.
type resultStore struct{ *shared }

// resultTx keeps them in a transaction.
type resultTx struct{ *transaction }

// A result is late when its turn was cancelled while the agent ran. Its row says how the run ended, and nothing of what was said in it, which
// may be erased by then.
const putRunResult = `INSERT INTO run_results (turn_id, run, at, status, bytes, body, digest, audit, left_out)
	SELECT $1, $2, $3, $4, $5,
		CASE state WHEN 'cancelled' THEN '' ELSE $6 END, CASE state WHEN 'cancelled' THEN '' ELSE $7 END,
		CASE state WHEN 'cancelled' THEN '' ELSE $8 END, CASE state WHEN 'cancelled' THEN '` + cancelledRun + `' ELSE $9 END
	FROM turns WHERE id = $1 AND state NOT IN ('answered', 'refused', 'failed', 'silent')
	ON CONFLICT (turn_id, run) DO UPDATE SET at = excluded.at, status = excluded.status, bytes = excluded.bytes, body = excluded.body,
		digest = excluded.digest, audit = excluded.audit, left_out = excluded.left_out`

// emptyOldResults leaves the rows of older runs.
const emptyOldResults = `UPDATE run_results SET body = '', digest = '', left_out = '` + olderRun + `'
	WHERE turn_id = $1 AND left_out = '' AND run <= (SELECT run FROM run_results
		WHERE turn_id = $1 ORDER BY run DESC LIMIT 1 OFFSET $2 + 0)`

const cancelledRun = "the message was cancelled while the agent worked on it"

const olderRun = "only the documents of the newest runs are kept"

// PutRunResult stores the result of a run; see pipeline.ResultTx.
func (t resultTx) PutRunResult(ctx context.Context, result exchange.RunResult) error {
	if err := t.holdTurn(ctx, result.TurnID); err != nil {
		return err
	}

	const same, older = ` WHERE turn_id = $1 AND run = $2`, ` WHERE turn_id = $1 AND run <= (SELECT run FROM run_results
		WHERE turn_id = $1 ORDER BY run DESC LIMIT 1 OFFSET $2 + 0)`
	if err := t.discardResults(ctx, same, result.TurnID, int64(result.Run)); err != nil {
		return err
	}
	audit, err := auditText(result.Audit)
	if err != nil {
		return err
	}
	err = t.sql.Do(ctx, putRunResult, result.TurnID, int64(result.Run), t.microsOrNow(result.At), cleaned(result.Status), int64(result.Bytes),
		cleaned(string(result.Body)), result.Digest, cleaned(audit), result.LeftOut)
	if err != nil || result.Run <= exchange.MaxRunResults {
		return err
	}

	if err := t.discardResults(ctx, older, result.TurnID, int64(exchange.MaxRunResults)); err != nil {
		return err
	}
	return t.sql.Do(ctx, emptyOldResults, result.TurnID, int64(exchange.MaxRunResults))
}

func auditText(events []json.RawMessage) (string, error) {
	if len(events) == 0 {
		return "", nil
	}
	text, err := json.Marshal(events)
	if err != nil {
		return "", fmt.Errorf("encode audit: %w", err)
	}
	return string(text), nil
}

// discardResults notes the contents of results that go.
func (t *transaction) discardResults(ctx context.Context, which string, arguments ...any) error {
	digests, err := column[string](ctx, t.sql, `SELECT digest FROM run_results`+which+` AND digest <> ''`, arguments)
	if err != nil {
		return err
	}
	return t.discard(ctx, digests...)
}

// removeResults removes the results of a turn: each holds what was asked and answered.
func (t *transaction) removeResults(ctx context.Context, turnID string) error {
	if err := t.discardResults(ctx, ` WHERE turn_id = $1`, turnID); err != nil {
		return err
	}
	return t.sql.Do(ctx, `DELETE FROM run_results WHERE turn_id = $1`, turnID)
}

const selectRunResults = `SELECT run, at, status, bytes, left_out, digest, `

// RunResults lists the results of a turn in the order of its runs, without their documents.
func (s resultStore) RunResults(ctx context.Context, turnID string) ([]exchange.RunResult, error) {
	return s.results(ctx, turnID, selectRunResults+`'' FROM run_results WHERE turn_id = $1 ORDER BY run`, cleaned(turnID))
}

const selectThreadResults = `SELECT r.turn_id, r.run, r.at, r.status, r.bytes, r.left_out, r.audit FROM turns t
	JOIN run_results r ON r.turn_id = t.id WHERE t.thread_key = $1 AND t.thread_id = $2 AND t.agent = $3 ORDER BY r.turn_id, r.run`

// ThreadResults lists the results of all turns of a thread, in their order, with their audits and without their documents.
func (s resultStore) ThreadResults(ctx context.Context, agent, threadID string) ([]exchange.RunResult, error) {
	if !storable(agent) || !storable(threadID) {
		return nil, nil
	}
	var list []exchange.RunResult
	err := s.engine.Reader().Each(ctx, selectThreadResults, []any{hashKey(agent, threadID), threadID, agent}, func(r row) error {
		var one exchange.RunResult
		var at int64
		var audit string
		if err := r.Scan(&one.TurnID, &one.Run, &at, &one.Status, &one.Bytes, &one.LeftOut, &audit); err != nil {
			return err
		}
		if audit != "" {
			if err := json.Unmarshal([]byte(audit), &one.Audit); err != nil {
				return fmt.Errorf("decode audit of turn %s: %w", one.TurnID, err)
			}
		}
		one.At = instant(at)
		list = append(list, one)
		return nil
	})
	return list, err
}

// RunResult returns the result of one run with its document, if it is in the database; fault.NotFound when there is none.
func (s resultStore) RunResult(ctx context.Context, turnID string, run int) (exchange.RunResult, error) {
	found, err := s.results(ctx, turnID, selectRunResults+`body FROM run_results WHERE turn_id = $1 AND run = $2`, cleaned(turnID), int64(run))
	if err == nil && len(found) == 0 {
		err = notFound("conversation result")
	}
	if err != nil {
		return exchange.RunResult{}, err
	}
	return found[0], nil
}

func (s resultStore) results(ctx context.Context, turnID, query string, arguments ...any) ([]exchange.RunResult, error) {
	var list []exchange.RunResult
	err := s.engine.Reader().Each(ctx, query, arguments, func(r row) error {
		one := exchange.RunResult{TurnID: turnID}
		var at int64
		var body string
		if err := r.Scan(&one.Run, &at, &one.Status, &one.Bytes, &one.LeftOut, &one.Digest, &body); err != nil {
			return err
		}
		one.At, one.Body = instant(at), rawJSON(body)
		list = append(list, one)
		return nil
	})
	return list, err
}

// sweepResults removes results that are older than the instant, with their contents.
func (s sweeper) sweepResults(ctx context.Context, before time.Time) error {
	const old = ` WHERE at <= $1 AND at IN (SELECT at FROM run_results WHERE at <= $1 ORDER BY at LIMIT $2 + 0)`
	for range maxBatches {
		var removed int64
		err := s.inBackground(ctx, func(tx *Tx) (err error) {
			if err := tx.discardResults(ctx, old, micros(before), int64(maxSwept)); err != nil {
				return err
			}
			removed, err = tx.sql.Change(ctx, `DELETE FROM run_results`+old, micros(before), int64(maxSwept))
			return err
		})
		if err != nil || removed < maxSwept {
			return err
		}
	}
	return nil
}
