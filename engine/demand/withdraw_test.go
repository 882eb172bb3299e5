package demand

import (
	"strings"
	"testing"

	"inbox/internal/fault"
	"inbox/policypart"
)

// TestWithdrawnDemandWasNotAnswered: who opens the link of a demand that the operator ended, or whose message was cancelled, reads that it
// is no longer needed, and not that they or someone else answered it.
func TestWithdrawnDemandWasNotAnswered(t *testing.T) {
	for name, end := range map[string]func(*bench, policypart.Issuance) error{
		"by the operator": func(b *bench, i policypart.Issuance) error { return b.Withdraw(t.Context(), i.ID, "operator:laptop") },
		"with its message": func(b *bench, i policypart.Issuance) error {
			row := b.row(i.ID)
			row.Status = policypart.StatusDropped
			b.rows.demands[i.ID] = row
			return nil
		},
	} {
		b := setup(t)
		issuance, token := b.park(t, turnOf("1", "alice"), consent())
		if err := end(b, issuance); err != nil {
			t.Fatal(name, err)
		}
		view, err := b.Show(t.Context(), token)
		if err != nil || view.Open || view.Status != policypart.StatusDropped || view.Outcome != "" {
			t.Errorf("%s: the page shows status %q and outcome %q (%v)", name, view.Status, view.Outcome, err)
		}
		if _, err := b.Decide(t.Context(), token, true); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.Of(err).Public, "no longer needed") {
			t.Errorf("%s: a decision says %v", name, err)
		}
		if err := b.Withdraw(t.Context(), issuance.ID, "operator:laptop"); !fault.Is(err, fault.Conflict) || strings.Contains(fault.Of(err).Public, "answered") {
			t.Errorf("%s: withdrawn again: %v", name, err)
		}
	}
}
