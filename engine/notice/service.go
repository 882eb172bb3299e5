// Package notice tells the operator of trouble. Events are counted by the store in the transaction that causes them; what lasts, such as
// an open breaker, is a row with a beginning and an end. Every few seconds one round looks at both: what burns becomes a notice at once,
// the rest goes into one digest a day. A notice is a row with a way to each address, and leaves by a durable job of its own; several nodes
// make each once. What becomes of notices themselves is counted nowhere, so that no notice is about notices.
package notice

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/internal/clock"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// JobKind is the queue kind of a notice's way to one address; the payload is a wayJob.
const JobKind = "notice"

var (
	made = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_notices_total", Help: "Notices to the operator by phase (began, ended, digest, test).",
	}, []string{"phase"})
	ways = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_notice_attempts_total", Help: "Attempts to bring a notice on its way, by way (mail, fediverse, http: a webhook) and outcome (sent, retry, failed).",
	}, []string{"way", "outcome"})
)

// Bounds of what is told at once.
const (
	roundEvery = 5 * time.Second
	roundLimit = time.Minute
	// Period is how often one kind and subject is told at most: what begins again sooner waits, and is counted when it ends before.
	Period = time.Hour
	// MaxPerHour bounds the notices of all kinds that tell of a beginning. What is over it waits, or is counted when it ends before.
	MaxPerHour = 10
	// Burst is how many failures of one kind and subject in exchange.NoticeWindow are told at once.
	Burst = 20

	burstOld  = time.Hour        // a burst that ended so long ago is told by the digest alone
	seenEvery = time.Minute      // how often a condition that lasts is noted again
	unseen    = 15 * time.Minute // a condition of a node that no node has seen for so long is over
)

// bursting are the kinds of which many at once are told at once.
var bursting = []string{exchange.NoticeTurn, exchange.NoticeDelivery, exchange.NoticeJob}

// ofNodes are the kinds that a node sees of itself.
var ofNodes = []string{exchange.NoticeDisk, exchange.NoticeProbe, exchange.NoticeDatabase}

// grace is how long something has to last before it is told, and quiet how long it has to be over: what passes by itself, or comes and
// goes, is no news.
func grace(kind string, settings Settings) time.Duration {
	switch kind {
	case exchange.NoticeBackEnd:
		return settings.OutageAfter
	case exchange.NoticeCertificate:
		return 10 * time.Minute // the first one of a new server takes a while
	case exchange.NoticeDisk, exchange.NoticeProbe:
		return time.Minute
	}
	return 0
}

func quiet(kind string) time.Duration {
	if slices.Contains(bursting, kind) {
		return 0 // a burst ends when a whole window was quiet
	}
	return 5 * time.Minute
}

// Settings are those that hold now.
type Settings struct {
	Addresses    []Address
	Kinds        []string // of which is told; empty = all
	Hour, Minute int      // of the digest
	Zone         *time.Location
	Secret       string        // signs what webhooks get
	OutageAfter  time.Duration // how long a back end has to be down before it is told
}

// Tells reports whether the operator wants to hear of a kind.
func (s Settings) Tells(kind string) bool { return len(s.Kinds) == 0 || slices.Contains(s.Kinds, kind) }

// address returns the one with a label.
func (s Settings) address(label string) (Address, bool) {
	for _, one := range s.Addresses {
		if one.Label == label {
			return one, true
		}
	}
	return Address{}, false
}

// Observation is what a node sees of something that lasts.
type Observation struct {
	Kind, Subject string
	Bad           bool
	Reason        string // why it is bad
}

// Client sends the requests of webhooks.
type Client interface {
	Do(request *http.Request) (*http.Response, error)
}

// Options configure a Service. Store, Current, Begin and Client are required.
type Options struct {
	Store   Store
	Domain  string
	Current func() Settings
	// Observe returns what this node sees now of what lasts, the good with the bad. Optional.
	Observe func(ctx context.Context) []Observation
	// Begin sends a notice to a person as a conversation of one of our agents, and ends the job in the transaction that stores it, with
	// the way's new state: it returns queue.ErrSettled then. Other errors are classed with fault.RetryIn and fault.GiveUp.
	Begin func(ctx context.Context, job queue.Job, letter Letter) error
	// Client returns what asks a webhook of the operator's.
	Client func(url string) Client
	Logger *slog.Logger
	Now    func() time.Time // nil = time.Now
}

