package moderation

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// limit: sender, network, guest_bytes, host, agent, total, thread, sender_runs, agent_runs, sender_cost, agent_cost, and the brakes of a way:
// answers_thread, answers_sender, answers_chain, answers_domain, same, machine
var overLimit = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_over_limit_total", Help: "Messages that were over a limit or budget.",
}, []string{"limit"})

const day = 24 * time.Hour

// ParseRate reads "30/1m": at most 30 in a minute.
func ParseRate(text string) (exchange.Rate, error) {
	amount, window, found := strings.Cut(strings.TrimSpace(text), "/")
	number, err := strconv.ParseInt(strings.TrimSpace(amount), 10, 32)
	length, bad := time.ParseDuration(strings.TrimSpace(window))
	if !found || err != nil || bad != nil || number < 1 || length < time.Second || length > 31*day {
		return exchange.Rate{}, errors.New(`a rate is a number and a window of 1s to 744h, such as "30/1m"`)
	}
	return exchange.Rate{Amount: number, Window: length}, nil
}

// Budgets are what may be spent in a day; 0 = no bound. Money is in millionths.
type Budgets struct{ SenderRuns, AgentRuns, SenderCost, AgentCost int64 }

// GuestBytes are sizes that messages of senders without proof may have together: of one network, of all.
type GuestBytes struct{ Network, All int64 }

// Counters keep the sums of all nodes.
type Counters interface {
	AddCounts(ctx context.Context, counts []exchange.Count) ([]exchange.Count, error)
	Counts(ctx context.Context, keys []string) ([]exchange.Count, error)
}

// MeterOptions configure a Meter. Counters is required.
type MeterOptions struct {
	Counters                           Counters
	Sender, Host, Agent, Total, Thread []exchange.Rate
	Budgets                            Budgets
	// Kept is the part of Agent, Total and the budgets of agents, in percent, that only senders use who were answered
	// before; 0 = none.
	Kept int
	// GuestBytes are what messages of senders without proof may take in a day; 0 = no bound.
	GuestBytes GuestBytes
	// Conversation returns the limits of conversations of a channel; nil = no channel has some.
	Conversation func(channel string) exchange.ConversationLimits
	Logger       *slog.Logger     // default: slog.Default
	Now          func() time.Time // default: time.Now

	// Current returns the bounds that hold now: rates, budgets, Kept and GuestBytes, which are not changed afterwards. Nil = those of
	// these options.
	Current func() *MeterOptions
}

// Meter counts messages, runs and money. A message is counted by a Reservation that its transaction ends: the count stays
// when the message was stored and is given back when it was not, so that what a peer repeats after a failure is counted
// once. Counts live in memory and are added to the database once a second, so that no message waits for a row that all
// nodes write: between two nodes a limit may be passed by what arrives in a second, and a crash forgets as much. A sender
// that this node does not know costs one read.
type Meter struct {
	options MeterOptions
	mu      sync.Mutex
	known   map[string]*counter
	recent  *list.List // of *counter, the one used last in front
	opening int        // counters with lone
	unsaved map[*counter]struct{}
	swept   time.Time
	storing map[string]*counting
}

type counter struct {
	key      string
	sum      int64 // of all nodes, as far as they have written
	pending  int64 // ours that is not written yet
	reserved int64 // of messages that are being stored
	ends     time.Time
	lone     bool // the one message that opened a thread: not worth a row until a second one comes

	saying  map[int64]int64 // brakeSame: messages that are being stored, by the sum of their words
	element *list.Element
}

const (
	flushEvery = time.Second
	maxCounted = 200_000
	maxLone    = 20_000
	sweepEvery = time.Minute // when windows that ended are forgotten
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
	return &Meter{options: options, known: map[string]*counter{}, recent: list.New(), unsaved: map[*counter]struct{}{}, storing: map[string]*counting{}}
}

// bounding returns the bounds that hold now.
func (m *Meter) bounding() *MeterOptions {
	if m.options.Current == nil {
		return &m.options
	}
	return m.options.Current()
}

