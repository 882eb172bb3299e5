package store

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/exchange"
)

// TestTrustPlans reads SQLite's plans of what runs for messages with demands, links and dispatches, and of the sweeps.
func TestTrustPlans(t *testing.T) {
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

	list := func(filter exchange.AuditFilter) string {
		chosen := selectAudit(filter)
		return `SELECT ` + auditColumns + ` FROM audit` + chosen.sql() + chosen.page("id DESC", 1)
	}

	approvals := func(filter exchange.ApprovalFilter) string {
		query, _ := selectApprovals(filter)
		return query
	}

	requests := func(filter exchange.ToolRequestFilter) string {
		query, _, _ := selectToolRequests(filter)
		return query
	}
	taskRuns := func(filter exchange.TaskRunFilter) string {
		query, _ := taskRunQuery(filter)
		return query
	}
	for _, test := range []struct{ name, query, want string }{
		{"open approvals", approvals(exchange.ApprovalFilter{Agent: "a", Before: "b"}), "USING INDEX demands_open"},
		{"approvals by code", approvals(exchange.ApprovalFilter{Agent: "a", CodeHash: "c", All: true}), "USING INDEX demands_code"},
		{"page of approvals", approvals(exchange.ApprovalFilter{All: true, Before: "b"}), "USING INDEX demands_approvals"},
		{"demandByID", demandByID, "USING INDEX sqlite_autoindex_demands_1"},
		{"demandByState", demandByState, "USING INDEX sqlite_autoindex_demands_2"},
		{"demandOfTurn", demandOfTurn, "USING INDEX demands_turn"},
		{"demandByCode", demandByCode, "USING INDEX demands_code"},
		{"dueDemands", dueDemands, "USING INDEX demands_open"},
		{"claimDemand", claimDemand, "USING INDEX sqlite_autoindex_demands_1"},
		{"noteDemand", noteDemand, "USING INDEX sqlite_autoindex_demands_1"},
		{"resumeTurn", resumeTurn, "USING INDEX sqlite_autoindex_turns_1"},
		{"links of a first side", `SELECT ` + linkColumns + selectLinksOf, "USING INDEX links_first"},
		{"links of a second side", `SELECT ` + linkColumns + selectLinksOf, "USING INDEX links_second"},
		{"ended demands", removeEnded(endedDemands), "INDEX demands_ended (updated_at<?)"},
		{"ended calls", removeEnded(endedDispatches), "INDEX dispatches_ended (updated_at<?)"},
		{"dispatchByID", dispatchByID, "USING INDEX sqlite_autoindex_dispatches_1"},
		{"dispatchesOfTurn", dispatchesOfTurn, "USING INDEX dispatches_turn"},
		{"finishDispatch", finishDispatch, "USING INDEX sqlite_autoindex_dispatches_1"},
		{"toolRequestByID", toolRequestByID, "USING INDEX sqlite_autoindex_tool_requests_1"},
		{"endToolRequest", endToolRequest, "USING INDEX sqlite_autoindex_tool_requests_1"},
		{"pendingOfRun", pendingOfRun, "USING INDEX tool_requests_run"},
		{"open tool requests", requests(exchange.ToolRequestFilter{Agent: "a"}), "USING INDEX tool_requests_open"},
		{"due tool requests", requests(exchange.ToolRequestFilter{DueBy: time.Now()}), "USING INDEX tool_requests_due"},
		{"tool requests of a turn", requests(exchange.ToolRequestFilter{TurnID: "t", All: true}), "USING INDEX tool_requests_run"},
		{"sweepToolRequests", sweepToolRequests, "USING INDEX tool_requests_ended"},
		{"sweepRunNotes", sweepRunNotes, "task_runs_updated"},
		{"selectTaskRunRow", selectTaskRunRow, "USING INDEX sqlite_autoindex_task_runs_1"},
		{"runs of tasks", taskRuns(exchange.TaskRunFilter{Owner: "o", Before: "t"}), "USING INDEX task_runs_owner"},
		{"all runs of tasks", taskRuns(exchange.TaskRunFilter{}), "USING INDEX task_runs_turn"},
		{"audit of a turn", list(exchange.AuditFilter{TurnID: "t"}), "USING INDEX audit_turn"},
		{"audit by code", list(exchange.AuditFilter{Code: "a"}), "USING INDEX audit_code"},
	} {
		steps := strings.Join(plan(t, database, test.query), "\n")
		if !strings.Contains(steps, test.want) || strings.Contains(steps, "SCAN demands") || strings.Contains(steps, "SCAN person") {
			t.Errorf("%s:\n%s", test.name, steps)
		}
	}

	for name, query := range map[string]string{
		"all audit": list(exchange.AuditFilter{}), "old audit": sweepOldAudit, "excess audit": sweepExcessAudit,
		"open demands": dueDemands,
	} {
		if steps := strings.Join(plan(t, database, query), "\n"); strings.Contains(steps, "TEMP B-TREE FOR ORDER") {
			t.Errorf("%s is sorted:\n%s", name, steps)
		}
	}
}

func TestSweepAudit(t *testing.T) {
	s, err := Open(t.Context(), Options{DataDir: migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()

	write := func(count int, age time.Duration) {
		if err := s.InTx(t.Context(), func(tx *Tx) error {
			for i := range count {
				record := exchange.AuditRecord{
					ID: uuid.Must(uuid.NewV7()).String(), At: time.Now().Add(-age), Code: "access:no_rule", Detail: fmt.Sprint(i),
				}
				if err := tx.Audit(t.Context(), record); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}

	left := func(keep int64) (count int) {
		if err := s.sweepOnce(t.Context(), keep); err != nil {
			t.Fatal(err)
		}
		if _, err := first(t.Context(), s.engine.Reader(), `SELECT COUNT(*) FROM audit`, nil, &count); err != nil {
			t.Fatal(err)
		}
		return count
	}

	auditAge := DefaultCeilings()[RetainAudit]
	write(2500, auditAge+time.Hour)
	write(2500, auditAge-time.Hour)
	for _, step := range []struct {
		keep int64
		want int
	}{{auditRows, 2500}, {2500, 2500}, {2499, 2499}, {7, 7}, {7, 7}} {
		if got := left(step.keep); got != step.want {
			t.Errorf("keep %d: %d left, want %d", step.keep, got, step.want)
		}
	}

	records, err := s.AuditRecords(t.Context(), exchange.AuditFilter{})
	if err != nil || len(records) != 7 || records[0].Detail != "2499" {
		t.Errorf("%d records, %v: the newest are kept", len(records), err)
	}
}