// Letter is a notice as a person gets it.
type Letter struct {
	Way           exchange.NoticeWay
	To            string // user@domain, or @user@domain
	Subject, Text string
}

// Service makes notices. Its Send method is the queue handler of JobKind.
type Service struct {
	options Options
	direct  direct
}

// New makes a Service.
func New(options Options) *Service {
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	for _, phase := range []string{exchange.NoticeBegan, exchange.NoticeEnded, exchange.NoticeDigest, exchange.NoticeTest} {
		made.WithLabelValues(phase) // from 0 on, so that an alert sees the first one
	}
	for _, way := range []string{wayMail, wayFediverse, wayWebhook} {
		for _, outcome := range []string{"sent", "retry", "failed"} {
			ways.WithLabelValues(way, outcome)
		}
	}
	return &Service{options: options}
}

// Run makes a round every few seconds until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	for {
		err := s.Round(ctx)
		if ctx.Err() == nil {
			s.tellDirectly(ctx, err)
		}
		if err != nil && ctx.Err() == nil {
			s.options.Logger.WarnContext(ctx, "what the operator is to be told cannot be looked at now", "error", err)
		}
		if err := clock.Sleep(ctx, roundEvery); err != nil {
			return nil //nolint:nilerr // the end of ctx is no failure
		}
	}
}

// Round looks once at what there is to tell. Done by several nodes at once, each notice is made once.
func (s *Service) Round(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundLimit)
	defer cancel()
	if err := s.observe(ctx); err != nil {
		return err
	}

	settings := s.options.Current()
	if len(settings.Addresses) == 0 {
		return nil // it is counted all the same, for the first digest after there is one
	}

	now := s.options.Now()
	tallies, err := s.options.Store.NoticeTallies(ctx)
	if err != nil {
		return err
	}
	conditions, err := s.options.Store.NoticeConditions(ctx)
	if err != nil {
		return err
	}
	changed, err := s.bursts(ctx, tallies, conditions, settings, now)
	if err != nil {
		return err
	}
	if changed {
		if conditions, err = s.options.Store.NoticeConditions(ctx); err != nil {
			return err
		}
	}

	for _, condition := range conditions {
		if err := s.follow(ctx, condition, tallies, settings, now); err != nil {
			return err
		}
	}

	return s.daily(ctx, conditions, settings, now)
}

// observe writes down what this node sees, where it is different from what is known.
func (s *Service) observe(ctx context.Context) error {
	if s.options.Observe == nil {
		return nil
	}
	seen := s.options.Observe(ctx)
	conditions, err := s.options.Store.NoticeConditions(ctx)
	if err != nil {
		return err
	}
	now := s.options.Now()
	known := map[string]exchange.NoticeCondition{}
	for _, one := range conditions {
		known[one.Kind+" "+one.Subject] = one
	}

	for _, one := range seen {
		before, is := known[one.Kind+" "+one.Subject]
		lasts := is && before.State == exchange.ConditionOpen
		delete(known, one.Kind+" "+one.Subject)
		switch {
		case one.Bad && (!lasts || now.Sub(before.SeenAt) >= seenEvery):
			condition := exchange.NoticeCondition{Kind: one.Kind, Subject: one.Subject, Reason: Excerpt(one.Reason, maxReason), Since: now, SeenAt: now}
			err = s.options.Store.InTx(ctx, func(tx Tx) error { return tx.BeginCondition(ctx, condition) })
		case !one.Bad && lasts:
			err = s.options.Store.InTx(ctx, func(tx Tx) error { return tx.EndCondition(ctx, one.Kind, one.Subject, now) })
		}
		if err != nil {
			return err
		}
	}

	// The node that saw it is gone, or its settings changed.
	for _, one := range known {
		if one.State != exchange.ConditionOpen || !slices.Contains(ofNodes, one.Kind) || now.Sub(one.SeenAt) < unseen {
			continue
		}
		if err := s.options.Store.InTx(ctx, func(tx Tx) error { return tx.EndCondition(ctx, one.Kind, one.Subject, now) }); err != nil {
			return err
		}
	}
	return nil
}

