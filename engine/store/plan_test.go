package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// TestPlans reads SQLite's plans of the queries that run for every message: none may walk through a table.
func TestPlans(t *testing.T) {
	directory := migrated(t)
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
		"insertJob": sqliteDialect.insertJob, "claimLane": sqliteDialect.claimShare, "takeExpired": sqliteDialect.takeExpired,
		"comeDue": sqliteDialect.comeDue, "selectLanes": selectShares, "selectGroups": selectGroups,
		"promoteJob": sqliteDialect.promoteJob, "nextDue": sqliteDialect.nextDue, "countReady": sqliteDialect.countReady, "appendEvent": appendEvent, "selectEvents": selectEvents,
		"selectSameTurn": selectSameTurn, "selectTurn": selectTurn,
		"selectContinued": selectContinued, "selectSentEntry": selectSentEntry, "selectParties": selectParties,
		"selectReply": selectReply, "selectReplies": selectReplies,
		"selectDelivery": selectDelivery, "selectDocument": selectDocument, "listDocuments": listDocuments, "selectSeveral": selectSeveral,
		"selectSendings": selectSendings, "removeJobs": sqliteDialect.removeJobs, "selectPart": selectPart, "selectStranded": selectStranded, "selectPredecessor": selectPredecessor, "reviseReply": reviseReply, "leaveHistory": leaveHistory,
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
	s, err := Open(t.Context(), Options{DataDir: migrated(t)})
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
	if _, err := first(t.Context(), s.engine.Reader(), `SELECT COUNT(*) FROM documents`, nil, &left); err != nil || left != 2 {
		t.Errorf("%d documents left, %v", left, err)
	}

	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestDamagedRow: a row that cannot be decoded is our defect, not an unavailable database.
func TestDamagedRow(t *testing.T) {
	s, err := Open(t.Context(), Options{DataDir: migrated(t)})
	if err != nil {
		t.Fatal(err)
	}

	if err := s.InTx(t.Context(), func(tx *Tx) error {
		return tx.sql.Do(t.Context(), tx.dialect.insertTurn, "id", "a", "r", "v", "p", "n", "t", "", "k1", "k2", "k3", "k4", "", "accepted", "",
			int64(0), int64(1), int64(1), "", "", "{damaged", int64(1), int64(0), "", "email", "", "", "", "", "", "", "", "k5")
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

// listed is a list and the index that has to serve it.
type listed struct {
	name, query, index string
	arguments          []any
}

// lists are all lists that are read page by page, and the counts that go with them.
func lists(t *testing.T) (all []listed) {
	t.Helper()
	turns := func(name, index string, filter exchange.TurnFilter) {
		filter.Limit = 50
		chosen, err := selectTurns(filter)
		if err != nil {
			t.Fatal(err)
		}

		all = append(all, listed{name, chosen.page(filter.Limit), index, chosen.arguments})
		filter.Before = "7.0198c0f0-0000-7000-8000-000000000000"
		if chosen, err = selectTurns(filter); err != nil {
			t.Fatal(err)
		}

		all = append(all, listed{name + ", next page", chosen.page(filter.Limit), index, chosen.arguments})
		if !filter.Latest {
			return
		}

		filter.Before = ""
		if chosen, err = selectTurns(filter); err != nil {
			t.Fatal(err)
		}

		all = append(all, listed{name + ", counted", chosen.count(), index, chosen.arguments})
	}

	now := time.Now()
	tasks := exchange.TurnFilter{Agent: "a", Principal: "p", ReceivedVia: normalized.ViaA2A, Latest: true}
	turns("tasks", "turns_tasks", tasks)
	since := tasks
	since.UpdatedAfter = now
	turns("tasks since", "turns_tasks", since)

	for _, one := range exchange.Standings {
		tasks.Standing, tasks.ThreadID = one, ""
		turns("tasks that are "+one, "turns_tasks", tasks)
		tasks.ThreadID = "t"
		turns("tasks of a context that are "+one, "turns_tasks_thread", tasks)
	}

	tasks.Standing = ""
	turns("tasks of a context", "turns_tasks_thread", tasks)

	held, open := []string{exchange.StateHeld}, []string{exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting}
	turns("held", "turns_state", exchange.TurnFilter{States: held})
	turns("held of an agent", "turns_state_agent", exchange.TurnFilter{Agent: "a", States: held})
	turns("failed of an agent", "turns_state_agent", exchange.TurnFilter{Agent: "a", States: []string{exchange.StateFailed}, UpdatedAfter: now})
	turns("open", "turns_open", exchange.TurnFilter{States: append(held, open...), ByArrival: true})
	turns("thread", "turns_thread", exchange.TurnFilter{Agent: "a", ThreadID: "t", ByArrival: true})
	turns("thread of an owner", "turns_thread", exchange.TurnFilter{
		Agent: "a", Principal: "p", ThreadID: "t", ReceivedVia: normalized.ViaA2A, ByArrival: true,
	})

	turns("open of a thread", "turns_thread_open", exchange.TurnFilter{Agent: "a", ThreadID: "t", States: open, ByArrival: true})
	turns("of an owner by a program", "turns_owner_arrival", exchange.TurnFilter{
		Agent: "a", Principal: "p", ReceivedVia: normalized.ViaA2A, ByArrival: true, UpdatedAfter: now, AcceptedAfter: now,
	})

	return slices.Concat(all, otherLists(), arrivalPlans(t))
}

func otherLists() (all []listed) {
	approvals, approvalArguments := selectApprovals(exchange.ApprovalFilter{Agent: "a", All: true, Before: "b"})
	demands, demandArguments := selectWaiting("a", time.Now(), "b", 50)
	requests, requestArguments, _ := selectToolRequests(exchange.ToolRequestFilter{All: true, CreatedAfter: time.Now()})
	followingRequests, followingArguments, _ := selectToolRequests(exchange.ToolRequestFilter{All: true, Before: "1.b"})
	page := func(s *selection, columns, order string) (string, []any) {
		text := columns + s.sql() + s.page(order, 50)
		return text, s.arguments
	}
	audit, auditArguments := page(selectAudit(exchange.AuditFilter{Code: "c", Before: "b"}), `SELECT `+auditColumns+` FROM audit`, "id DESC")
	ofTurn, ofTurnArguments := page(selectAudit(exchange.AuditFilter{TurnID: "c"}), `SELECT `+auditColumns+` FROM audit`, "id DESC")

	return []listed{
		{"approvals", approvals, "demands_approvals", approvalArguments},
		{"demands", demands, "demands_open", demandArguments},
		{"tool requests", requests, "tool_requests_created", requestArguments},
		{"tool requests after a cursor", followingRequests, "tool_requests_created", followingArguments},
		{"audit by code", audit, "audit_code", auditArguments},
		{"audit of a turn", ofTurn, "audit_turn", ofTurnArguments},
		{"events", selectEvents, "events", []any{"t", int64(1), int64(50)}},
		{"answers", selectReplies, "replies_open", []any{"a", "~", int64(50)}},
		{"changes of lists", selectListChanges, "list_entries_version", []any{int64(1), "a", int64(50)}},
		{"mails of a suppressed address", selectWrote, "arrivals_sender", []any{"email", "@a@x.test", int64(1), "0"}},
		{"suppressed addresses that wrote", selectMetByMail, "arrivals_sender", []any{"email", int64(50)}},
		{"suppressed addresses whose mail waits", selectMetWaiting, "search_pending", []any{"email", int64(50)}},
		{"suppressed addresses whose mail has no place", selectMetUnplaced, "arrivals_unplaced", []any{"email", int64(50)}},
		{"conditions", selectConditions, "destinations_updated", []any{int64(50)}},
	}
}

// TestListPlans: no list walks through a table or sorts what it does not return, on either database. Every arm of a list is a
// range of one index in the order of the list, ended by its limit.
func TestListPlans(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		directory := migrated(t)
		database := opened(t, Options{DataDir: directory}, "sqlite", sqliteURL(filepath.Join(directory, File)))
		for _, list := range lists(t) {
			steps := sqlitePlan(t, database, list)
			for _, wrong := range wrongSteps(steps) {
				t.Errorf("%s: %s\n%s", list.name, wrong, steps)
			}

			if !usesIndex(steps, list.index) {
				t.Errorf("%s does not read %s:\n%s", list.name, list.index, steps)
			}
		}
	})

	t.Run("postgres", func(t *testing.T) {
		url := storetest.Postgres(t)
		database := opened(t, Options{URL: url, Connections: 2}, "pgx", url)
		database.SetMaxOpenConns(1)
		// What the planner could do, not what it would do with an empty table.
		for _, setting := range []string{"enable_seqscan", "enable_bitmapscan", "enable_sort"} {
			if _, err := database.ExecContext(t.Context(), "SET "+setting+" = off"); err != nil {
				t.Fatal(err)
			}
		}

		for _, list := range lists(t) {
			root := postgresPlan(t, database, list)
			indexes := map[string]bool{}
			root.check(t, list.name, false, indexes)
			if !indexes[list.index] && !indexes[list.index+"_pkey"] {
				t.Errorf("%s reads %v, not %s", list.name, indexes, list.index)
			}
		}
	})
}

// opened makes a database with the schema of now and returns a connection to it.
func opened(t *testing.T, options Options, driver, url string) *sql.DB {
	t.Helper()
	s, err := Open(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}

	database, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := database.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return database
}

// step is a line of SQLite's plan: lines with one parent are one query.
type step struct {
	parent int
	detail string
}

type steps []step

// String returns the lines.
func (s steps) String() string {
	var text strings.Builder
	for _, one := range s {
		text.WriteString("\t" + one.detail + "\n")
	}
	return text.String()
}

func sqlitePlan(t *testing.T, database *sql.DB, list listed) (plan steps) {
	t.Helper()
	rows, err := database.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+list.query, list.arguments...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", list.name, err, list.query)
	}
	defer rows.Close()

	for rows.Next() {
		var id, unused int
		var one step
		if err := rows.Scan(&id, &one.parent, &unused, &one.detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, one)
	}

	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}

	return plan
}

