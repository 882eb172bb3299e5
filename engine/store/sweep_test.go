package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/migrations"
	"inbox/policypart"
)

// TestEndedDemandsAndCallsGo: what is open stays whatever its age, what ended goes at its age and leaves the contents that
// it referred to for the garbage.
func TestEndedDemandsAndCallsGo(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), Options{DataDir: migrated(t), URL: url(t)})
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})

			digest := strings.Repeat("ab", 32)
			demandAge, dispatchAge := DefaultCeilings()[RetainDemands], DefaultCeilings()[RetainDispatches]
			old, young := func(age time.Duration) time.Time { return time.Now().Add(-age - time.Hour) }, func(age time.Duration) time.Time { return time.Now().Add(-age + time.Hour) }
			kept := map[string]bool{}
			demand := func(status string, at time.Time, stays bool) {
				id := newRowID()
				kept["demand "+id] = stays
				d := policypart.Issuance{
					ID: id, StateHash: id, TurnID: newRowID(), Agent: "echo", Status: status, IssuedAt: at, ExpiresAt: at.Add(time.Hour), UpdatedAt: at,
					Notes: json.RawMessage(`{"draft":{"parts":[{"bytes_ref":{"kind":"content_addressed","digest":"` + digest + `"}}]}}`),
				}
				if err := s.InTx(t.Context(), func(tx *Tx) error { return tx.InsertDemand(t.Context(), d) }); err != nil {
					t.Fatal(err)
				}
			}

			call := func(state string, at time.Time, stays bool) {
				id := newRowID()
				kept["call "+id] = stays
				d := exchange.Dispatch{ID: id, TurnID: newRowID(), State: state, CreatedAt: at, UpdatedAt: at}
				if err := s.InTx(t.Context(), func(tx *Tx) error { return tx.InsertDispatch(t.Context(), d) }); err != nil {
					t.Fatal(err)
				}
			}

			for _, open := range []string{policypart.StatusIssued, policypart.StatusClaimed} {
				demand(open, old(demandAge), true)
			}

			for _, end := range []string{policypart.StatusResolved, policypart.StatusDenied, policypart.StatusExpired, policypart.StatusDropped} {
				demand(end, old(demandAge), false)
				demand(end, young(demandAge), true)
			}

			call(exchange.DispatchPending, old(dispatchAge), true)
			call(exchange.DispatchDone, old(dispatchAge), false)
			call(exchange.DispatchDone, young(dispatchAge), true)
			for range 2 { // a second one finds nothing
				if err := s.sweepOnce(t.Context(), auditRows); err != nil {
					t.Fatal(err)
				}
			}

			for row, stays := range kept {
				kind, id, _ := strings.Cut(row, " ")
				_, err := s.Demand(t.Context(), id)
				if kind == "call" {
					_, err = s.Dispatch(t.Context(), id)
				}
				if stays && err != nil || !stays && !fault.Is(err, fault.NotFound) {
					t.Errorf("%s: %v; stays %v", row, err, stays)
				}
			}

			if garbage, err := s.Garbage(t.Context(), "", 10); err != nil || len(garbage) != 1 || garbage[0].Digest != digest {
				t.Errorf("garbage %v, %v", garbage, err)
			}
		})
	}
}

