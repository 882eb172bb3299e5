package operator

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/internal/fault"
)

// TestListIsImportedOnce: a list of several portions and pages is taken whole, and the same again changes nothing.
func TestListIsImportedOnce(t *testing.T) {
	rows := openStore(t)
	lists := Lists{store: rows, ownHosts: map[string]bool{"agents.test": true}}
	var file strings.Builder
	for i := range 1200 {
		fmt.Fprintf(&file, "spam%d.example\n", i)
	}
	file.WriteString("agents.test\n?\n")

	for _, want := range []exchange.ImportResult{
		{Read: 1201, Added: 1200, BadLines: 2, DryRun: true}, {Read: 1201, Added: 1200, BadLines: 2}, {Read: 1201, Unchanged: 1200, BadLines: 2},
	} {
		taken := 0
		got, err := lists.Import(t.Context(), strings.NewReader(file.String()), ImportOptions{
			List: exchange.ListBlock, DryRun: want.DryRun, Progress: func(count int) { taken = count },
		})
		if err != nil || len(got.Bad) != want.BadLines {
			t.Errorf("%+v, %v", got, err)
		}
		if got.Bad = nil; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("imported %+v; want %+v", got, want)
		}
		if written := want.Added > 0 && !want.DryRun; (taken > 0) != written {
			t.Errorf("progress says %d of %+v", taken, want)
		}
	}
}

func TestListEntries(t *testing.T) {
	withdrawn := 0
	lists := Lists{store: openStore(t), ownHosts: map[string]bool{"agents.test": true}, withdraw: func(context.Context) (int, error) {
		withdrawn++
		return withdrawn, nil
	}}
	first, cancelled, err := lists.Add(t.Context(), exchange.ListEntry{List: exchange.ListBlock, Target: "*.Spam.example"})
	if err != nil || cancelled != 1 || first.Target != "*.spam.example" || first.Effect != exchange.EffectRefuse {
		t.Errorf("%+v, %d, %v", first, cancelled, err)
	}
	again, _, err := lists.Add(t.Context(), exchange.ListEntry{List: exchange.ListBlock, Target: "*.spam.example", Effect: exchange.EffectHold})
	if err != nil || again.ID != first.ID || again.Effect != exchange.EffectHold {
		t.Errorf("%+v, %v; was %+v", again, err, first)
	}
	for _, bad := range []exchange.ListEntry{
		{List: exchange.ListStop, Target: "spam.example"}, {List: exchange.ListBlock, Target: "agents.test"},
		{List: exchange.ListBlock, Target: "spam.example", Effect: "mock"}, {List: exchange.ListAllow, Target: "?"},
	} {
		if _, _, err := lists.Add(t.Context(), bad); !fault.Is(err, fault.Malformed) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, want := range []bool{true, false} {
		err := lists.Remove(t.Context(), exchange.ListEntry{List: exchange.ListBlock, Target: "*.spam.example"})
		if (err == nil) != want || !want && !fault.Is(err, fault.NotFound) {
			t.Errorf("removed %t: %v", want, err)
		}
	}
	if left, err := lists.Entries(t.Context(), exchange.ListFilter{List: exchange.ListBlock, Limit: 10}); err != nil || left == nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}
