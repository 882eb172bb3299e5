package pipeline_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/engine/delivery"
	"inbox/engine/demand"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/internal/queue"
	"inbox/internal/telemetry"
	"inbox/normalized"
)

// engine is a running engine on a real database with one channel whose peer is the test.
type engine struct {
	pipeline *pipeline.Service
	delivery *delivery.Service
	store    *store.Store
	peer     *peer
	demands  *demand.Service // of composed engines

	directory string // of the database
}

// eachDatabase runs the test on SQLite and on PostgreSQL, beside other tests.
func eachDatabase(t *testing.T, test func(t *testing.T, url string)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, "sqlite") })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, storetest.Postgres(t)) })
}

// directory is where a database keeps its files.
func directory(t *testing.T) string {
	return storetest.Directory(t, func(directory string) (io.Closer, error) {
		return store.Open(t.Context(), store.Options{DataDir: directory})
	})
}

// memoryDirectory is directory for tests in virtual time.
func memoryDirectory(t *testing.T) string {
	return storetest.MemoryDirectory(t, func(directory string) (io.Closer, error) {
		return store.Open(t.Context(), store.Options{DataDir: directory})
	})
}

func start(t *testing.T, url string, agent agents.Func, settings agents.Settings) *engine {
	t.Helper()
	return startSeen(t, url, agent, settings, nil, nil)
}

// startSeen is start with a log of its own (nil = slog.Default) and a tracer (nil = none).
func startSeen(t *testing.T, url string, agent agents.Func, settings agents.Settings, log *slog.Logger, tracer *telemetry.Tracer) *engine {
	t.Helper()
	return startWith(t, url, agent, settings, func(options *pipeline.Options) { options.Logger, options.Tracer = log, tracer })
}

// startWith is start with changed options.
func startWith(t *testing.T, url string, agent agents.Func, settings agents.Settings, change func(*pipeline.Options)) *engine {
	t.Helper()
	return startLeased(t, url, 0, agent, settings, change)
}

// startLeased is startWith with leases of a length (0 = the queue's own). The engine hears of other nodes.
func startLeased(t *testing.T, url string, lease time.Duration, agent agents.Func, settings agents.Settings, change func(*pipeline.Options)) *engine {
	t.Helper()
	var e engine
	e.directory = directory(t)
	ready := make(chan struct{})
	var jobs *queue.Queue
	told := func(turns func(string)) func(channel, payload string) {
		return func(channel, payload string) {
			select {
			case <-ready:
			default:
				return
			}
			switch channel {
			case store.ChannelJob:
				jobs.Wake(payload)
			case store.ChannelTurn:
				turns(payload)
			}
		}
	}
	opened, err := store.Open(t.Context(), store.Options{
		URL: url, DataDir: e.directory, Notify: told(func(id string) { e.pipeline.Changed(id) }),
		Elsewhere: told(func(id string) { e.pipeline.ChangedElsewhere(id) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e.store, e.peer = opened, newPeer()
	channels := exchange.NewChannels(exchange.Module{
		Name: normalized.ViaEmail, Channel: e.peer, Reviser: changeable{},
		Policy: exchange.Policy{Schedule: []time.Duration{time.Millisecond, time.Millisecond}},
	})
	options := pipeline.Options{Store: opened.Pipeline(), Agents: registry(t, agent, settings), Channels: channels, Blobs: blobs, Documents: opened.State()}
	change(&options)
	e.delivery = delivery.New(delivery.Options{Store: opened.Deliverer(), Channels: channels, Logger: options.Logger, Tracer: options.Tracer})
	options.Deliveries = e.delivery
	e.pipeline = pipeline.New(options)
	jobs = queue.New(opened.Queue(), queue.Options{Poll: time.Second, Lease: lease})
	jobs.Handle(pipeline.JobKind, queue.KindOptions{}, e.pipeline.Run)
	jobs.Handle(delivery.JobKind, queue.KindOptions{}, e.delivery.Run)
	jobs.Handle(delivery.SpreadKind, queue.KindOptions{}, e.delivery.Spread)
	close(ready)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := jobs.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		if err := opened.Listen(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		await.Done(t, running.Wait, "the end of the queue's work")
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
	return &e
}

func registry(t *testing.T, agent agents.Func, settings agents.Settings) *agents.Registry {
	t.Helper()
	return agenttest.Registry(t, agents.Entry{
		Agent: agent, Settings: settings,
		Profile: exchange.AgentProfile{Name: "echo", Address: "@echo@inbox.test", DisplayName: "Echo"},
	})
}

// peer is the far end of the channel: it keeps what arrives and can refuse.
type peer struct {
	past     func(exchange.TurnRecord) []normalized.HistoricalMessage // nil = no message is late
	late     func(exchange.TurnRecord) bool                           // nil = every message is, if there is a past
	mu       sync.Mutex
	arrived  []exchange.Delivery
	refuse   func(exchange.Delivery) error
	address  string            // of every destination; empty = the sender's
	refused  map[string]string // of every receipt
	done     []string          // of every receipt that comes with an error
	arrivals chan exchange.Delivery
}

func newPeer() *peer { return &peer{arrivals: make(chan exchange.Delivery, 1000)} }

func (p *peer) Plan(_ context.Context, reply exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{
		NativeID:     "reply-" + reply.ID + "@inbox.test",
		Destinations: []exchange.Destination{{Key: "peer.test", Address: cmp.Or(p.address, reply.Message.Sender.Address.String())}},
	}, nil
}

func (p *peer) Late(turn exchange.TurnRecord) bool {
	return p.past != nil && (p.late == nil || p.late(turn))
}

func (p *peer) Ancestors(_ context.Context, turn exchange.TurnRecord) ([]normalized.HistoricalMessage, error) {
	return p.past(turn), nil
}

func (p *peer) Deliver(_ context.Context, d exchange.Delivery) (exchange.DeliveryReceipt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		if err := p.refuse(d); err != nil {
			return exchange.DeliveryReceipt{Done: p.done}, err
		}
	}
	p.arrived = append(p.arrived, d)
	p.arrivals <- d
	return exchange.DeliveryReceipt{Detail: "250 kept", Refused: p.refused}, nil
}

// set changes what the peer refuses; nil = nothing.
func (p *peer) set(refuse func(exchange.Delivery) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

func (p *peer) next(t *testing.T) exchange.Delivery {
	t.Helper()
	return await.Receive(t, p.arrivals, "a delivery")
}

// hold lets an agent or a caller work until the test lets it go on, at the latest until its context ends.
func hold(ctx context.Context, gate <-chan struct{}) {
	select {
	case <-gate:
	case <-ctx.Done():
	}
}

func (p *peer) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.arrived)
}

// message is a verified message of ana; its id and thread are n.
func message(n string) exchange.Inbound { return from("ana", n, n) }

func from(user, id, thread string) exchange.Inbound {
	const recipient = "@echo@inbox.test"
	return exchange.Inbound{
		Original: []byte("original of " + user + id), Channel: normalized.ViaEmail,
		Message: normalized.Message{
			ID: id + "@peer.test", ThreadID: thread, Recipient: recipient, ReceivedVia: normalized.ViaEmail,
			Sender: normalized.Sender{
				Address: identity.Stated("@" + user + "@peer.test"), AuthMethod: normalized.AuthEmailDMARC, Verified: true,
				Identities: []identity.Evidence{identity.Transport(identity.TransportProof{
					Addressed: identity.AddressedRequest,
					Domain:    "inbox.test", Subject: "mailto:" + user + "@peer.test", Method: identity.MethodEmailDMARC,
					Assurance: identity.AssuranceDomain, Recipient: recipient, KeyID: "s1", IssuedAt: time.Now(),
				})},
			},
			Parts:      []normalized.Part{normalized.Text("hello " + id)},
			ReceivedAt: identity.Now(), Raw: normalized.Raw{MediaType: "message/rfc822"},
			RecipientCapabilities: normalized.RecipientCapabilities{
				MentionRelay: normalized.MentionRelay{Kind: normalized.RelayRecipientField, Fields: []string{"to", "cc"}},
			},
		},
	}
}

func (e *engine) receive(t *testing.T, in exchange.Inbound) exchange.Receipt {
	t.Helper()
	receipt, err := e.pipeline.Receive(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return receipt
}

// settled waits for the end of the turn.
func (e *engine) settled(t *testing.T, turnID string) exchange.TurnRecord {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	turn, err := e.pipeline.Wait(ctx, turnID)
	if err != nil {
		t.Fatal(fmt.Errorf("wait for turn %s: %w", turnID, err))
	}
	return turn
}

// revive makes an ended turn look as if that many runs of it had died with the process, and gives it back to the queue.
func (e *engine) revive(t *testing.T, turnID string, runs int) error {
	t.Helper()
	return e.store.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) error {
		if _, err := tx.MoveTurn(t.Context(), pipeline.Move{
			ID: turnID, From: []string{exchange.StateSilent}, To: exchange.StateRunning, Attempt: runs, At: time.Now(),
		}); err != nil {
			return err
		}
		return tx.Enqueue(t.Context(), queue.NewJob{ID: uuid.Must(uuid.NewV7()).String(), Kind: pipeline.JobKind, Payload: turnID})
	})
}
