// Package pipeline is the way of a message through the server: accept it durably, run its agent one turn at a time
// per thread, store the answer together with its deliveries. It knows no protocol, no SQL and no kind of agent.
package pipeline

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/agents"
	"inbox/engine/delivery"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/queue"
	"inbox/internal/redact"
	"inbox/internal/telemetry"
	"inbox/normalized"
)

var (
	accepted = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_messages_total",
		Help: "Messages offered by adapters, by outcome (accepted, held, silent, duplicate, refused, error).",
	}, []string{"received_via", "outcome"})
	finished = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_turns_finished_total",
		Help: "Turns that came to an end, by agent and state.",
	}, []string{"agent", "state"})
	// state: as in docs/architecture.md; running is no step of its own
	turnSteps = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "inbox_turn_steps_total",
		Help: "States to which turns came, by the channel of the message (accepted, held, refused, silent, waiting, answered, failed, cancelled).",
	}, []string{"channel", "state"})
	runSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "inbox_turn_run_seconds",
		Help:    "Time that the agent took for one run.",
		Buckets: []float64{.001, .005, .025, .1, .5, 1, 5, 15, 60, 300},
	}, []string{"agent"})
)

// Directory finds agents by name; *agents.Registry is one.
type Directory interface {
	Lookup(name string) (agents.Entry, bool)
	// Acquire is Lookup for a run: what the agent holds stays until release, which is called once in any case.
	Acquire(name string) (entry agents.Entry, release func(), found bool)
}

// Blobs keeps contents that are too large for the database.
type Blobs interface {
	PutBytes(ctx context.Context, content []byte) (digest string, err error)
	// Stage is PutBytes for a caller that may turn out not to need the content; withdraw, which may be nil, removes it again.
	Stage(ctx context.Context, content []byte) (withdraw func() error, err error)
}

// Deliveries is what the pipeline tells the delivery service.
type Deliveries interface {
	Expect(records []delivery.Record, reply exchange.Reply)
}

// noDeliveries stands in where Options.Deliveries is nil.
type noDeliveries struct{}

func (noDeliveries) Expect([]delivery.Record, exchange.Reply) {}

// Files are the bytes of one turn for one run of its agent.
type Files interface {
	agents.Files
	// Check returns parts of an answer without the addresses of contents that they name by digest. A content that is neither of the turn
	// nor of the agent is fault.Malformed.
	Check(ctx context.Context, parts []normalized.Part) ([]normalized.Part, error)
}

// Options configure a Service. Store, Agents, Channels and Blobs are required.
type Options struct {
	Store    Store
	Agents   Directory
	Channels *exchange.Channels
	Blobs    Blobs
	// Deliveries hears of deliveries that are about to be stored, so that it needs not read them back; optional.
	Deliveries Deliveries
	// Requested hears of calls of tools that programs outside execute, once they are stored; optional. It must not block.
	Requested func(exchange.ToolRequest)
	// Reserve keeps a place of this process for a job that is about to be stored, or returns nil; optional.
	Reserve func(job queue.NewJob) *queue.Reservation
	// Caller calls agents of other servers; nil = they cannot be reached.
	Caller Caller
	// KnownAgent reports whether an address of another server is that of an agent, as far as the operator said; nil = none.
	KnownAgent func(identity.Address) bool
	Limiters   Limiters // limits, stop words, loops
	Quotas     Quotas   // of messages that get no answer by themselves
	// Current returns the Limiters and Quotas that hold now, which are not changed afterwards; nil = those of these options.
	Current   func() (*Limiters, *Quotas)
	Moderator Moderator // optional: without it no sender is kept out
	Closed    Closed    // optional: without it every agent takes messages
	Approvers Approvers // optional: without it no approver is told of an approval, and only the operator decides
	Documents Documents // optional: without it agents keep nothing between the runs of a turn
	// Files has the bytes of a turn, under addresses until a time; nil = agents read none but those inside of the message.
	Files   func(turn exchange.TurnRecord, expires time.Time) Files
	Demands Demands // optional: without it an agent's demand is a failure
	// Believed reports whether the issuer that proved a side of a link is still trusted; nil = all are.
	Believed func(side exchange.LinkSide) bool
	// OperatorHears reports whether the operator is told of turns that fail; nil = no answer says so.
	OperatorHears func() bool
	// Keys returns what hides addresses and codes of this server in texts that come in; nil = nothing is hidden.
	Keys    func() *redact.Redactor
	BaseURL *url.URL          // optional: origin that addresses in policy parts must have; nil = only adapters check them
	Limits  normalized.Limits // zero = normalized.DefaultLimits
	Logger  *slog.Logger
	Tracer  *telemetry.Tracer // nil = nothing is traced
}

// Service is the pipeline. Receive is called by adapters, Run is the queue handler of JobKind. Each of its roles is a type of its own,
// with the roles that it calls as fields; none calls one that stands below it here.
type Service struct {
	*replier    // plans answers and stores them with their deliveries: Notify, RunAck
	*settler    // ends demands: Settle
	*canceller  // what senders and operators change about turns that are there: Cancel, Release, Retry, Amend, …
	*watcher    // those who wait for a turn: Wait, Follow
	*acceptor   // the way in: Receive
	*approver   // those who decide about answers: RunApproval
	*dispatcher // questions to other agents: RunDispatch
	*takeovers  // operators who write as the agent: TakeOver, HandBack, WriteAnswer, EndTakeovers
	*tools      // calls of tools that programs outside execute: ToolRequests, ExpireTools
	*runner     // the run of a turn: Run, Limit, WatchBackEnds
}

// core is what all roles share.
type core struct {
	options Options
	broker  *broker
}

// limiters are those that hold now.
func (s *core) limiters() *Limiters {
	if s.options.Current == nil {
		return &s.options.Limiters
	}
	limiters, _ := s.options.Current()
	return limiters
}

// quotas are those that hold now.
func (s *core) quotas() *Quotas {
	if s.options.Current == nil {
		return &s.options.Quotas
	}
	_, quotas := s.options.Current()
	return quotas
}

// New makes a Service.
func New(options Options) *Service {
	if options.Limits == (normalized.Limits{}) {
		options.Limits = normalized.DefaultLimits()
	}
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	if options.Channels == nil {
		options.Channels = exchange.NewChannels()
	}
	if options.Deliveries == nil {
		options.Deliveries = noDeliveries{}
	}
	if options.Requested == nil {
		options.Requested = func(exchange.ToolRequest) {}
	}
	if options.Approvers == nil {
		options.Approvers = noApprovers{}
	}
	if options.Closed == nil {
		options.Closed = alwaysOpen{}
	}

	options.Limiters.setDefaults()
	if options.Moderator == nil {
		options.Moderator = anybody{}
	}
	if options.Demands == nil {
		options.Demands = noDemands{}
	}

	shared := &core{options: options, broker: newBroker()}
	replies := &replier{core: shared}
	demands := &settler{core: shared, replies: replies}
	cancels := &canceller{core: shared}
	watch := &watcher{core: shared}
	accept := &acceptor{core: shared, replies: replies, cancels: cancels}
	approvals := &approver{core: shared, replies: replies, demands: demands}
	breaker := newBreaker(shared)
	calls := &dispatcher{core: shared, accept: accept, watch: watch, replies: replies, approvals: approvals}
	return &Service{
		replier: replies, settler: demands, canceller: cancels, watcher: watch, acceptor: accept, approver: approvals, dispatcher: calls,
		takeovers: &takeovers{core: shared, cancels: cancels},
		tools:     &tools{core: shared},
		runner: &runner{
			core: shared, replies: replies, demands: demands, cancels: cancels, approvals: approvals, calls: calls,
			history: &historian{core: shared}, breaker: breaker, prober: newProber(breaker),
		},
	}
}

// CountFromZero shows the steps of all channels before there are any, so that an alert sees the first one. It is called once
// all channels are there.
func (s *Service) CountFromZero() {
	for _, channel := range s.replier.options.Channels.Names() {
		for state := range stepOf {
			turnSteps.WithLabelValues(channel, state)
		}
	}
}

// Partition is the queue partition of a thread: its turns run one at a time, in order of arrival.
func Partition(agent, threadID string) string { return JobKind + " " + agent + " " + threadID }

func newID() string { return uuid.Must(uuid.NewV7()).String() }