// bursts finds where many failures came in one window, and where no more do. It reports whether it wrote anything.
func (s *Service) bursts(ctx context.Context, tallies []exchange.NoticeTally, conditions []exchange.NoticeCondition, settings Settings, now time.Time) (changed bool, err error) {
	for _, tally := range tallies {
		if !slices.Contains(bursting, tally.Kind) || !settings.Tells(tally.Kind) {
			continue
		}
		var before exchange.NoticeCondition
		for _, one := range conditions {
			if one.Kind == tally.Kind && one.Subject == tally.Subject {
				before = one
			}
		}

		switch before.State {
		case exchange.ConditionOpen:
			if !calm(tally, before, now) {
				continue
			}
			err = s.options.Store.InTx(ctx, func(tx Tx) error { return tx.EndCondition(ctx, tally.Kind, tally.Subject, tally.LastAt) })
		case exchange.ConditionEnded:
			continue
		default:
			begun, burst := burstOf(tally, before)
			if !burst || now.Sub(tally.LastAt) > burstOld {
				continue
			}
			err = s.options.Store.InTx(ctx, func(tx Tx) error { return tx.BeginCondition(ctx, begun) })
		}
		if err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// burstOf returns the burst that a tally shows, unless it is the one before.
func burstOf(tally exchange.NoticeTally, before exchange.NoticeCondition) (exchange.NoticeCondition, bool) {
	begun := exchange.NoticeCondition{Kind: tally.Kind, Subject: tally.Subject, Since: tally.WindowFrom, SeenAt: tally.LastAt, Base: tally.Total - tally.WindowCount}
	if len(tally.Examples) > 0 {
		begun.Reason = tally.Examples[0].Note
	}
	if tally.WindowCount >= Burst {
		return begun, begun.Since.After(before.EndedAt)
	}

	// The window turned before a round could see it.
	begun.Since, begun.Base = tally.WindowFrom.Add(-exchange.NoticeWindow), begun.Base-tally.WindowBefore
	return begun, tally.WindowBefore >= Burst && begun.Since.After(before.EndedAt)
}

// calm reports whether a burst is over: a whole window had fewer events.
func calm(tally exchange.NoticeTally, burst exchange.NoticeCondition, now time.Time) bool {
	whole := now.Sub(tally.WindowFrom) >= exchange.NoticeWindow
	switch {
	case now.Sub(tally.LastAt) >= exchange.NoticeWindow:
		return true
	case tally.WindowFrom.Sub(burst.Since) < exchange.NoticeWindow, tally.WindowCount >= Burst:
		return false
	}
	return whole || tally.WindowBefore < Burst
}

// errNotNow ends a transaction whose notice another node made, or that is over the bound.
var errNotNow = errors.New("nothing is told now")

// follow tells of one condition what there is to tell.
func (s *Service) follow(ctx context.Context, c exchange.NoticeCondition, tallies []exchange.NoticeTally, settings Settings, now time.Time) error {
	next, count := c, int64(0)
	burst := slices.Contains(bursting, c.Kind)
	for _, tally := range tallies {
		if burst && tally.Kind == c.Kind && tally.Subject == c.Subject {
			count = tally.Total - c.Base
		}
	}

	var step func(tx Tx) error
	phase := ""
	over := c.State == exchange.ConditionEnded && now.Sub(c.EndedAt) >= quiet(c.Kind)
	switch {
	case c.State == exchange.ConditionOpen && c.ToldAt.IsZero():
		if !settings.Tells(c.Kind) || now.Sub(c.Since) < grace(c.Kind, settings) || now.Sub(c.LastTold) < Period {
			return nil
		}
		next.ToldAt, next.LastTold, phase = now, now, exchange.NoticeBegan
		notice, err := s.began(c, settings, count, now)
		if err != nil {
			return err
		}
		step = func(tx Tx) error {
			allowed, err := tx.AllowNotice(ctx, now, MaxPerHour)
			if err == nil && !allowed {
				err = errNotNow
			}
			if err != nil {
				return err
			}
			return s.tell(ctx, tx, notice, settings)
		}
	case over && !c.ToldAt.IsZero():
		next.State, phase = exchange.ConditionClosed, exchange.NoticeEnded
		notice, err := s.ended(c, settings, count, now)
		if err != nil {
			return err
		}
		step = func(tx Tx) error { return s.tell(ctx, tx, notice, settings) }
	case over: // it ended before it was told: the digest has it. The events of a burst are counted already.
		next.State = exchange.ConditionClosed
		step = func(tx Tx) error { //nolint:unparam // the others have errors
			if !burst {
				tx.CountNotice(c.Kind, c.Subject, exchange.NoticeExample{At: c.Since, Note: c.Reason})
			}
			return nil
		}
	default:
		return nil
	}

	err := s.options.Store.InTx(ctx, func(tx Tx) error {
		moved, err := tx.MoveCondition(ctx, c, next)
		if err == nil && !moved {
			err = errNotNow
		}
		if err != nil {
			return err
		}
		return step(tx)
	})
	switch {
	case errors.Is(err, errNotNow):
		return nil
	case err == nil && phase != "":
		made.WithLabelValues(phase).Inc()
	}
	return err
}

// daily makes the digest when its hour has come.
func (s *Service) daily(ctx context.Context, conditions []exchange.NoticeCondition, settings Settings, now time.Time) error {
	last, err := s.options.Store.LastDigest(ctx)
	if err != nil {
		return err
	}
	due := dueAt(settings, now)
	if !last.IsZero() && !last.Before(due) {
		return nil
	}

	var open []exchange.NoticeCondition
	for _, one := range conditions {
		if one.State == exchange.ConditionOpen && settings.Tells(one.Kind) {
			open = append(open, one)
		}
	}

	told := false
	err = s.options.Store.InTx(ctx, func(tx Tx) error {
		told = false
		begun, err := tx.BeginDigest(ctx, last, now)
		if err != nil || !begun || last.IsZero() { // a server's first digest comes at its hour
			return err
		}
		taken, err := tx.TakeTallies(ctx)
		if err != nil {
			return err
		}
		taken = slices.DeleteFunc(taken, func(t exchange.NoticeTally) bool { return !settings.Tells(t.Kind) })
		if len(taken) == 0 && len(open) == 0 {
			return nil
		}

		slices.SortFunc(taken, func(a, b exchange.NoticeTally) int {
			return slices.Compare([]string{a.Kind, a.Subject}, []string{b.Kind, b.Subject})
		})
		notice, err := s.digest(taken, open, settings, last, now)
		if err != nil {
			return err
		}
		told = true
		return s.tell(ctx, tx, notice, settings)
	})
	if err == nil && told {
		made.WithLabelValues(exchange.NoticeDigest).Inc()
	}
	return err
}

// dueAt is when the last digest was due.
func dueAt(settings Settings, now time.Time) time.Time {
	there := now.In(settings.Zone)
	due := time.Date(there.Year(), there.Month(), there.Day(), settings.Hour, settings.Minute, 0, 0, settings.Zone)
	if due.After(now) {
		due = time.Date(there.Year(), there.Month(), there.Day()-1, settings.Hour, settings.Minute, 0, 0, settings.Zone)
	}
	return due
}

// wayJob is the payload of a job.
type wayJob struct {
	Way string `json:"way"`
}

// tell stores a notice with a way and a job for each address.
func (s *Service) tell(ctx context.Context, tx Tx, notice exchange.Notice, settings Settings) error {
	notice.Ways = nil
	for _, address := range settings.Addresses {
		notice.Ways = append(notice.Ways, exchange.NoticeWay{
			ID: newID(), NoticeID: notice.ID, Address: address.Label, State: exchange.NoticePending, UpdatedAt: notice.CreatedAt,
		})
	}
	if err := tx.InsertNotice(ctx, notice); err != nil {
		return err
	}

	for _, way := range notice.Ways {
		job, err := WayJob(way.ID)
		if err != nil {
			return err
		}
		if err := tx.Enqueue(ctx, job); err != nil {
			return err
		}
	}
	return nil
}

// WayJob is the job that brings a notice on its way to one address; its id is the way's.
func WayJob(way string) (queue.NewJob, error) {
	payload, err := json.Marshal(wayJob{way})
	return queue.NewJob{ID: way, Kind: JobKind, Payload: string(payload)}, err
}

// Test stores a notice to every address and returns its id. fault.Conflict when there is no address.
func (s *Service) Test(ctx context.Context) (id string, err error) {
	settings := s.options.Current()
	if len(settings.Addresses) == 0 {
		return "", fault.New(fault.Conflict, `there is no address: write operator.notify, such as notify = ["mailto:me@example.org"]`)
	}
	notice, err := s.test(s.options.Now())
	if err != nil {
		return "", err
	}
	err = s.options.Store.InTx(ctx, func(tx Tx) error { return s.tell(ctx, tx, notice, settings) })
	if err == nil {
		made.WithLabelValues(exchange.NoticeTest).Inc()
	}
	return notice.ID, err
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }
