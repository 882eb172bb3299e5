package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"inbox/exchange"
)

// Transition is one way in which the state of a turn changes. Each is a conditional update: it happens only from one of the states
// of From, so that of two nodes that want different ones the first wins and the other one finds out.
type Transition struct {
	Name     string
	From, To []string
	When     string // what brings it about
}

// The transitions of a turn. Code changes a turn's state by these and in no other way; docs/architecture.md prints them.
var (
	beginRun = Transition{"begin", states(exchange.StateAccepted, exchange.StateRunning), states(exchange.StateRunning),
		"a worker starts a run, the first one or another one after a crash"}
	endRun = Transition{"end", states(exchange.StateAccepted, exchange.StateRunning),
		states(exchange.StateAnswered, exchange.StateFailed, exchange.StateSilent),
		"the agent answered, could not, or wants to say nothing; a quick run is never seen running"}
	parkTurn = Transition{"park", states(exchange.StateAccepted, exchange.StateRunning), states(exchange.StateWaiting),
		"the agent demands consent, a login or a payment, needs an approval or a tool, or asks other agents"}
	// TakenOver lets a turn wait for an operator who has its conversation.
	TakenOver = Transition{"take over", states(exchange.StateAccepted, exchange.StateRunning), states(exchange.StateWaiting),
		"an operator has taken the conversation over; what a run under way brings is kept as a draft"}
	// Written lets a turn be accepted with the answer of an operator.
	Written = Transition{"write", states(exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting, exchange.StateHeld,
		exchange.StateFailed, exchange.StateSilent, exchange.StateAnswered), states(exchange.StateAccepted),
		"an operator writes its answer, or a further one; the run that follows sends it and asks no agent"}
	leaveStale = Transition{"leave", states(exchange.StateAccepted, exchange.StateRunning), states(exchange.StateHeld, exchange.StateRefused),
		"the message is too old to be answered without asking the operator"}
	// Resumed lets a turn run again that waited.
	Resumed = Transition{"resume", states(exchange.StateWaiting), states(exchange.StateAccepted),
		"what the turn waits for is there"}
	settleTurn = Transition{"settle", states(exchange.StateWaiting), states(exchange.StateAnswered, exchange.StateRefused),
		"what was demanded was denied or ran out, or needs no run: its asker is told once"}
	continueTurn = Transition{"continue", states(exchange.StateWaiting), states(exchange.StateCancelled),
		"a later message of its sender takes its place"}
	releaseHeld = Transition{"release", states(exchange.StateHeld), states(exchange.StateAccepted),
		"the operator lets the message in"}
	dropHeld = Transition{"drop", states(exchange.StateHeld), states(exchange.StateRefused),
		"the operator refuses the message, or blocks its sender"}
	restoreHeld = Transition{"restore", states(exchange.StateRefused), states(exchange.StateHeld),
		"the operator puts back on hold what the operator or a block had dropped from there"}
	// HeldExpired ends a message that was held for too long.
	HeldExpired = Transition{"expire", states(exchange.StateHeld), states(exchange.StateRefused),
		"the operator did not decide about the message in time"}
	cancelTurn = Transition{"cancel", states(exchange.StateAccepted, exchange.StateRunning, exchange.StateWaiting, exchange.StateHeld),
		states(exchange.StateCancelled), "its sender took the message back or was blocked, or the operator stops the turn"}
	// Retried lets a failed turn run again.
	Retried = Transition{"retry", states(exchange.StateFailed), states(exchange.StateAccepted),
		"the operator runs a failed turn again"}
)

// transitions are all of them, in the order in which a reader meets them.
var transitions = []Transition{
	beginRun, endRun, parkTurn, Resumed, settleTurn, continueTurn, leaveStale, releaseHeld, dropHeld, restoreHeld, HeldExpired, cancelTurn, Retried,
	TakenOver, Written,
}

// firstStates are those in which a turn is stored.
var firstStates = []string{exchange.StateAccepted, exchange.StateHeld, exchange.StateSilent, exchange.StateAnswered, exchange.StateRefused}

func states(names ...string) []string { return names }

// Move returns the conditional update of a turn to a state of the transition. It panics for another state: the table and the code
// would say different things.
func (t Transition) Move(turnID, to, reason string, at time.Time) Move {
	if !slices.Contains(t.To, to) {
		panic(fmt.Sprintf("pipeline: the transition %s does not lead to %q", t.Name, to))
	}
	return Move{ID: turnID, From: t.From, To: to, Reason: reason, At: at}
}

// StateTable returns the transitions as a table of Markdown.
func StateTable() string {
	var table strings.Builder
	table.WriteString("| transition | from | to | when |\n|---|---|---|---|\n")
	fmt.Fprintf(&table, "| store | – | %s | the message is accepted, or a conversation that an agent begins |\n", strings.Join(firstStates, ", "))
	for _, one := range transitions {
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", one.Name, strings.Join(one.From, ", "), strings.Join(one.To, ", "), one.When)
	}
	return table.String()
}