// Subject is whose message it is and for whom. What follows Message is for the limits of its channel.
type Subject struct {
	Principal, Host, Agent, Thread string

	// Carrier is the principal of who brought the message of someone else; empty = no one did. What bounds a sender bounds it, too:
	// it says who its people are, and may say so of as many as it likes.
	Carrier string

	// Networks are those of a sender without proof, the narrowest first (see Networks.Of). They are counted instead of
	// Principal and Host, which such a sender makes up. Empty = the sender is proven, or the address is not known.
	Networks []string
	Proven   bool
	Bytes    int64 // what the message takes on the disk

	Message string // id of the message among those of its sender; empty = no other one is a copy of it

	Channel string            // by which it came
	Chain   string            // what led to a message of a new sender, see exchange.Inbound.Chain
	Astray  bool              // it answers an answer to someone else
	Opens   bool              // the message is the first one of its thread: nothing was counted there before
	Said    []normalized.Part // what it says
	Waited  time.Duration     // how long after an answer of ours it came that it answers; 0 = it answers none of ours
}

// Excess says that a message is over a limit.
type Excess struct {
	Limit    string    // its name
	Until    time.Time // when the window ends
	Personal bool      // the limit is the sender's own: a notice tells them something
	First    bool      // no one was told yet in this window; set by Report
	Flood    bool      // far over it: the message is not worth a row; set by Report
	Brake    string    // why the message is kept without an answer and without a notice; empty = it is a limit
	// Contended reports that only messages that are being stored at this moment fill the limit. They may yet fail, so that
	// nothing that lasts may follow from it: the peer should come again.
	Contended bool

	bound bound
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
	kept       int64 // of most, for senders who were answered before
}

func (m *Meter) bounds(s Subject, now time.Time) []bound {
	var list []bound
	add := func(limit, subject string, personal bool, step int64, rates ...exchange.Rate) {
		for _, r := range rates {
			if r.Amount <= 0 || subject == "" {
				continue
			}
			begin := now.Truncate(r.Window)
			key := limit + " " + r.Window.String() + " " + strconv.FormatInt(begin.Unix(), 36) + " " + subject
			list = append(list, bound{limit: limit, key: key, most: r.Amount, step: step, ends: begin.Add(r.Window), personal: personal})
		}
	}

	b := m.bounding().Budgets
	sender, host := s.Principal, identity.RegistrableDomain(s.Host)
	if len(s.Networks) > 0 {
		sender, host = "network "+s.Networks[0], ""
	}

	senders := []string{sender}
	if s.Carrier != "" {
		senders = append(senders, s.Carrier)
	}

	for _, one := range senders {
		add("sender", one, true, 1, m.bounding().Sender...)
	}

	wider := slices.Clone(m.bounding().Sender)
	for i, network := range s.Networks {
		if i > 0 {
			for j := range wider {
				wider[j].Amount *= widening
			}
			add("network", network, false, 1, wider...)
		}
	}

	if !s.Proven && s.Bytes > 0 {
		if len(s.Networks) > 0 {
			add("guest_bytes", sender, false, s.Bytes, exchange.Rate{Amount: m.bounding().GuestBytes.Network, Window: day})
		}
		add("guest_bytes", "all", false, s.Bytes, exchange.Rate{Amount: m.bounding().GuestBytes.All, Window: day})
	}

	add("thread", s.Agent+" "+s.Thread, true, 1, m.bounding().Thread...)
	for _, one := range senders {
		add("sender_runs", s.Agent+" "+one, true, 1, exchange.Rate{Amount: b.SenderRuns, Window: day})
		add("sender_cost", s.Agent+" "+one, true, 0, exchange.Rate{Amount: b.SenderCost, Window: day})
	}
	add("host", host, false, 1, m.bounding().Host...)
	shared := len(list)
	add("agent", s.Agent, false, 1, m.bounding().Agent...)
	add("agent_runs", s.Agent, false, 1, exchange.Rate{Amount: b.AgentRuns, Window: day})
	add("agent_cost", s.Agent, false, 0, exchange.Rate{Amount: b.AgentCost, Window: day})
	add("total", "all", false, 1, m.bounding().Total...)

	for i := range list {
		list[i].ofThread = list[i].limit == "thread"
		if i >= shared {
			list[i].kept = min(list[i].most*int64(m.bounding().Kept)/100, list[i].most-1)
		}
	}

	return append(list, m.wayBounds(s, now)...)
}

