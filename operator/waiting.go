package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/operator/lookup"
)

// Waiting is the work that goes on only when the operator does something, or when what is down is back.
type Waiting struct {
	store     *store.Store
	approvals Approvals
}

// Overview counts the work that waits, each kind no further than 10,000, and lists the open breakers.
type Overview struct {
	Failed     int64     `json:"failed_turns"`
	Deliveries int64     `json:"dead_deliveries"`
	Jobs       int64     `json:"dead_jobs"`
	Held       int64     `json:"held"`
	Approvals  int64     `json:"approvals"`     // no further than 500
	TakenOver  int64     `json:"taken_over"`    // messages that wait for the operators who have their conversations, of the newest 500 of these
	Tools      int64     `json:"tool_requests"` // that programs outside execute
	Demands    int64     `json:"demands"`       // for which their askers are waited for
	Breakers   []Breaker `json:"breakers"`
}

// Overview looks at everything at once.
func (w Waiting) Overview(ctx context.Context) (found Overview, err error) {
	for _, one := range []struct {
		into  *int64
		count func() (int64, error)
	}{
		{&found.Failed, func() (int64, error) { return w.turns(ctx, exchange.StateFailed) }},
		{&found.Held, func() (int64, error) { return w.turns(ctx, exchange.StateHeld) }},
		{&found.Deliveries, func() (int64, error) { return w.store.CountDeliveries(ctx, delivery.StateDead) }},
		{&found.Tools, func() (int64, error) { return w.store.CountToolRequests(ctx) }},
		{&found.Demands, func() (int64, error) { return w.store.CountDemands(ctx, now()) }},
		{&found.Jobs, func() (int64, error) { return w.store.CountDeadJobs(ctx) }},
		{&found.TakenOver, func() (waiting int64, err error) {
			open, err := w.store.Takeovers(ctx, exchange.TakeoverFilter{Limit: 500})
			for _, one := range open {
				waiting += int64(one.Waiting)
			}
			return waiting, err
		}},
		{&found.Approvals, func() (int64, error) {
			open, err := w.approvals.Approvals(ctx, exchange.ApprovalFilter{Limit: 500})
			return int64(len(open)), err
		}},
	} {
		if *one.into, err = one.count(); err != nil {
			return found, err
		}
	}

	found.Breakers, err = Breakers{store: w.store}.List(ctx)
	return found, err
}

func (w Waiting) turns(ctx context.Context, state string) (int64, error) {
	return w.store.CountTurns(ctx, exchange.TurnFilter{States: []string{state}})
}

// Messages lists the messages that are held or on which an agent failed, newest change first; limit is 1 to 500.
func (w Waiting) Messages(ctx context.Context, limit int) ([]exchange.TurnRecord, error) {
	turns, err := w.store.Turns(ctx, exchange.TurnFilter{States: []string{exchange.StateHeld, exchange.StateFailed}, Limit: limit})
	return listed(turns), err
}

// Failed lists the messages on which an agent failed, newest failure first. Before is "" or the cursor of exchange.TurnFilter; limit is
// 1 to 500.
func (w Waiting) Failed(ctx context.Context, filter exchange.RetryFilter, before string, limit int) ([]exchange.TurnRecord, error) {
	chosen := exchange.TurnFilter{
		Agent: filter.Agent, States: []string{exchange.StateFailed}, UpdatedAfter: filter.Since, Before: before, Limit: limit,
	}
	if filter.Channel == "" {
		turns, err := w.store.Turns(ctx, chosen)
		return listed(turns), err
	}

	found := []exchange.TurnRecord{}
	for len(found) < limit {
		turns, err := w.store.Turns(ctx, chosen)
		if err != nil {
			return nil, err
		}
		for _, turn := range turns {
			if turn.Channel == filter.Channel && len(found) < limit {
				found = append(found, turn)
			}
		}
		if len(turns) < limit {
			break
		}
		chosen.Before = exchange.TurnCursor(turns[len(turns)-1])
	}
	return found, nil
}

// Jobs are the dead letters of the queue: work of the server that was given up. A delivery that was given up has none; it is a dead
// delivery.
type Jobs struct{ store *store.Store }

// DeadJob is one of them, with the message that it is about.
type DeadJob struct {
	store.JobRecord
	TurnID  string `json:"turn_id,omitempty"` // empty where it is about none
	Agent   string `json:"agent,omitempty"`
	Channel string `json:"channel,omitempty"`
}

