package queue

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"inbox/internal/fault"
)

// Options configure a Queue. The zero value of a field means its default.
type Options struct {
	// Owner names this process in leases: host, process id and a random word by default.
	Owner string
	// Lease is how long a job stays with a worker that returns no sign of life, 15 s by default. It is prolonged
	// every third of it. The store's clock decides when it ends.
	Lease time.Duration
	// Poll is the longest pause between two looks for work when no wake-up comes, 5 s by default.
	Poll time.Duration
	// Grace is how long Run lets running jobs finish after its context ended, 10 s by default. Their contexts end
	// then, and they have as long again, at most 5 s, to return.
	Grace time.Duration
	// Logger gets panics and failures of the store. slog.Default when nil.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Owner == "" {
		host, _ := os.Hostname()
		o.Owner = host + "/" + strconv.Itoa(os.Getpid()) + "/" + rand.Text()[:6]
	}

	o.Lease = positive(o.Lease, 15*time.Second)
	o.Poll = positive(o.Poll, 5*time.Second)
	o.Grace = positive(o.Grace, 10*time.Second)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

func positive(given, otherwise time.Duration) time.Duration {
	if given > 0 {
		return given
	}
	return otherwise
}

// KindOptions configure the jobs of one kind. The zero value of a field means its default.
type KindOptions struct {
	// Concurrency is the number of jobs of the kind that run at once in this process, 8 by default. A quarter more may
	// begin for groups, and members of groups, of which nothing runs (see NewJob.Group).
	Concurrency int
	// PerMember bounds the runs at once for one member of a group in this process. 0: as many as there are slots.
	PerMember int
	// Limit returns how many jobs of a group may run at once in this process now. It is asked often and must not block.
	// Jobs that had begun when their process ended are not held back. Nil: as many as there are slots. Wake is called
	// when it has grown.
	Limit func(group string) int
	// Timeout ends the context of one run; none by default.
	Timeout time.Duration
	// Schedule are the waits before the second, third, … attempt after an error without a wait of its own. Each is
	// an upper bound: the wait is drawn evenly below it, so that failed jobs do not come back together.
	// Default: 1 s, 5 s, 30 s, 2 min, 10 min, 30 min.
	Schedule []time.Duration
	// Backoff replaces Schedule when set: the upper bound of the wait after the given attempt (from 1). It needs
	// MaxAttempts.
	Backoff func(attempt int) time.Duration
	// MaxAttempts is the number of attempts after which a job is dead, whatever the error. 0: a job is dead when
	// Schedule is used up, and RetryAfter has no limit.
	MaxAttempts int
}

func (o KindOptions) withDefaults() KindOptions {
	if o.Concurrency <= 0 {
		o.Concurrency = 8
	}
	if len(o.Schedule) == 0 {
		o.Schedule = []time.Duration{
			time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		}
	}
	return o
}

// Queue claims jobs from a store and runs their handlers.
type Queue struct {
	store   Store
	options Options
	workers map[string]*worker
	running runs
}

// New makes a queue. Register the kinds with Handle, then call Run.
func New(store Store, options Options) *Queue {
	return &Queue{store: store, options: options.withDefaults(), workers: make(map[string]*worker)}
}

// Handle registers the handler of a kind. All kinds are registered before Run; a kind has one handler.
func (q *Queue) Handle(kind string, options KindOptions, handler Handler) {
	if q.workers[kind] != nil {
		panic("queue: kind " + kind + " has a handler already")
	}

	options = options.withDefaults()
	w := &worker{
		queue: q, kind: kind, options: options, handler: handler,
		wake: make(chan struct{}, 1), freed: make(chan struct{}, 1), meters: metersOf(kind), slots: newSlots(options),
	}

	w.lives(nil)
	q.workers[kind] = w
}

// Wake says that a job of the kind may be runnable now; an empty kind means any. It never blocks.
func (q *Queue) Wake(kind string) {
	if kind != "" {
		q.workers[kind].signal()
		return
	}
	for _, w := range q.workers {
		w.signal()
	}
}

// Check reports whether this process takes up work: every kind was looked for without a failure within a claim's longest time
// and two polls, or all of its slots are taken; from Handle on, so that Run has as long to begin. How many jobs wait, and why, does not count. Its error is
// fault.Unavailable.
func (q *Queue) Check() error {
	bound := claimTimeout + 2*q.options.Poll
	for kind, w := range q.workers {
		if seen := time.Unix(0, w.seen.Load()); time.Since(seen) > bound {
			return fault.Wrap(fault.Unavailable, "no work is taken from the queue",
				fmt.Errorf("the last look for jobs of kind %s that succeeded was at %s", kind, seen.UTC().Format(time.RFC3339)))
		}
	}
	return nil
}

// Run claims and runs jobs until ctx ends. Then it claims no more, lets running jobs finish within Options.Grace,
// ends the contexts of the rest and returns their leases, so that another node takes them at once. Its error is
// fault.Unavailable when handlers did not return even then; their jobs run again after the lease.
func (q *Queue) Run(ctx context.Context) error {
	lives, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var loops, beats sync.WaitGroup
	beats.Go(func() { q.heartbeat(lives) })
	beats.Go(func() { q.count(lives) })

	for _, w := range q.workers {
		loops.Go(func() { w.loop(ctx) })
	}

	loops.Wait()
	left := q.running.drain(q.options.Grace)
	end()
	beats.Wait()

	if left > 0 {
		return fault.Newf(fault.Unavailable, "%d jobs did not stop in time; they run again when their leases end", left)
	}

	return nil
}