// intermediate reports whether a step walks through what an arm returned, which is at most a page, or through the outbox of the search index, which
// is as long as its worker is behind.
func intermediate(detail string) bool {
	for _, name := range []string{"SCAN arm", "SCAN arms", "SCAN hit", "SCAN counted", "SCAN (subquery", "SCAN places", "SCAN CONSTANT ROW", "SEARCH waiting"} {
		if strings.HasPrefix(detail, name) {
			return true
		}
	}
	return false
}

func wrongSteps(plan steps) (wrong []string) {
	bounded := map[int]bool{}
	for _, one := range plan {
		bounded[one.parent] = bounded[one.parent] || intermediate(one.detail)
	}

	for _, one := range plan {
		switch {
		case strings.HasPrefix(one.detail, "SCAN") && !intermediate(one.detail) && !strings.Contains(one.detail, "INDEX"):
			wrong = append(wrong, "walks through a table: "+one.detail)
		case strings.Contains(one.detail, "TEMP B-TREE") && !bounded[one.parent]:
			wrong = append(wrong, "sorts all rows: "+one.detail)
		}
	}
	return wrong
}

func usesIndex(plan steps, index string) bool {
	for _, one := range plan {
		for _, name := range []string{"INDEX " + index, "INDEX sqlite_autoindex_" + index + "_1"} {
			if strings.HasSuffix(one.detail, name) || strings.Contains(one.detail, name+" (") {
				return true
			}
		}
	}
	return false
}

