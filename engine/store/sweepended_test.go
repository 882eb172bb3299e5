package store

import (
	"encoding/json"
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
