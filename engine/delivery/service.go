// Package delivery brings replies to their destinations: one durable record per destination, order inside a thread,
// a breaker and a concurrency bound per destination key, a schedule of retries, dead letters with a reason. It does
// not render and knows no protocol: the adapter behind a Channel does both.
package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/clip"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/semaphore"
	"inbox/internal/telemetry"
)

var attempts = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_delivery_attempts_total",
	Help: "Delivery attempts by channel and outcome (delivered, retry, dead, paused, withdrawn, bounced).",
}, []string{"channel", "outcome"})

// Options configure a Service. Store and Channels are required.
type Options struct {
	Store    Store
	Channels *exchange.Channels
	PerKey   int // deliveries at once to one destination key of a channel without limits of its own; default 8
	Active   int // attempts that work at once on this node; 0 = as many as the queue starts
	// Refused returns the reason why a delivery must not be made any more, empty when it may: the operator blocked its
	// destination or the asker. It is asked before every attempt. Optional.
	Refused func(record Record, reply exchange.Reply) string
	// Listens reports whether an agent wants to hear what became of its answers. Optional: without it none does.
	Listens func(agent string) bool
	Logger  *slog.Logger
	Tracer  *telemetry.Tracer // nil = nothing is traced
}

// DefaultSchedule is used for a channel without one of its own: about three days.
var DefaultSchedule = []time.Duration{
	30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 24 * time.Hour,
}

// unfinished are the states before the end of a delivery.
var unfinished = []string{StatePending, StateRetry, StateSending}

// taken are the states in which a success is written down: what the peer took is delivered, even when the delivery was
// cancelled while it was on the wire.
var taken = []string{StatePending, StateRetry, StateSending, StateCancelled}

// markAfter is how long an attempt may take before its row says sending.
const markAfter = 100 * time.Millisecond

// settleTime bounds the transaction that ends an attempt.
const settleTime = 5 * time.Second

// Service runs deliveries. Its Run method is the queue handler of JobKind.
type Service struct {
	options    Options
	breakers   *breakers // of destinations
	recipients *breakers // of one recipient of a destination, apart: many recipients push out no destination
	conditions *conditions
	rate       *rateLimiter
	active     activeSemaphore
	perKey     semaphore.Keyed
	fresh      *fresh
}

// New makes a Service.
func New(options Options) *Service {
	if options.Channels == nil {
		options.Channels = exchange.NewChannels()
	}
	if options.PerKey == 0 {
		options.PerKey = 8
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}

	open := newBreakers()
	s := &Service{
		options: options, breakers: open, recipients: newBreakers(), conditions: newConditions(options.Store, open.success), rate: newRateLimiter(),
		fresh: newFresh(),
	}

	if options.Active > 0 {
		s.active = make(activeSemaphore, options.Active)
	}

	return s
}

func (s *Service) limits(channel string) exchange.DeliveryLimits {
	module, _ := s.options.Channels.Module(channel)
	limits := module.Limits
	if limits.Concurrency == 0 {
		limits.Concurrency = s.options.PerKey
	}
	return limits
}

// MostPerKey is how many deliveries to one destination may run at once, on the channel that allows most: a job beyond it
// would only wait.
func (s *Service) MostPerKey() int {
	most := s.options.PerKey
	for _, channel := range s.options.Channels.Names() {
		most = max(most, s.limits(channel).Concurrency)
	}
	return most
}

// outcomes are those of attempts, for the metric.
var outcomes = []string{"delivered", "retry", "dead", "paused", "withdrawn", "bounced"}

// CountFromZero shows the attempts of all channels before there are any, so that an alert sees the first one. It is called once
// all channels are there.
func (s *Service) CountFromZero() {
	for _, channel := range s.options.Channels.Names() {
		for _, outcome := range outcomes {
			attempts.WithLabelValues(channel, outcome)
		}
	}
}

// Partition is the queue partition of deliveries: order is kept per destination inside one thread.
func Partition(key, agent, threadID string) string {
	return JobKind + " " + key + " " + agent + " " + threadID
}

// Run makes one attempt of the delivery named by the job.
func (s *Service) Run(ctx context.Context, job queue.Job) error {
	for remembered := true; ; remembered = false {
		p, err := s.load(ctx, job, remembered)
		if fault.Is(err, fault.NotFound) {
			return queue.GiveUp("the delivery row is gone", err)
		}
		if err != nil {
			return queue.RetryAfter(time.Second, err)
		}

		if err := s.run(ctx, job, p); !errors.Is(err, errChanged) {
			return err
		}
	}
}

// pending is a delivery before its attempt.
type pending struct {
	record   Record
	reply    exchange.Reply
	repeated bool // an earlier attempt may have reached the peer
}