// TestRowsThatStayAreNotInTheWay: rows that are older than the end of their kind and do not end, as many as they are, do not keep later ones.
func TestRowsThatStayAreNotInTheWay(t *testing.T) {
	const staying = maxSwept + 1
	ended := time.Now().Add(-500 * 24 * time.Hour)
	kinds := map[string]struct {
		count  string // of the rows that end
		insert func(ctx context.Context, tx *Tx, id string, at time.Time, ends bool) error
	}{
		"demands": {`SELECT COUNT(*) FROM demands WHERE status = 'resolved'`, func(ctx context.Context, tx *Tx, id string, at time.Time, ends bool) error {
			status := map[bool]string{true: policypart.StatusResolved, false: policypart.StatusIssued}[ends]
			return tx.InsertDemand(ctx, policypart.Issuance{ID: id, StateHash: id, TurnID: id, Agent: "echo", Status: status, IssuedAt: at, ExpiresAt: at, UpdatedAt: at})
		}},
		"calls": {`SELECT COUNT(*) FROM dispatches WHERE state = 'done'`, func(ctx context.Context, tx *Tx, id string, at time.Time, ends bool) error {
			state := map[bool]string{true: exchange.DispatchDone, false: exchange.DispatchPending}[ends]
			return tx.InsertDispatch(ctx, exchange.Dispatch{ID: id, TurnID: id, State: state, CreatedAt: at, UpdatedAt: at})
		}},
		"records": {`SELECT COUNT(*) FROM audit WHERE detail = 'true'`, func(ctx context.Context, tx *Tx, id string, at time.Time, ends bool) error {
			if !ends { // such as one whose id another node made long before
				at = time.Now()
			}
			return tx.Audit(ctx, exchange.AuditRecord{ID: id, At: at, Code: "test", Detail: strconv.FormatBool(ends)})
		}},
		"notices": {`SELECT COUNT(*) FROM notices WHERE title = 'true'`, func(ctx context.Context, tx *Tx, id string, at time.Time, ends bool) error {
			if !ends {
				at = time.Now()
			}
			return tx.InsertNotice(ctx, exchange.Notice{ID: id, Title: strconv.FormatBool(ends), CreatedAt: at, Ways: []exchange.NoticeWay{
				{ID: id, NoticeID: id, Address: strconv.FormatBool(ends), State: exchange.NoticeSent, UpdatedAt: at},
			}})
		}},
		"ways of notices": {`SELECT COUNT(*) FROM notice_ways WHERE address = 'true'`, nil},
		"unanswered messages": {`SELECT COUNT(*) FROM unanswered WHERE turn_id > '~'`, func(ctx context.Context, tx *Tx, id string, at time.Time, ends bool) error {
			if ends {
				id = "~" + id
			} else if err := insertDamaged(ctx, tx, id); err != nil {
				return err
			}
			return tx.sql.Do(ctx, insertUnanswered, id, "", int64(1), micros(at))
		}},
	}

	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s := open(t)
		err := s.InTx(t.Context(), func(tx *Tx) error {
			for n := range staying + 1 {
				at := ended.Add(time.Duration(n) * time.Millisecond)
				id := idBefore(at) + newRowID()[13:]
				for name, kind := range kinds {
					if kind.insert == nil {
						continue
					}
					if err := kind.insert(t.Context(), tx, id, at, n == staying); err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		if err := s.sweepOnce(t.Context(), auditRows); err == nil || !strings.Contains(err.Error(), "expire message") {
			t.Errorf("the damaged messages: %v", err)
		}
		for name, kind := range kinds {
			var left int64
			if _, err := first(t.Context(), s.engine.Reader(), kind.count, nil, &left); err != nil || left != 0 {
				t.Errorf("%s: %d are left, %v", name, left, err)
			}
		}
	})
}

// insertDamaged stores a refused turn whose message cannot be decoded.
func insertDamaged(ctx context.Context, tx *Tx, id string) error {
	turn := said(id, "peer.example "+id, "@bob@peer.example", "hello", false)
	turn.ID, turn.State = id, exchange.StateRefused
	if _, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: strings.Repeat("a", 64), Body: []byte("hello")}); err != nil {
		return err
	}
	return tx.sql.Do(ctx, `UPDATE turns SET message = '{' WHERE id = $1`, id)
}

