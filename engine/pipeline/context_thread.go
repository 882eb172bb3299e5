package pipeline

import (
	"context"
	"slices"
	"time"

	"inbox/exchange"
	"inbox/normalized"
)

// Exchange is one earlier question of a thread with its answer.
type Exchange struct {
	Turn      exchange.TurnRecord // Message without history; Response nil when there was none
	ReplyID   string
	At        time.Time // of the answer
	Withdrawn bool      // the sender took the question back: only the answer is left of it
}

// Answered reports whether there is an answer that somebody could see.
func (e Exchange) Answered() bool {
	return e.Turn.Response != nil && !e.Turn.Response.Silent && len(e.Turn.Response.Parts) > 0
}

// Turns says how many turns of a history the exchange makes.
func (e Exchange) Turns() (count int) {
	if !e.Withdrawn {
		count++
	}
	if e.Answered() {
		count++
	}
	return count
}

// parts are those that a history may show.
func (e Exchange) parts() (list []normalized.Part) {
	if !e.Withdrawn {
		list = slices.Clone(e.Turn.Message.Parts)
	}
	if e.Answered() {
		list = append(list, e.Turn.Response.Parts...)
	}
	return list
}

// ThreadQuery selects both ends of a thread. Held messages, and taken back ones without answer, are no part of it.
type ThreadQuery struct {
	Agent, ThreadID string
	Principals      []string            // with what these senders said to the agent elsewhere in Shared turns; the first 16 are looked up
	Before          string              // only what was accepted before the turn with this id
	Since           time.Time           // only what was accepted since then; zero = all
	Head, Tail      int                 // turns that are wanted of the begin and of the end
	Enough          func(Exchange) bool // asked for each exchange from the newest back; true = older ones are not wanted for Tail; optional
}

// ThreadExcerpt is what a ThreadQuery found: at least the turns asked for, none twice, both ends oldest first.
type ThreadExcerpt struct {
	Head, Tail []Exchange
	Total      int // turns, those between the ends included
}

// ThreadReader is what the pipeline reads to make a history.
type ThreadReader interface {
	// ThreadExcerpt reads as little as the query asks for, however long the thread is.
	ThreadExcerpt(ctx context.Context, query ThreadQuery) (ThreadExcerpt, error)
	// PersonOf returns all identities of the principal's person; none when it is not linked to another.
	PersonOf(ctx context.Context, principal string) ([]exchange.PersonIdentity, error)
}