// List lists dead jobs, newest first. The cursor is the id of the last one.
func (j Jobs) List(ctx context.Context, filter exchange.RetryFilter, before string, limit int) ([]DeadJob, error) {
	found := []DeadJob{}
	for chosen := (store.JobFilter{State: "dead", Since: filter.Since, Before: before, Limit: limit}); ; {
		page, err := j.store.Jobs(ctx, chosen)
		if err != nil {
			return nil, err
		}
		for _, record := range page {
			job, err := j.about(ctx, record)
			if err != nil {
				return nil, err
			}
			if selects(filter, job) && len(found) < limit {
				found = append(found, job)
			}
		}
		if len(page) < limit || len(found) >= limit {
			return found, nil
		}
		chosen.Before = page[len(page)-1].ID
	}
}

func selects(filter exchange.RetryFilter, job DeadJob) bool {
	return (filter.Agent == "" || strings.EqualFold(filter.Agent, job.Agent)) && (filter.Channel == "" || filter.Channel == job.Channel)
}

// about finds out what a job belongs to: a message by the ids in its payload, else an agent.
func (j Jobs) about(ctx context.Context, record store.JobRecord) (job DeadJob, err error) {
	job.JobRecord = record
	turns, err := lookup.TurnsIn(ctx, j.store, record.Payload)
	if err != nil {
		return job, err
	}
	if len(turns) > 0 {
		turn, err := j.store.Turn(ctx, turns[0])
		if err == nil {
			job.TurnID, job.Agent, job.Channel = turn.ID, turn.Agent, turn.Channel
		}
		if !fault.Is(err, fault.NotFound) {
			return job, err
		}
	}

	var payload struct {
		Agent string `json:"agent"`
	}
	_ = json.Unmarshal([]byte(record.Payload), &payload) // many payloads are no JSON
	job.Agent, _ = exchange.ReadTurnGroup(cmp.Or(record.Group, payload.Agent))
	return job, nil
}

// Retry lets a dead job run again at once, with its attempts counted anew; fault.NotFound without such a job, fault.Conflict when it is
// not dead. A blocked job is promoted if no earlier job of its partition precedes it; otherwise the conflict names that job.
func (j Jobs) Retry(ctx context.Context, id string) error {
	revived, err := j.store.ReviveJob(ctx, id, 0)
	if err != nil || revived {
		return err
	}
	job, found, err := j.store.Job(ctx, id)
	if err == nil && found && job.State == "blocked" {
		return j.store.RetryJob(ctx, id)
	}
	return j.refusal(ctx, id)
}

func (j Jobs) refusal(ctx context.Context, id string) error {
	job, found, err := j.store.Job(ctx, id)
	switch {
	case err != nil:
		return err
	case !found:
		return fault.Newf(fault.NotFound, "there is no job %s; see: inbox jobs list", id)
	}
	return fault.Newf(fault.Conflict, "job %s is not dead, it is %s", id, job.State)
}

// Remove forgets a dead job. That of a message or a delivery stays, because its message would wait for ever: fault.Conflict.
func (j Jobs) Remove(ctx context.Context, id string) error {
	job, found, err := j.store.Job(ctx, id)
	if err != nil {
		return err
	}
	if !found || job.State != "dead" {
		return j.refusal(ctx, id)
	}
	if slices.Contains([]string{pipeline.JobKind, pipeline.DispatchKind, delivery.JobKind, delivery.BulkKind}, job.Kind) {
		return fault.Newf(fault.Conflict, "job %s is the work on a message, which would wait forever; let it run again: inbox jobs retry %s", id, id)
	}
	return j.store.CancelJob(ctx, id)
}

// RetryDead lets the dead jobs run again that the filter selects, the oldest first, a few a second, and returns what becomes of each.
// With dryRun it changes nothing. A second call finds nothing to do, or what a first one that was cut off left.
func (j Jobs) RetryDead(ctx context.Context, filter exchange.RetryFilter, dryRun bool) (exchange.RetriedWork, error) {
	result := exchange.RetriedWork{Work: []exchange.Retried{}}
	var jobs []DeadJob
	for before := ""; ; {
		page, err := j.List(ctx, filter, before, retryPage)
		if err != nil {
			return result, err
		}
		jobs = append(jobs, page...)
		if most := filter.AtMost(delivery.MaxRetries); len(jobs) > most {
			jobs, result.More = jobs[:most], true
			break
		}
		if len(page) < retryPage {
			break
		}
		before = page[len(page)-1].ID
	}

	slices.Reverse(jobs) // the oldest first
	for _, job := range jobs {
		one := exchange.Retried{
			ID: job.ID, TurnID: job.TurnID, Agent: job.Agent, Channel: job.Channel, What: job.Kind, FailedAt: job.UpdatedAt, Failure: job.Reason,
		}
		if !dryRun {
			revived, err := j.store.ReviveJob(ctx, job.ID, time.Duration(result.Retried)*time.Second/exchange.RetryRate)
			if err != nil {
				return result, err
			}
			if !revived { // meanwhile
				continue
			}
		}
		result.Retried++
		result.Work = append(result.Work, one)
	}
	return result, nil
}

