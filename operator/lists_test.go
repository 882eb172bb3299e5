package operator

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"inbox/engine/store"
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

// TestPeopleArePaged: after the last link come people who told an agent to stop, and pages of any size have each once.
func TestPeopleArePaged(t *testing.T) {
	rows := openStore(t)
	people := People{rows, rows}
	for i := range 3 {
		err := rows.InTx(t.Context(), func(tx *store.Tx) error {
			side := func(name string) exchange.LinkSide {
				return exchange.LinkSide{Principal: fmt.Sprint("x ", name, i), Issuer: "x", Subject: fmt.Sprint(name, i), Method: "email-dmarc"}
			}
			return tx.PutLink(t.Context(), exchange.PersonLink{Agent: "echo", Digest: "shown", LinkedAt: time.Now(), Sides: [2]exchange.LinkSide{side("a"), side("b")}})
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := rows.PutListEntries(t.Context(), exchange.ListEntry{
			ID: fmt.Sprint("019a0000-0000-7000-8000-00000000000", i), List: exchange.ListStop, Kind: exchange.TargetPrincipal, Target: fmt.Sprint("x stop", i), Agent: "echo", CreatedAt: time.Now(),
		}); err != nil {
			t.Fatal(err)
		}
	}

	whole, err := people.Page(t.Context(), "", 50)
	if err != nil || len(whole.Items) != 9 || whole.Next != "" { // both sides of three links, and three others
		t.Fatalf("%d people, next %q, %v", len(whole.Items), whole.Next, err)
	}
	for size := 1; size <= 7; size++ {
		var read []Person
		for before := ""; ; {
			page, err := people.Page(t.Context(), before, size)
			if err != nil || len(page.Items) == 0 || len(page.Items) > 2*size {
				t.Fatalf("pages of %d: %d people after %q, %v", size, len(page.Items), before, err)
			}
			if read, before = append(read, page.Items...), page.Next; before == "" {
				break
			}
		}
		if !reflect.DeepEqual(read, whole.Items) {
			t.Errorf("pages of %d have %d people", size, len(read))
		}
	}
}