// full reports whether one more message would pass the limit, with what is being stored or without it.
func (b bound) full(used int64) bool { return used+max(b.step, 1) > b.most }

// A sender who was answered is known until the end of the window after that.
const knownFor = 90 * day

// acquaintance is the counter of a proven sender, or of the carrier, who was answered in a window.
func acquaintance(s Subject, window time.Time) bound {
	begin := window.Truncate(knownFor)
	return bound{key: "known " + strconv.FormatInt(begin.Unix(), 36) + " " + cmp.Or(s.Carrier, s.Principal), step: 1, ends: begin.Add(2 * knownFor)}
}

// Remember notes that a sender was answered. One who proved nothing is not remembered: the name may be anyone's.
func (m *Meter) Remember(s Subject) {
	if !s.Proven || m.bounding().Kept <= 0 {
		return
	}
	b := acquaintance(s, m.options.Now())
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.counter(b.key, b.ends); c.sum+c.pending <= 0 {
		m.owe(c, 1)
	}
}

// remembered reports whether a sender was answered before; the caller holds the lock.
func (m *Meter) remembered(s Subject, now time.Time) bool {
	for _, window := range []time.Time{now, now.Add(-knownFor)} {
		if c, known := m.known[acquaintance(s, window).key]; s.Proven && known && c.sum+c.pending > 0 {
			return true
		}
	}
	return false
}

// learnFor reads what has to be known about a message. Of a thread that it opens nothing can be: no query for that.
func (m *Meter) learnFor(ctx context.Context, s Subject, bounds []bound, row sameRow, now time.Time) {
	asked := make([]bound, 0, len(bounds)+3)
	if s.Proven && m.bounding().Kept > 0 {
		asked = append(asked, acquaintance(s, now), acquaintance(s, now.Add(-knownFor)))
	}

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

// Report counts a message that is over a limit and completes the excess: the first one on all nodes is told. The
// reservation is never nil; released, what it counted is given back, so that a notice that could not be stored is told
// the next time.
func (m *Meter) Report(ctx context.Context, found Excess) (Excess, *Reservation) {
	b := found.bound
	overLimit.WithLabelValues(found.Limit).Inc()

	if b.key == "" { // of a program's pace: each message is the first one
		found.First = true
		return found, &Reservation{}
	}

	before, first, reservation, err := m.count(ctx, bound{key: "over " + b.key, step: 1, ends: b.ends})
	found.Flood = before >= overflow*max(b.most, 1)
	found.First, found.Contended = first, err != nil // without the database no one can be told that they were told
	return found, reservation
}

// count adds one to a counter, and reports what it was before and whether this is the first one on all nodes. The reservation is never nil.
func (m *Meter) count(ctx context.Context, told bound) (before int64, first bool, _ *Reservation, _ error) {
	m.learn(ctx, []bound{told})
	m.mu.Lock()
	c := m.counter(told.key, told.ends)
	before = c.sum + c.pending + c.reserved
	c.reserved++
	unwritten := c.pending
	m.mu.Unlock()
	reservation := &Reservation{meter: m, of: &counting{holders: 1, taken: []taken{{c, told}}}}
	if before > 0 {
		return before, false, reservation, nil
	}

	// Two nodes may find it at once: the database says which was first.
	sums, err := m.options.Counters.AddCounts(ctx, []exchange.Count{{Key: told.key, Amount: unwritten + 1, Ends: told.ends}})
	if err == nil && len(sums) != 1 {
		err = errNoCount
	}
	if err != nil {
		return before, false, reservation, err
	}

	m.mu.Lock()
	c.sum, c.reserved = sums[0].Amount, c.reserved-1
	m.owe(c, -unwritten)
	reservation.of.written = true
	m.mu.Unlock()
	return before, sums[0].Amount == 1, reservation, nil
}

var errNoCount = errors.New("the database returned no count")

// maxExplainedOfHost is how many senders of one registrable domain are told in a day: a program may write from a new address each time.
const maxExplainedOfHost = 20

// Explain reports whether a sender is to be told why a message stays without an answer: once in a day, and not if many of the sender's domain
// were told. The reservation is never nil; released, what it counted is given back.
func (m *Meter) Explain(ctx context.Context, s Subject) (bool, *Reservation) {
	now := m.options.Now()
	begin := now.Truncate(day)
	key := func(of string) string { return "explained " + strconv.FormatInt(begin.Unix(), 36) + " " + of }
	host := bound{key: key("host " + identity.RegistrableDomain(s.Host)), step: 1, ends: begin.Add(day)}
	m.learn(ctx, []bound{host})
	m.mu.Lock()
	c := m.counter(host.key, host.ends)
	full := c.sum+c.pending+c.reserved >= maxExplainedOfHost
	m.mu.Unlock()
	if full {
		return false, &Reservation{}
	}

	_, first, reservation, err := m.count(ctx, bound{key: key("to " + s.Principal), step: 1, ends: begin.Add(day)})
	if first && err == nil {
		m.mu.Lock()
		m.owe(m.counter(host.key, host.ends), 1)
		m.mu.Unlock()
	}
	return first && err == nil, reservation
}

// counter returns the counter of a key and makes it the one used last; the caller holds the lock.
func (m *Meter) counter(key string, ends time.Time) *counter {
	c := m.unused(key, ends)
	m.recent.MoveToFront(c.element)
	return c
}

// unused is counter without the use: writing a counter to the database is no reason to remember it for longer.
func (m *Meter) unused(key string, ends time.Time) *counter {
	if c, known := m.known[key]; known {
		return c
	}
	c := &counter{key: key, ends: ends}
	m.known[key], c.element = c, m.recent.PushFront(c)
	return c
}

// owe changes what a counter has to add to the database; the caller holds the lock.
func (m *Meter) owe(c *counter, amount int64) {
	c.pending += amount
	m.unsaved[c] = struct{}{}
}

// forget drops a counter; the caller holds the lock.
func (m *Meter) forget(c *counter) {
	delete(m.unsaved, c)
	m.alone(c, false)
	delete(m.known, c.key)
	m.recent.Remove(c.element)
}

// alone marks a counter as one of a thread that was only opened; the caller holds the lock.
func (m *Meter) alone(c *counter, lone bool) {
	switch {
	case lone && !c.lone:
		m.opening++
	case !lone && c.lone:
		m.opening--
	}
	c.lone = lone
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
			m.counter(sum.Key, sum.Ends).sum = sum.Amount
		}
	}

	for _, b := range bounds {
		if err == nil && !b.ends.IsZero() {
			m.counter(b.key, b.ends) // not asked for again
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
		m.owe(m.counter(b.key, b.ends), cost)
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

// Flush writes what was counted and reads what other nodes did. What may be stored although the database did not report it is
// written again: a limit is then reached early, never late.
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
			again := m.unused(c.Key, c.Ends)
			again.sum -= c.Amount
			m.owe(again, c.Amount)
		}
		return err
	}

	for _, sum := range sums {
		if c, known := m.known[sum.Key]; known {
			c.sum = sum.Amount
		}
	}

	return nil
}

