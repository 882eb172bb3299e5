package twopersons

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"inbox/exchange"
	"inbox/internal/await"
	"inbox/policypart"
)

// scribe is the test of one run: *rapid.T, or *testing.T of a fixed sequence.
type scribe interface {
	await.TB
	Logf(format string, arguments ...any)
}

// run is one sequence of moves of two people.
type run struct {
	*world
	people
	t     scribe
	relay string   // token of the messenger that calls by A2A
	given []string // ids that people gave to what they wrote
	count int
}

// newRun begins a run with people of its own. Neighbours share a server of the fediverse and a mail domain. end must be called.
func (w *world) newRun(t scribe, neighbours bool) *run {
	both := w.newPeople(neighbours)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now, w.wire, w.talks, w.asked = both, nil, nil, nil
	w.boss.mails, w.boss.links = nil, nil
	return &run{world: w, people: both, t: t, relay: w.Token("messenger")}
}

// end leaves nothing open that the next run could trip over.
func (r *run) end() {
	for _, one := range r.approvals(exchange.ApprovalFilter{Limit: 100}) {
		r.ledger.decide(one.TurnID)
		if _, err := r.Operator().Approvals.Deny(r.Context(), one.ID, "test", ""); err != nil {
			r.t.Fatalf("%v", err)
		}
	}
	r.quiet()
	r.ledger.found()
}

func (r *run) logf(format string, arguments ...any) { r.t.Logf(format, arguments...) }

func (r *run) quiet() { r.world.quiet(r.t) }

// took notes what a server said to a message.
func (r *run) took(refused error) {
	if refused != nil {
		r.logf("    refused: %v", refused)
	}
}

// sent notes ids that a person gave.
func (r *run) sent(ids ...string) {
	r.given = noted(r.given, ids)
}

// fresh makes an id that nobody has used. It looks like a Message-ID, which programs may use as well.
func (r *run) fresh(by *person) string {
	r.count++
	return fmt.Sprintf("m%d.%d@%s.test", r.runs, r.count, by.name)
}

// known are the ids that anybody on the way could have seen, by where they were.
func (r *run) known() (pools [][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pool := range [][]string{r.given, r.talks, r.wire} {
		if len(pool) > 0 {
			pools = append(pools, slices.Clone(pool))
		}
	}
	return pools
}

// judge waits until everything is said and fails the run where a rule was broken.
func (r *run) judge() {
	r.t.Helper()
	r.quiet()
	for _, one := range r.approvals(exchange.ApprovalFilter{All: true, Limit: 100}) {
		if one.Status != policypart.StatusResolved && one.Status != policypart.StatusDenied {
			continue
		}
		r.ledger.mu.Lock()
		if !r.ledger.decided[one.TurnID] {
			r.ledger.decided[one.TurnID] = true
			r.ledger.addf("the approval %s of %s is %s by %s, who was led to it", one.Code, one.Agent, one.Status, one.DecidedBy)
		}
		r.ledger.mu.Unlock()
	}
	if faults := r.ledger.found(); faults != "" && regexp.MustCompile(*onlyFaults).MatchString(faults) {
		r.t.Fatalf("%s", faults)
	}
}

func (r *run) approvals(filter exchange.ApprovalFilter) []exchange.Approval {
	list, err := r.Operator().Approvals.Approvals(context.WithoutCancel(r.Context()), filter)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	return list
}

// turnOf returns the run that an agent was given for a note.
func (r *run) turnOf(m note) (turn, bool) {
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	one, ran := r.ledger.answered[m.word]
	return one, ran
}