// errChanged means that a delivery is not as it was loaded: it was cancelled, or its reply was edited or withdrawn.
var errChanged = errors.New("the delivery changed before its attempt")

func (s *Service) run(ctx context.Context, job queue.Job, p pending) error {
	switch p.record.State {
	case StateDelivered, StateDead, StateCancelled:
		return nil
	}
	if over := obsolete(p.record, p.reply); over != "" {
		return s.drop(ctx, job, p.record, p.reply, over)
	}

	channel := s.options.Channels.Channel(p.record.Channel)
	if channel == nil {
		return s.finish(ctx, job, p.record, p.reply, exchange.DeliveryReceipt{}, fault.GiveUp("no adapter for "+p.record.Channel+" is configured", nil))
	}
	return s.guarded(ctx, job, p, channel)
}

// obsolete returns why a delivery is not needed any more; empty = it is needed.
func obsolete(record Record, reply exchange.Reply) string {
	switch {
	case record.Action != exchange.ActionDelete && !reply.DeletedAt.IsZero():
		return takenBack
	case record.Action == exchange.ActionUpdate && record.Revision < reply.Revision:
		return "a newer edit follows"
	}
	return ""
}

func (s *Service) drop(ctx context.Context, job queue.Job, record Record, reply exchange.Reply, reason string) error {
	return s.settle(ctx, job, record, reply, Move{
		ID: record.ID, From: unfinished, To: StateCancelled, Reason: reason, Attempt: record.Attempt,
		Event: event(exchange.EventDeliveryCanceled, eventBody{Destination: record.Address, Reason: reason}),
	}, queue.Outcome{Kind: queue.Done}, nil)
}

// guarded holds an attempt back while the destination is paused or busy, and gives up where the destination is dead. What was loaded
// may be hours old after the wait behind an earlier delivery of its thread, so the row is asked once more when nothing is left to wait for.
// An operator who cancels the delivery from then on finds its job running, and is told that the attempt is under way.
func (s *Service) guarded(ctx context.Context, job queue.Job, p pending, channel exchange.Channel) error {
	if reason := s.refused(p.record, p.reply); reason != "" {
		attempts.WithLabelValues(p.record.Channel, "withdrawn").Inc()
		return s.drop(ctx, job, p.record, p.reply, reason)
	}

	p.record.recipient = recipientOf(p.record, p.reply)
	leave, dead, err := s.enter(ctx, p.record)
	switch {
	case dead != nil:
		return s.finish(ctx, job, p.record, p.reply, exchange.DeliveryReceipt{}, dead)
	case err != nil:
		return err
	}

	defer leave()
	switch standing, err := s.options.Store.Standing(ctx, p.record.ID); {
	case fault.Is(err, fault.NotFound):
		return errChanged
	case err != nil:
		return queue.RetryAfter(time.Second, err)
	case standing != p.standing():
		return errChanged
	}
	return s.attempt(ctx, job, p, channel)
}

func (p pending) standing() Standing {
	return Standing{State: p.record.State, Revision: p.reply.Revision, Deleted: !p.reply.DeletedAt.IsZero()}
}

// attempt makes the attempt and settles it. One that takes long is marked as sending, for operators who look.
func (s *Service) attempt(ctx context.Context, job queue.Job, p pending, channel exchange.Channel) error {
	record, reply := p.record, p.reply
	record.Attempt = max(record.Attempt+1, job.Attempt)
	sending, span := ctx, (*telemetry.Span)(nil)
	if s.options.Tracer != nil && record.Trace != "" {
		sending, span = s.options.Tracer.Start(telemetry.WithTraceparent(ctx, record.Trace, true), "deliver", telemetry.KindProducer,
			telemetry.Attribute("inbox.turn", record.TurnID), telemetry.Attribute("inbox.delivery", record.ID), telemetry.Attribute("inbox.channel", record.Channel),
			telemetry.Attribute("server.address", clip.Bytes(record.Key, maxLogged)), telemetry.Attribute("inbox.attempt", record.Attempt))
	}
	slow := runLate(markAfter, func() { s.markSending(ctx, record) })
	receipt, err := channel.Deliver(sending, exchange.Delivery{
		ID: record.ID, Attempt: record.Attempt, Repeated: p.repeated, Done: record.Done, Reply: reply, NativeID: record.NativeID, Action: record.Action,
		Destination: exchange.Destination{Key: record.Key, Address: record.Address, Data: record.Data},
	})

	slow.stop()
	if span != nil {
		failed := ""
		if err != nil {
			failed = string(fault.Of(err).Kind)
		}
		span.End(failed)
	}
	if err != nil && len(receipt.Done) == 0 && ctx.Err() != nil {
		return ctx.Err()
	}

	// What a peer took is written down even if the server began to stop meanwhile: it would be sent to the peer again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	if err == nil {
		return s.delivered(ctx, job, record, reply, receipt)
	}
	return s.finish(ctx, job, record, reply, receipt, err)
}