// changed takes what has to be written, counts it as written, and forgets windows that ended and, where there are too many
// counters, those that were not used for longest.
func (m *Meter) changed() []exchange.Count {
	now := m.options.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	var counts []exchange.Count
	for c := range m.unsaved {
		delete(m.unsaved, c)
		if c.lone || c.pending == 0 || !now.Before(c.ends) {
			continue
		}
		counts = append(counts, exchange.Count{Key: c.key, Amount: c.pending, Ends: c.ends})
		c.sum += c.pending // until the sum of all nodes is known
		c.pending = 0
	}

	if since := now.Sub(m.swept); since < 0 || since >= sweepEvery {
		m.swept = now
		for _, c := range m.known {
			if !c.stored() && !now.Before(c.ends) {
				m.forget(c)
			}
		}
	}

	for element := m.recent.Back(); element != nil && (len(m.known) > maxCounted || m.opening > maxLone); {
		c, is := element.Value.(*counter)
		element = element.Prev()
		full := len(m.known) > maxCounted && (c.pending == 0 || c.lone) // the database has it
		if is && !c.stored() && (full || c.lone && m.opening > maxLone) {
			m.forget(c)
		}
	}

	return counts
}

// stored reports whether a message that is being stored holds the counter.
func (c *counter) stored() bool { return c.reserved != 0 || len(c.saying) > 0 }
