package store

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/policypart"
)

// TestEndedDemandsAndCallsGo: what is open stays whatever its age, what ended goes at its age and leaves the contents that
// it referred to for the garbage.
func TestEndedDemandsAndCallsGo(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), Options{DataDir: t.TempDir(), URL: url(t)})
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})

			digest := strings.Repeat("ab", 32)
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

func newRowID() string { return uuid.Must(uuid.NewV7()).String() }

// kept are the tables of which no row is ever deleted, and why that is right.
var kept = map[string]string{
	"turns":          "a row recognises the repeat of its message; erasure empties it",
	"replies":        "a row recognises its native id in what peers send later; erasure empties it",
	"deliveries":     "a row records what became of an answer, also when a bounce comes a week later; erasure empties it",
	"demands":        "a row says who agreed to what; erasure empties it",
	"dispatches":     "a row belongs to its turn; erasure empties it",
	"tokens":         "a revoked token is on record; the operator makes them, so there are few",
	"list_version":   "one row",
	"bridge_clients": "one row for each bridge that the operator let in",
	"back_ends":      "one row for each agent",
	"search_state":   "one row",

	"agent_upload_sums": "one row for each agent",
}

// TestEveryTableEnds: a new table is emptied by a sweep, by erasure or by what made its rows, or it is said here why not.
func TestEveryTableEnds(t *testing.T) {
	var sources strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		sources.Write(text)
	}

	s, err := Open(t.Context(), Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()

	tables := 0
	const list = `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'goose_db_version'
		AND name NOT LIKE 'search_words_%'`
	err = s.engine.reader().each(t.Context(), list, nil, func(r row) error {
		var table string
		if err := r.Scan(&table); err != nil {
			return err
		}

		tables++
		deletes := regexp.MustCompile(`(?i)DELETE FROM ` + table + `\b`).MatchString(sources.String())
		reason, named := kept[table]
		switch {
		case !deletes && !named:
			t.Errorf("%s: nothing deletes its rows; let a sweep or erasure do it, or say in kept why they stay", table)
		case deletes && named:
			t.Errorf("%s: its rows are deleted; kept says %q", table, reason)
		}
		return nil
	})
	if err != nil || tables == 0 {
		t.Fatalf("%d tables, %v", tables, err)
	}
}

// TestUploadsGo: a file that no answer had for a day is forgotten, with what it counted.
func TestUploadsGo(t *testing.T) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), Options{DataDir: t.TempDir(), URL: url(t)})
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
