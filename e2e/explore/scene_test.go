package explore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // for the rows that are checked

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/engine/delivery"
	"inbox/engine/demand"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
	"inbox/normalized"
	"inbox/policypart"
)

// world is one database with two nodes on it.
type world struct {
	control  *sql.DB // beside the nodes
	director *director
	nodes    [2]*node
}

// node is what one process does with its rows. It has no queue: operations take the place of the workers.
type node struct {
	*store.Store
	pipeline *pipeline.Service
	delivery *delivery.Service
	demands  *demand.Service

	directory string // of a SQLite file
}

func newWorld(t *testing.T) *world {
	t.Helper()
	address, err := url.Parse(storetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	control, err := sql.Open("pgx", address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := control.Close(); err != nil {
			t.Error(err)
		}
	})

	w := &world{control: control, director: newDirector(control)}
	for i := range w.nodes {
		through := *address
		through.Host = newWire(t, address.Host, i, w.director).listener.Addr().String()
		w.nodes[i] = newNode(t, through.String(), outside{i, w.director})
	}
	return w
}

func newNode(t *testing.T, address string, beyond outside) *node {
	t.Helper()
	directory := storetest.Directory(t, func(directory string) (io.Closer, error) {
		return store.Open(t.Context(), store.Options{DataDir: directory})
	})
	// As found: nothing sweeps beside the operations.
	opened, err := store.Open(t.Context(), store.Options{URL: address, DataDir: directory, Connections: 4, AsFound: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})

	blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	channels := exchange.NewChannels(exchange.Module{Name: normalized.ViaEmail, Channel: beyond, Reviser: beyond})
	registry := agenttest.Registry(t, agents.Entry{
		Agent: agents.Func(beyond.agent), Profile: exchange.AgentProfile{Name: "echo", Address: recipient, DisplayName: "Echo"},
	}, agents.Entry{
		Agent: agents.Func(beyond.agent), Profile: exchange.AgentProfile{Name: "other", Address: otherAgent, DisplayName: "Other"},
	})

	n, quiet := &node{Store: opened, directory: directory}, slog.New(slog.DiscardHandler)
	n.delivery = delivery.New(delivery.Options{Store: opened.Deliverer(), Channels: channels, Logger: quiet})
	n.demands = demand.New(demand.Options{Store: opened, Secret: []byte(strings.Repeat("s", 32)), BaseURL: &url.URL{Scheme: "https", Host: "inbox.test"}, Logger: quiet})
	n.pipeline = pipeline.New(pipeline.Options{
		Store: opened.Pipeline(), Agents: registry, Channels: channels, Blobs: blobs, Documents: opened.State(), Deliveries: n.delivery, Demands: n.demands,
		Logger: quiet,
	})
	n.demands.Bind(n.pipeline)
	return n
}

// outside is what a node reaches: its agent, and the other server. A call of either is a step of the schedule.
type outside struct {
	actor    int
	director *director
}

// Words by which an agent demands, or fails.
const (
	sayDemand = "demand consent"
	sayFail   = "fail"
	sayAsk    = "ask the other agent"
)

const otherAgent = "@other@inbox.test"

func (o outside) agent(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	o.director.act(o.actor, "agent: "+turn.ID)
	switch turn.Message.Parts[0].Content {
	case sayDemand:
		return normalized.Whole(normalized.Response{Parts: []normalized.Part{
			{Kind: normalized.PartPolicy, Policy: &policypart.Part{Kind: policypart.ConsentRequired, Message: "May I?"}},
		}})
	case sayAsk:
		return normalized.Whole(normalized.Response{Dispatch: []normalized.Dispatch{{To: otherAgent, Parts: turn.Message.Parts}}})
	case sayFail:
		return func(yield func(normalized.Delta, error) bool) {
			yield(normalized.Delta{}, fault.GiveUp("no answer", nil))
		}
	}
	return normalized.Whole(normalized.Response{Parts: turn.Message.Parts})
}

func (o outside) Plan(_ context.Context, reply exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{
		NativeID: "reply-" + reply.ID + "@inbox.test", Destinations: []exchange.Destination{{Key: "peer.test", Address: reply.Message.Sender.Address.String()}},
	}, nil
}

func (o outside) Deliver(_ context.Context, d exchange.Delivery) (exchange.DeliveryReceipt, error) {
	o.director.act(o.actor, "deliver: "+d.Reply.Response.Parts[0].Content)
	return exchange.DeliveryReceipt{Detail: "250 kept"}, nil
}

func (outside) Revisable(exchange.Reply, string) error { return nil }
func (outside) PostsOf(exchange.Reply) int             { return 1 }