// markSending writes what can be seen only while the attempt lasts. A failure costs the sight, not the delivery: the
// end of the attempt is a conditional update from every state before it.
func (s *Service) markSending(ctx context.Context, record Record) {
	err := s.options.Store.InTx(ctx, func(tx Tx) error {
		_, err := tx.MoveDelivery(ctx, Move{
			ID: record.ID, From: []string{StatePending, StateRetry}, To: StateSending,
			Reason: record.Reason, Attempt: record.Attempt, At: time.Now(),
		})
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.options.Logger.WarnContext(ctx, "delivery could not be marked as sending", "delivery", record.ID, "error", err)
	}
}

func (s *Service) refused(record Record, reply exchange.Reply) string {
	if s.options.Refused == nil {
		return ""
	}
	return s.options.Refused(record, reply)
}

func (s *Service) delivered(ctx context.Context, job queue.Job, record Record, reply exchange.Reply, receipt exchange.DeliveryReceipt) error {
	attempts.WithLabelValues(record.Channel, "delivered").Inc()
	return s.settle(ctx, job, record, reply, Move{
		ID: record.ID, From: taken, To: StateDelivered, Reason: receipt.Detail, Attempt: record.Attempt,
		Returned: receipt.Refused, Done: receipt.Done,
		Event: event(exchange.EventDeliverySent, eventBody{Destination: record.Address, Detail: receipt.Detail, Action: record.Action}),
	}, queue.Outcome{Kind: queue.Done}, s.recovered(ctx, record))
}

// recovered forgets the failures of a destination that took something. nil = there is nothing to forget in the store.
func (s *Service) recovered(ctx context.Context, record Record) func(Tx) error {
	s.recipients.success(recipientKey(record))
	return s.works(ctx, record.Channel, record.Key)
}

// works is recovered for the destination alone: it answered, if only to refuse a recipient for now.
func (s *Service) works(ctx context.Context, channel, key string) func(Tx) error {
	s.breakers.success(conditionKey(channel, key))
	if _, found := s.conditions.of(ctx, channel, key, time.Now()); !found {
		return nil
	}
	s.conditions.forget(channel, key)
	return func(tx Tx) error { return tx.ClearCondition(ctx, channel, key) }
}

// finish settles a failed attempt: another one by the schedule, or a dead letter.
func (s *Service) finish(
	ctx context.Context, job queue.Job, record Record, reply exchange.Reply, receipt exchange.DeliveryReceipt, cause error,
) error {
	reason := reasonOf(cause)
	f := fault.Of(cause)
	schedule := s.schedule(record.Channel)
	worse := s.failed(ctx, record, reason, cause)
	if f.Permanent || record.Attempt > len(schedule) {
		attempts.WithLabelValues(record.Channel, "dead").Inc()
		return s.settle(ctx, job, record, reply, Move{
			ID: record.ID, From: unfinished, To: StateDead, Reason: reason, Attempt: record.Attempt, Returned: receipt.Refused, Done: receipt.Done,
			Event: event(exchange.EventDeliveryDead, eventBody{Destination: record.Address, Reason: reason, Action: record.Action}),
		}, queue.Outcome{Kind: queue.Done}, func(tx Tx) error {
			if worse != nil {
				if err := worse(tx); err != nil {
					return err
				}
			}
			return s.tell(ctx, tx, record, reply, exchange.EventDeliveryDead, record.Address, reason)
		})
	}

	attempts.WithLabelValues(record.Channel, "retry").Inc()
	at := time.Now().Add(max(jitter(schedule[record.Attempt-1]), f.RetryAfter))
	return s.settle(ctx, job, record, reply, Move{
		ID: record.ID, From: unfinished, To: StateRetry, Reason: reason, Attempt: record.Attempt, NextAt: at, Returned: receipt.Refused, Done: receipt.Done,
		Event: event(exchange.EventDeliveryRetry, eventBody{Destination: record.Address, Reason: reason, At: at.UTC().Format(time.RFC3339)}),
	}, queue.Outcome{Kind: queue.Retry, At: at, Reason: reason}, worse)
}

// failed counts a failure of a destination. nil = there is nothing new for the store.
func (s *Service) failed(ctx context.Context, record Record, reason string, cause error) func(Tx) error {
	now, passes := time.Now(), !fault.Of(cause).Permanent
	switch reach := exchange.ReachOf(cause); {
	case reach == exchange.ReachOurs:
		return nil
	case reach == exchange.ReachRecipient:
		if passes && record.recipient != "" {
			s.recipients.failure(recipientKey(record), failedOnce{at: now, asked: s.asked(record, cause)}, longest(s.schedule(record.Channel)))
		}
		return s.works(ctx, record.Channel, record.Key)
	case !passes:
		return nil
	}

	failure, news := s.worsened(record, reason, cause, now)
	if !news {
		return nil
	}
	s.conditions.note(failure)
	return func(tx Tx) error { return tx.WorsenCondition(ctx, failure, deadAfter) }
}

// settle changes the record and ends the job in one transaction. A record that was cancelled during the attempt gets no
// other one: its job would hold up the next delivery of the thread.
func (s *Service) settle(
	ctx context.Context, job queue.Job, record Record, reply exchange.Reply, move Move, outcome queue.Outcome, also func(Tx) error,
) error {
	move.At = time.Now()
	moved := false
	err := s.options.Store.InTx(ctx, func(tx Tx) error {
		if also != nil {
			if err := also(tx); err != nil {
				return err
			}
		}

		var err error
		if moved, err = tx.MoveDelivery(ctx, move); err != nil {
			return err
		}

		end := outcome
		if !moved {
			end = queue.Outcome{Kind: queue.Done}
		}

		return tx.SettleJob(ctx, job.Lease, end)
	})
	if err != nil {
		return err
	}

	if moved {
		s.logAttempt(ctx, record, reply, move.To, move.Reason)
	}
	return queue.ErrSettled
}

func (s *Service) schedule(channel string) []time.Duration {
	if module, _ := s.options.Channels.Module(channel); module.Schedule != nil {
		return module.Schedule
	}
	return DefaultSchedule
}

// late runs something once after a while, unless it is stopped before.
type late struct {
	timer *time.Timer
	once  sync.Once
}

func runLate(after time.Duration, work func()) *late {
	l := &late{}
	l.timer = time.AfterFunc(after, func() { l.once.Do(work) })
	return l
}

// stop forbids a later run and waits for one under way.
func (l *late) stop() {
	l.timer.Stop()
	l.once.Do(func() {})
}

type eventBody struct {
	Destination string `json:"destination"`
	Detail      string `json:"detail,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Action      string `json:"action,omitempty"`
	At          string `json:"at,omitempty"`
}

func event(kind string, body eventBody) exchange.Event {
	encoded, err := json.Marshal(body)
	if err != nil { // strings only: cannot fail
		panic(err)
	}
	return exchange.Event{Kind: kind, Body: encoded}
}

func reasonOf(err error) string {
	const limit = 512
	text := err.Error()
	if len(text) > limit {
		text = text[:limit]
	}
	return text
}

// jitter spreads a wait by ±20 %, so that a host that comes back is not met by all deliveries at once.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return d*8/10 + rand.N(d*4/10+1)
}

func longest(schedule []time.Duration) time.Duration {
	var most time.Duration
	for _, d := range schedule {
		most = max(most, d)
	}
	return most
}

// maxFresh bounds the deliveries that are remembered between their row and their first attempt.
const maxFresh = 2048

// fresh remembers deliveries that this process is storing, so that the first attempt needs no query. What is missing
// here is read.
type fresh struct {
	mu   sync.Mutex
	kept map[string]kept
}

type kept struct {
	record Record
	reply  exchange.Reply
}

func newFresh() *fresh { return &fresh{kept: map[string]kept{}} }

// Expect is told of deliveries whose rows are about to be committed.
func (s *Service) Expect(records []Record, reply exchange.Reply) {
	s.fresh.mu.Lock()
	defer s.fresh.mu.Unlock()
	if len(s.fresh.kept)+len(records) > maxFresh {
		clear(s.fresh.kept) // rows that never were committed would stay for ever
	}
	for _, record := range records {
		s.fresh.kept[record.ID] = kept{record, reply}
	}
}

// take returns a remembered delivery, once.
func (f *fresh) take(id string) (kept, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry, ok := f.kept[id]
	delete(f.kept, id)
	return entry, ok
}

// load returns the delivery of a job: as this process stored it, when that is remembered and the caller may use it, else from its row. No
// attempt was made of what is remembered. Of what is read one may have been, whatever its count says.
func (s *Service) load(ctx context.Context, job queue.Job, remembered bool) (pending, error) {
	if entry, ok := s.fresh.take(job.Payload); ok && remembered {
		return pending{record: entry.record, reply: entry.reply}, nil
	}
	record, reply, err := s.options.Store.Delivery(ctx, job.Payload)
	return pending{record: record, reply: reply, repeated: true}, err
}