// TestPagesOfOpenWork: erasures, takeovers and turns that wait are read page after page, so that those at the beginning, which may wait for
// long, are not in the way of others.
func TestPagesOfOpenWork(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s := open(t)
		ctx := t.Context()
		const rows = maxSwept + 1
		var erasures, takeovers, turns []string
		err := s.InTx(ctx, func(tx *Tx) error {
			for n := range rows {
				turn := said(strconv.Itoa(n), "peer.example ana", "@ana@peer.example", "hello", false)
				turn.State, turn.Reason, turn.ThreadID = exchange.StateWaiting, exchange.WaitingOperator, "of no one"
				id, takeover := newRowID(), exchange.Takeover{ID: newRowID(), Agent: "echo", ThreadID: strconv.Itoa(n), Holder: "anna", Since: time.Now(), TouchedAt: time.Now()}
				erasures, takeovers, turns = append(erasures, id), append(takeovers, takeover.ID), append(turns, turn.ID)
				if err := tx.sql.Do(ctx, `INSERT INTO erasures (id, stage, requested_by, requested_at, ended_at, after_id, person, receipt)
					VALUES ($1, $2, '', 0, 0, '', '', $3)`, id, EraseStop, `{"id":"`+id+`"}`); err != nil {
					return err
				}
				if _, _, err := tx.BeginTakeover(ctx, takeover); err != nil {
					return err
				}
				if _, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: strings.Repeat("a", 64), Body: []byte("hello")}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}

		for name, list := range map[string]struct {
			want []string
			page func(after string) (ids []string, err error)
		}{
			"erasures": {erasures, func(after string) (ids []string, err error) {
				page, err := s.OpenErasures(ctx, after)
				for _, one := range page {
					ids = append(ids, one.Receipt.ID)
				}
				return ids, err
			}},
			"idle takeovers": {takeovers, func(after string) (ids []string, err error) {
				page, err := s.IdleTakeovers(ctx, time.Now().Add(time.Hour), after, 100)
				for _, one := range page {
					ids = append(ids, one.ID)
				}
				return ids, err
			}},
			"turns without an operator": {turns, func(after string) (ids []string, err error) {
				page, err := s.LeftBehind(ctx, after, 100)
				for _, one := range page {
					ids = append(ids, one.TurnID)
				}
				return ids, err
			}},
		} {
			var read []string
			for after := ""; ; after = read[len(read)-1] {
				page, err := list.page(after)
				if err != nil {
					t.Fatal(err)
				}
				if len(page) == 0 {
					break
				}
				read = append(read, page...)
			}
			if !slices.Equal(read, list.want) {
				t.Errorf("%s: %d were read, want %d", name, len(read), len(list.want))
			}
		}
	})
}

// TestCeilingsAreSettings: kinds without a ceiling stay for ever, and a shorter one holds at the next sweep.
func TestCeilingsAreSettings(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		s := open(t)
		ended := func(age time.Duration) string {
			id, at := newRowID(), time.Now().Add(-age)
			err := s.InTx(t.Context(), func(tx *Tx) error {
				return tx.InsertDispatch(t.Context(), exchange.Dispatch{ID: id, TurnID: newRowID(), State: exchange.DispatchDone, CreatedAt: at, UpdatedAt: at})
			})
			if err != nil {
				t.Fatal(err)
			}
			return id
		}
		ancient, recent := ended(9999*time.Hour), ended(2*time.Hour)

		for _, step := range []struct {
			ceilings Periods
			left     []string
		}{{Periods{}, []string{ancient, recent}}, {DefaultCeilings(), []string{recent}}, {Periods{RetainDispatches: time.Hour}, nil}} {
			s.options.Ceilings = func() Periods { return step.ceilings }
			if err := s.sweepOnce(t.Context(), auditRows); err != nil {
				t.Fatal(err)
			}
			for _, id := range []string{ancient, recent} {
				if _, err := s.Dispatch(t.Context(), id); slices.Contains(step.left, id) != (err == nil) {
					t.Errorf("%v: %s: %v", step.ceilings, id, err)
				}
			}
		}
	})
}