// scene is what one round of two operations is about.
type scene struct {
	*world
	*testing.T
	name string
	ids  []string
	job  queue.Job // that a worker has
	turn exchange.TurnRecord
	sent delivery.Record

	claims   [2]bool // of a document: whether the operation was told that it has the place
	failures [2]error
	steps    []step
	faults   []string
}

// wrongf notes what must not be.
func (s *scene) wrongf(format string, values ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, values...))
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

func (s *scene) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

const recipient = "@echo@inbox.test"

func (s *scene) message(number int, words string) exchange.Inbound {
	id := fmt.Sprintf("%s-%d@peer.test", s.name, number)
	return exchange.Inbound{
		Original: []byte("original of " + id), Channel: normalized.ViaEmail,
		Message: normalized.Message{
			ID: id, ThreadID: s.name, Recipient: recipient, ReceivedVia: normalized.ViaEmail,
			Sender: normalized.Sender{
				Address: identity.Stated("@ana@peer.test"), AuthMethod: normalized.AuthEmailDMARC, Verified: true,
				Identities: []identity.Evidence{identity.Transport(identity.TransportProof{
					Addressed: identity.AddressedRequest, Domain: "inbox.test", Subject: "mailto:ana@peer.test", Method: identity.MethodEmailDMARC,
					Assurance: identity.AssuranceDomain, Recipient: recipient, KeyID: "s1", IssuedAt: time.Now(),
				})},
			},
			Parts: []normalized.Part{normalized.Text(words)}, ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: "message/rfc822"},
			RecipientCapabilities: normalized.RecipientCapabilities{MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone}},
		},
	}
}

// take takes the job with the payload as a worker.
func (s *scene) take(kind, payload string) (taken queue.Job, found bool) {
	s.Helper()
	for _, job := range s.claim(kind) {
		if job.Payload == payload {
			return job, true
		}
	}
	return taken, false
}

// claim takes the jobs of a kind as a worker.
func (s *scene) claim(kind string) []queue.Job {
	s.Helper()
	jobs, err := queuetest.Claim(s.Context(), s.nodes[0].Queue(), "worker", kind, 100, time.Hour)
	s.ok(err)
	return jobs
}

// accepted makes a scene with a message that the first node accepted, and has a worker take its job.
func (s *scene) accepted(words string) {
	s.Helper()
	in := s.message(1, words)
	in.Reference = "task " + s.name
	receipt, err := s.nodes[0].pipeline.Receive(s.Context(), in)
	s.ok(err)
	s.job, _ = s.take(pipeline.JobKind, receipt.TurnID)
	s.turn, err = s.nodes[0].Turn(s.Context(), receipt.TurnID)
	s.ok(err)
}

// answered makes a scene with an answer whose delivery a worker of the first node takes.
func (s *scene) answered(words string) {
	s.Helper()
	s.accepted(words)
	s.ok(work(s.Context(), s.nodes[0], s.nodes[0].pipeline.Run, s.job))
	var err error
	s.turn, err = s.nodes[0].Turn(s.Context(), s.turn.ID)
	s.ok(err)
	if jobs := s.claim(delivery.JobKind); len(jobs) > 0 {
		s.job = jobs[0]
		s.sent, _, err = s.nodes[0].Deliverer().Delivery(s.Context(), s.job.Payload)
		s.ok(err)
	}
}

// work runs a handler as the queue does.
func work(ctx context.Context, n *node, handler queue.Handler, job queue.Job) error {
	err := handler(ctx, job)
	switch {
	case errors.Is(err, queue.ErrSettled):
		return nil
	case err == nil:
		return n.Queue().Settle(ctx, job.Lease, queue.Outcome{Kind: queue.Done})
	}
	return errors.Join(errPutBack, err, n.Queue().Settle(ctx, job.Lease, queue.Outcome{Kind: queue.Retry, At: time.Now().Add(time.Hour), Reason: err.Error()}))
}

// errPutBack is the result of a handler whose job is to run again.
var errPutBack = errors.New("the job runs again")

// at returns the number of the last step of an operation that begins with the words, -1 without one.
func (s *scene) at(actor int, what string) int {
	for i := range slices.Backward(s.steps) {
		if s.steps[i].actor == actor && strings.HasPrefix(s.steps[i].what, what) {
			return i
		}
	}
	return -1
}

// count returns the number that a query counts.
func (s *scene) count(query string, arguments ...any) (number int) {
	s.Helper()
	s.ok(s.control.QueryRowContext(s.Context(), query, arguments...).Scan(&number))
	return number
}

// errNotDone is the result of an operation that is not part of a round.
var errNotDone = errors.New("not done")

// refused reports whether an operation did not do its work, and said so: the other one was faster, or the job runs again.
func refused(err error) bool {
	return fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) || errors.Is(err, queue.ErrLeaseLost) || errors.Is(err, errPutBack)
}