// node is one of PostgreSQL's plan.
type node struct {
	Type  string `json:"Node Type"`
	Table string `json:"Relation Name"`
	Index string `json:"Index Name"`
	Plans []node `json:"Plans"`
}

func postgresPlan(t *testing.T, database *sql.DB, list listed) node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var text string
	if err := database.QueryRowContext(ctx, "EXPLAIN (FORMAT JSON) "+list.query, list.arguments...).Scan(&text); err != nil {
		t.Fatalf("%s: %v\n%s", list.name, err, list.query)
	}

	var plans []struct{ Plan node }
	if err := json.Unmarshal([]byte(text), &plans); err != nil || len(plans) != 1 {
		t.Fatalf("%s: %v\n%s", list.name, err, text)
	}

	return plans[0].Plan
}

// check walks down from the root: below a sort, a limit has to come before a table.
func (n node) check(t *testing.T, name string, sorted bool, indexes map[string]bool) {
	t.Helper()
	switch {
	case strings.Contains(n.Type, "Sort"):
		sorted = true
	case n.Type == "Limit":
		sorted = false
	case n.Type == "Seq Scan" || strings.HasPrefix(n.Type, "Bitmap"):
		t.Errorf("%s: walks through %s by %s", name, n.Table, n.Type)
	}

	// By its key a row of what was found is read, one at a time.
	if n.Table != "" && sorted && n.Index != n.Table+"_pkey" {
		t.Errorf("%s: sorts all that it reads of %s", name, n.Table)
	}
	if n.Index != "" {
		indexes[n.Index] = true
	}

	for _, child := range n.Plans {
		child.check(t, name, sorted, indexes)
	}
}

// FuzzCursor: a cursor comes from a peer's page token; whatever it is, it is used or refused as malformed.
func FuzzCursor(f *testing.F) {
	for _, seed := range []string{"", "1.a", "x", ".", "1.", "-5.\x00", "9223372036854775807.id", "99999999999999999999.id"} {
		f.Add(seed)
	}

	f.Fuzz(func(t *testing.T, cursor string) {
		var s selection
		err := s.addCursor(cursor, false)
		if err != nil && !fault.Is(err, fault.Malformed) {
			t.Fatal(err)
		}
		if want := 2; err == nil && cursor != "" && len(s.arguments) != want {
			t.Fatalf("%q gives %v", cursor, s.arguments)
		}
	})
}
