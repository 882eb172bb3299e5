package pipeline

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
)

var allStates = []string{
	exchange.StateAccepted, exchange.StateRunning, exchange.StateAnswered, exchange.StateRefused, exchange.StateFailed, exchange.StateWaiting,
	exchange.StateSilent, exchange.StateHeld, exchange.StateCancelled,
}

// TestStates: every state can be reached, what has not ended can end, and what has ended stays but for a retry.
func TestStates(t *testing.T) {
	reached, left := slices.Clone(firstStates), []string{}
	for _, one := range transitions {
		for _, state := range slices.Concat(one.From, one.To) {
			if !slices.Contains(allStates, state) {
				t.Errorf("%s: %q is no state", one.Name, state)
			}
		}
		reached = append(reached, one.To...)
		if one.Name != Written.Name && one.Name != restoreHeld.Name { // an operator may write a further answer to what has ended by itself, and take back that it was dropped
			left = append(left, one.From...)
		}
	}
	for _, state := range allStates {
		if !slices.Contains(reached, state) {
			t.Errorf("no transition leads to %s", state)
		}
		ended := exchange.Terminal(state) && state != exchange.StateFailed
		if slices.Contains(left, state) == ended {
			t.Errorf("%s: terminal is %t, and the table says otherwise", state, ended)
		}
	}

	defer func() {
		if recover() == nil {
			t.Error("a transition leads to a state that the table does not have")
		}
	}()
	releaseHeld.Move("t", exchange.StateAnswered, "", time.Now())
}

// TestStatesAreDocumented: the page shows the table that the code executes.
func TestStatesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), StateTable()) {
		t.Errorf("docs/architecture.md does not have this table:\n%s", StateTable())
	}
}

// TestStagesAreDocumented: the page shows the stages that the code goes through.
func TestStagesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), StageTable()) {
		t.Errorf("docs/architecture.md does not have this table:\n%s", StageTable())
	}
}
