package moderation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/normalized"
)

// limit: sender, host, agent, total, thread, sender_runs, agent_runs, sender_cost, agent_cost, and the brakes of a way:
// answers_thread, answers_sender, same, machine
var overLimit = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_over_limit_total", Help: "Messages that were over a limit or budget.",
}, []string{"limit"})

// Rate is how much is allowed in one window. Windows begin at multiples of their length since 1970, so that all nodes
// have the same; a day is one of UTC.
type Rate struct {
	Amount int64
	Window time.Duration
}

const day = 24 * time.Hour

// ParseRate reads "30/1m": at most 30 in a minute.
func ParseRate(text string) (Rate, error) {
	amount, window, found := strings.Cut(strings.TrimSpace(text), "/")
	number, err := strconv.ParseInt(strings.TrimSpace(amount), 10, 32)
	length, bad := time.ParseDuration(strings.TrimSpace(window))
	if !found || err != nil || bad != nil || number < 1 || length < time.Second || length > 31*day {
		return Rate{}, errors.New(`a rate is a number and a window of 1s to 744h, such as "30/1m"`)
	}
	return Rate{number, length}, nil
}

// Budgets are what may be spent in a day; 0 = no bound. Money is in millionths.
type Budgets struct{ SenderRuns, AgentRuns, SenderCost, AgentCost int64 }

// Counters keep the sums of all nodes.
type Counters interface {
	AddCounts(ctx context.Context, counts []exchange.Count) ([]exchange.Count, error)
	Counts(ctx context.Context, keys []string) ([]exchange.Count, error)
}

// MeterOptions configure a Meter. Counters is required.
type MeterOptions struct {
	Counters                           Counters
	Sender, Host, Agent, Total, Thread []Rate
	Budgets                            Budgets
	Ways                               map[string]Way   // by the message's received_via
	Logger                             *slog.Logger     // default: slog.Default
	Now                                func() time.Time // default: time.Now
}

// Meter counts messages, runs and money. It counts in memory and adds to the database once a second, so that no message
// waits for it: between two nodes a limit may be passed by what arrives in a second, and a crash forgets as much. A sender
// whom this node does not know costs one read.
type Meter struct {
	options MeterOptions
	mu      sync.Mutex
	known   map[string]*counter
}

type counter struct {
	sum     int64 // of all nodes, as far as they have written
	pending int64 // ours that is not written yet
	lone    bool  // the one message that opened a thread: not worth a row until a second one comes
	ends    time.Time
}

const (
	flushEvery = time.Second
	maxCounted = 200_000
	maxLone    = 20_000
	// overflow is how many times a limit may be passed in a window before messages are not even kept.
	overflow = 10
)

// NewMeter makes a meter.
func NewMeter(options MeterOptions) *Meter {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	return &Meter{options: options, known: map[string]*counter{}}
}

// Subject is whose message it is and for whom. What follows Thread is for the brakes of its way.
type Subject struct {
	Principal, Host, Agent, Thread string

	Via    string            // names the way
	Opens  bool              // the message is the first one of its thread: nothing was counted there before
	Said   []normalized.Part // what it says
	Waited time.Duration     // how long after an answer of ours it came that it answers; 0 = it answers none of ours
}

// Excess says that a message is over a limit.
type Excess struct {
	Limit    string    // its name
	Until    time.Time // when the window ends
	Personal bool      // the limit is the sender's own: a notice tells them something
	First    bool      // nobody was told yet in this window
	Flood    bool      // far over it: the message is not worth a row
	Brake    string    // why the message is kept without an answer and without a notice; empty = it is a limit
}

// bound is one window of one limit.
type bound struct {
	limit, key string
	most, step int64
	ends       time.Time
	personal   bool
	brake      string // a format of most and window; empty = none
	window     time.Duration
	ofThread   bool
}

func (m *Meter) bounds(s Subject, now time.Time) []bound {
	var list []bound
	add := func(limit, subject string, personal bool, step int64, rates ...Rate) {
		for _, r := range rates {
			if r.Amount <= 0 || subject == "" {
				continue
			}
			begin := now.Truncate(r.Window)
			key := limit + " " + r.Window.String() + " " + strconv.FormatInt(begin.Unix(), 36) + " " + subject
			list = append(list, bound{limit: limit, key: key, most: r.Amount, step: step, ends: begin.Add(r.Window), personal: personal})
		}
	}
	b := m.options.Budgets
	mine := s.Agent + " " + s.Principal
	add("sender", s.Principal, true, 1, m.options.Sender...)
	add("thread", s.Agent+" "+s.Thread, true, 1, m.options.Thread...)
	add("sender_runs", mine, true, 1, Rate{b.SenderRuns, day})
	add("sender_cost", mine, true, 0, Rate{b.SenderCost, day})
	add("host", s.Host, false, 1, m.options.Host...)
	add("agent", s.Agent, false, 1, m.options.Agent...)
	add("agent_runs", s.Agent, false, 1, Rate{b.AgentRuns, day})
	add("agent_cost", s.Agent, false, 0, Rate{b.AgentCost, day})
	add("total", "all", false, 1, m.options.Total...)
	for i, b := range list {
		list[i].ofThread = b.limit == "thread"
	}
	return append(list, m.wayBounds(s, now)...)
}