const retryPage = 100

// Breakers pause what fails again and again: the back ends of agents, and destinations of deliveries.
type Breakers struct {
	store    *store.Store
	delivery *delivery.Service
}

// Kinds of a Breaker.
const (
	BreakerAgent       = "agent"
	BreakerDestination = "destination"
)

// States of a Breaker.
const (
	BreakerOpen    = "open"     // a probe follows
	BreakerGivenUp = "given up" // nothing is sent there before something comes from there
)

// Breaker is an open one.
type Breaker struct {
	Kind    string    `json:"kind"`
	Target  string    `json:"target"`            // name of the agent, or host or domain of the destination
	Channel string    `json:"channel,omitempty"` // of a destination
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"` // of an agent's: the first failure; of a destination: when it was given up
	Until   time.Time `json:"until,omitzero"` // when the next probe may go
	Opened  int       `json:"opened"`         // how often in a row
	Reason  string    `json:"reason"`
}

const maxBreakers = 10_000

// List lists the open breakers: those of agents by name, then those of destinations, the last changed first.
func (b Breakers) List(ctx context.Context) ([]Breaker, error) {
	open := []Breaker{}
	ends, err := b.store.BackEnds(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range ends {
		if one.ClosedAt.IsZero() {
			open = append(open, Breaker{
				Kind: BreakerAgent, Target: one.Agent, State: BreakerOpen, Since: one.Since, Until: one.ProbeAt, Opened: one.Opened, Reason: one.Reason,
			})
		}
	}

	conditions, err := b.store.Conditions(ctx, maxBreakers)
	if err != nil {
		return nil, err
	}
	for _, one := range conditions {
		found := Breaker{Kind: BreakerDestination, Target: one.Key, Channel: one.Channel, State: BreakerOpen, Until: one.PausedUntil, Opened: one.Opened, Reason: one.Reason}
		switch {
		case !one.DeadAt.IsZero():
			found.State, found.Since, found.Until = BreakerGivenUp, one.DeadAt, time.Time{}
		case !one.PausedUntil.After(time.Now()):
			continue
		}
		open = append(open, found)
	}
	return open, nil
}

// Close closes the breakers of an agent's back end or of a destination: what waits goes on at once, and a failure opens them again.
// Running servers notice within seconds. By is who wants it, for the record. fault.NotFound when none is open.
func (b Breakers) Close(ctx context.Context, target, by string) (closed []Breaker, err error) {
	open, err := b.List(ctx)
	if err != nil {
		return nil, err
	}

	closed = []Breaker{}
	for _, one := range open {
		if !strings.EqualFold(one.Target, strings.TrimSpace(target)) {
			continue
		}
		if one.Kind == BreakerAgent {
			err = b.closeBackEnd(ctx, one.Target, by)
		} else {
			err = b.delivery.Close(ctx, one.Channel, one.Target)
		}
		if err != nil && !fault.Is(err, fault.NotFound) { // it closed meanwhile
			return closed, err
		}
		closed = append(closed, one)
	}
	if len(closed) == 0 {
		return nil, fault.Newf(fault.NotFound, "no breaker of %s is open; see: inbox breakers list", target)
	}
	return closed, nil
}

func (b Breakers) closeBackEnd(ctx context.Context, agent, by string) error {
	at := time.Now()
	return b.store.Pipeline().InTx(ctx, func(tx pipeline.Tx) error {
		closed, err := tx.CloseBackEnd(ctx, agent, at)
		if err != nil || !closed {
			return err
		}
		if err := tx.HastenBacklog(ctx, agent, agents.DefaultRetryRate, pipeline.MaxHastened); err != nil {
			return err
		}
		return tx.Audit(ctx, exchange.AuditRecord{At: at, Code: "backend:closed", Agent: agent, Detail: "by " + by})
	})
}
