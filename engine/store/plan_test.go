package store

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

// TestPlans reads SQLite's plans of the queries that run for every message: none may walk through a table.
func TestPlans(t *testing.T) {
	directory := t.TempDir()
	s, err := Open(t.Context(), Options{DataDir: directory})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	database, err := sql.Open("sqlite", sqliteURL(filepath.Join(directory, File)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := database.Close(); err != nil {
			t.Error(err)
		}
	}()
	owned, err := selectTurns(exchange.TurnFilter{Agent: "a", Principal: "p", Reference: "r", Latest: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, query := range map[string]string{
		"insertJob": sqliteDialect.insertJob, "claimLane": sqliteDialect.claimLane, "takeExpired": sqliteDialect.takeExpired,
		"comeDue": sqliteDialect.comeDue, "selectLanes": selectLanes, "selectGroups": selectGroups,
		"promoteJob": sqliteDialect.promoteJob, "nextDue": sqliteDialect.nextDue, "appendEvent": appendEvent, "selectEvents": selectEvents,
		"selectSameTurn": selectSameTurn, "selectTurn": selectTurn,
		"selectMessage": selectMessage, "selectReply": selectReply, "selectReplies": selectReplies,
		"selectDelivery": selectDelivery, "selectDocument": selectDocument, "listDocuments": listDocuments, "selectSeveral": selectSeveral,
		"selectSendings": selectSendings, "removeJobs": removeJobs, "reviseReply": reviseReply, "leaveHistory": leaveHistory,
		"sweepDocuments": sweepDocuments, "tokenByHash": selectToken,
		"owned turns": owned.page(1),
	} {
		for _, step := range plan(t, database, query) {
			if strings.HasPrefix(step, "SCAN") && !harmless(step) {
				t.Errorf("%s: %s", name, step)
			}
		}
	}
}

// harmless are walks through intermediate results, not tables.
func harmless(step string) bool {
	for _, name := range []string{"picked", "waiting", "either", "hit", "head", "lane", "arm", "CONSTANT"} {
		if strings.Contains(step, name) {
			return true
		}
	}
	return false
}

func plan(t *testing.T, database *sql.DB, query string) (steps []string) {
	t.Helper()
	arguments := make([]any, strings.Count(query, "$"))
	for i := range arguments {
		arguments[i] = int64(1)
	}
	for len(arguments) > 0 && !strings.Contains(query, placeholders(len(arguments), 1)) {
		arguments = arguments[:len(arguments)-1]
	}
	rows, err := database.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, arguments...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer func() {
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
	}()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}

func TestSweep(t *testing.T) {
	s, err := Open(t.Context(), Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for key, expires := range map[string]time.Time{"never": {}, "later": time.Now().Add(time.Hour), "past": time.Now().Add(-time.Hour)} {
		if err := s.State().Put(t.Context(), "n", key, nil, expires); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.sweepOnce(t.Context(), auditRows); err != nil {
		t.Fatal(err)
	}
	var left int
	if _, err := first(t.Context(), s.engine.reader(), `SELECT COUNT(*) FROM documents`, nil, &left); err != nil || left != 2 {
		t.Errorf("%d documents left, %v", left, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestDamagedRow: a row that cannot be decoded is our defect, not an unavailable database.
func TestDamagedRow(t *testing.T) {
	s, err := Open(t.Context(), Options{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.InTx(t.Context(), func(tx *Tx) error {
		return tx.do(t.Context(), insertTurn, "id", "a", "r", "v", "p", "n", "t", "", "k1", "k2", "k3", "k4", "", "accepted", "",
			int64(0), int64(1), int64(1), "", "", "{damaged", int64(1), int64(0), "", "email")
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Turn(t.Context(), "id"); err == nil || fault.Of(err).Kind != fault.Internal || !strings.Contains(err.Error(), "decode message of turn id") {
		t.Errorf("got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