// Take counts a message, or says that it is over a limit; then nothing was counted. When the database cannot be read the
// message is let in: limits must not stop a server.
func (m *Meter) Take(ctx context.Context, s Subject) (Excess, bool) {
	now := m.options.Now()
	if excess, machine := m.machine(s, now); machine {
		return excess, true
	}
	bounds, row := m.bounds(s, now), m.sameRow(s, now)
	if len(bounds) == 0 && row.key == "" {
		return Excess{}, false
	}
	m.learnFor(ctx, s, bounds, row)
	m.mu.Lock()
	for _, b := range bounds {
		if c := m.counter(b.key, b.ends); c.sum+c.pending >= b.most {
			m.mu.Unlock()
			return m.excess(ctx, b), true
		}
	}
	if over, is := m.again(row); is {
		m.mu.Unlock()
		return m.excess(ctx, over), true
	}
	for _, b := range bounds {
		c := m.counter(b.key, b.ends)
		c.lone = s.Opens && b.ofThread && c.sum+c.pending == 0
		c.pending += b.step
	}
	m.mu.Unlock()
	return Excess{}, false
}

// learnFor reads what has to be known about a message. Of a thread that it opens nothing can be: no query for that.
func (m *Meter) learnFor(ctx context.Context, s Subject, bounds []bound, row sameRow) {
	asked := make([]bound, 0, len(bounds)+1)
	for _, b := range bounds {
		if !s.Opens || !b.ofThread {
			asked = append(asked, b)
		}
	}
	if row.key != "" && !s.Opens {
		asked = append(asked, bound{key: row.key})
	}
	m.learn(ctx, asked)
}

// excess counts what is over a limit; the first one on all nodes is told.
func (m *Meter) excess(ctx context.Context, b bound) Excess {
	overLimit.WithLabelValues(b.limit).Inc()
	found := Excess{Limit: b.limit, Until: b.ends, Personal: b.personal}
	if b.brake != "" {
		found.Brake = fmt.Sprintf(b.brake, b.most, shortly(b.window))
	}
	told := bound{key: "over " + b.key, ends: b.ends}
	m.learn(ctx, []bound{told})
	m.mu.Lock()
	c := m.counter(told.key, told.ends)
	before := c.sum + c.pending
	if before > 0 {
		c.pending++
	}
	m.mu.Unlock()
	found.Flood = before >= overflow*max(b.most, 1)
	if before > 0 {
		return found
	}
	// Two nodes may find it at once: the database says who was first.
	sums, err := m.options.Counters.AddCounts(ctx, []exchange.Count{{Key: told.key, Amount: 1, Ends: told.ends}})
	if err != nil || len(sums) != 1 {
		return found
	}
	m.mu.Lock()
	m.counter(told.key, told.ends).sum = sums[0].Amount
	m.mu.Unlock()
	found.First = sums[0].Amount == 1
	return found
}

// counter gives the counter of a key; the caller holds the lock.
func (m *Meter) counter(key string, ends time.Time) *counter {
	c, known := m.known[key]
	if !known {
		c = &counter{ends: ends}
		m.known[key] = c
	}
	return c
}

// learn reads the sums of keys that this node does not know.
func (m *Meter) learn(ctx context.Context, bounds []bound) {
	var missing []string
	m.mu.Lock()
	for _, b := range bounds {
		if _, known := m.known[b.key]; !known {
			missing = append(missing, b.key)
		}
	}
	m.mu.Unlock()
	if len(missing) == 0 {
		return
	}
	sums, err := m.options.Counters.Counts(ctx, missing)
	if err != nil {
		m.options.Logger.WarnContext(ctx, "limits could not be read", "error", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, sum := range sums {
		if _, known := m.known[sum.Key]; !known {
			m.known[sum.Key] = &counter{sum: sum.Amount, ends: sum.Ends}
		}
	}
}

// Spend counts the cost of an answer, in millionths.
func (m *Meter) Spend(ctx context.Context, s Subject, cost int64) {
	if cost <= 0 {
		return
	}
	var spent []bound
	for _, b := range m.bounds(s, m.options.Now()) {
		if b.step == 0 {
			spent = append(spent, b)
		}
	}
	m.learn(ctx, spent)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, b := range spent {
		m.counter(b.key, b.ends).pending += cost
	}
}

// Run writes what was counted until ctx ends, and once more then.
func (m *Meter) Run(ctx context.Context) error {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return m.lastFlush(context.WithoutCancel(ctx))
		case <-ticker.C:
			if err := m.Flush(ctx); err != nil && ctx.Err() == nil {
				m.options.Logger.WarnContext(ctx, "limits are counted on this node alone for now", "error", err)
			}
		}
	}
}

func (m *Meter) lastFlush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return m.Flush(ctx)
}

// Flush writes what was counted and reads what other nodes did.
func (m *Meter) Flush(ctx context.Context) error {
	counts := m.changed()
	if len(counts) == 0 {
		return nil
	}
	sums, err := m.options.Counters.AddCounts(ctx, counts)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		for _, c := range counts {
			again := m.counter(c.Key, c.Ends)
			again.sum, again.pending = again.sum-c.Amount, again.pending+c.Amount
		}
		return err
	}
	for _, sum := range sums {
		m.counter(sum.Key, sum.Ends).sum = sum.Amount
	}
	return nil
}

// changed takes what has to be written, counts it as written, and forgets windows that ended.
func (m *Meter) changed() []exchange.Count {
	now := m.options.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	var counts []exchange.Count
	full, crowded := len(m.known) > maxCounted, len(m.known) > maxLone
	for key, c := range m.known {
		switch {
		case !now.Before(c.ends):
			delete(m.known, key)
		case c.lone && crowded:
			delete(m.known, key)
		case c.lone:
		case c.pending != 0:
			counts = append(counts, exchange.Count{Key: key, Amount: c.pending, Ends: c.ends})
			c.sum += c.pending // until the sum of all nodes is known
			c.pending = 0
		case full:
			delete(m.known, key) // the database has it
		}
	}
	return counts
}