func newRowID() string { return uuid.Must(uuid.NewV7()).String() }

// TestEveryTableEnds: each table has its rule, each rule its table, and where rows end or an erasure removes them, there is a statement that does it.
func TestEveryTableEnds(t *testing.T) {
	var sources strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "tables.go" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		sources.Write(text)
	}

	removed := map[string]bool{turnTable: true, mailTable: true} // by statements that are made from a list
	for _, rows := range turnRows {
		removed[rows[0]] = true
	}
	for _, rows := range []ended{endedDemands, endedDispatches, endedToolRequests} {
		removed[rows.table] = true
	}
	for _, rows := range noted {
		removed[rows.table] = removed[rows.table] || rows.set == ""
	}

	s, err := Open(t.Context(), Options{DataDir: migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()

	tables := map[string]bool{}
	const list = `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'goose_db_version'
		AND name NOT LIKE 'search_words_%' AND name NOT LIKE 'mail_words_%'`
	check := func(r row) error {
		var table string
		if err := r.Scan(&table); err != nil || table == "stamp" { // one row of search.db, which names nothing
			return err
		}

		tables[table] = true
		rule, named := migrations.TableRules[table]
		if !named || rule.Ends == "" || rule.Erasure == "" {
			t.Errorf("%s: say in migrations/tables.go what ends its rows, and what an erasure of a person does there", table)
			return nil
		}

		deletes := removed[table] || regexp.MustCompile(`(?i)DELETE FROM `+table+`\b`).MatchString(sources.String())
		stays := strings.HasPrefix(rule.Ends, "for ever: ")
		if !deletes && !stays {
			t.Errorf("%s: nothing deletes its rows; migrations/tables.go says %q", table, rule.Ends)
		}
		if stays && !strings.Contains(rule.Erasure, "remove") && deletes {
			t.Errorf("%s: its rows are deleted; migrations/tables.go says %q", table, rule.Ends)
		}
		if strings.Contains(rule.Erasure, "remove") && !strings.HasPrefix(rule.Erasure, "nothing: ") && !deletes {
			t.Errorf("%s: nothing deletes its rows; migrations/tables.go says %q", table, rule.Erasure)
		}
		return nil
	}
	err = errors.Join(s.engine.Reader().Each(t.Context(), list, nil, check), s.words.Reader().Each(t.Context(), list, nil, check))
	if err != nil || len(tables) == 0 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}

	for table := range migrations.TableRules {
		if !tables[table] {
			t.Errorf("%s: there is no such table", table)
		}
	}
}

// TestUploadsGo: a file that no answer had for a day is forgotten, with what it counted.
func TestUploadsGo(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), Options{DataDir: migrated(t), URL: url(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})

			digest := strings.Repeat("ab", 32)
			reserve := func(size int64) bool {
				upload := exchange.Upload{ID: newRowID(), Agent: "echo", Size: size}
				fits, err := s.ReserveUpload(t.Context(), upload, 10)
				if err != nil {
					t.Fatal(err)
				}
				if fits {
					if err := s.FinishUpload(t.Context(), upload.ID, digest); err != nil {
						t.Fatal(err)
					}
				}
				return fits
			}
			for _, step := range []struct {
				before time.Time
				left   bool
			}{{time.Now().Add(-time.Hour), true}, {time.Now().Add(time.Hour), false}} {
				if step.left && !reserve(10) {
					t.Fatal("a file within the bound does not fit")
				}
				if err := s.sweepUploads(t.Context(), step.before); err != nil {
					t.Fatal(err)
				}
				if _, found, err := s.Uploaded(t.Context(), "echo", digest); found != step.left || err != nil {
					t.Errorf("before %s: found %t, %v", step.before, found, err)
				}
				if reserve(1) == step.left {
					t.Errorf("before %s: room for more is %t", step.before, !step.left)
				}
			}
		})
	}
}
