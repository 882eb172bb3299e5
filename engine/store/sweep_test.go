package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

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

	removed := map[string]bool{} // by statements that are made from a list
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
	err = s.engine.Reader().Each(t.Context(), list, nil, func(r row) error {
		var table string
		if err := r.Scan(&table); err != nil {
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
	})
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
