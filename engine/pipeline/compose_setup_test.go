package pipeline_test

import (
	"bytes"
	"context"
	"iter"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/engine/delivery"
	"inbox/engine/demand"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/internal/queue"
	"inbox/normalized"
)

// script is an agent that notes what it gets and answers by a function.
type script struct {
	name     string
	settings agents.Settings
	answer   func(turn agents.Turn) normalized.Response

	mu   sync.Mutex
	seen []agents.Turn
}

func (s *script) Handle(_ context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	s.mu.Lock()
	s.seen = append(s.seen, turn)
	s.mu.Unlock()
	return normalized.Whole(s.answer(turn))
}

func (s *script) turns() []agents.Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

func (s *script) entry() agents.Entry {
	return agents.Entry{Agent: s, Settings: s.settings, Profile: exchange.AgentProfile{
		Name: s.name, Address: "@" + s.name + "@inbox.test", DisplayName: "Agent " + s.name,
	}}
}

func texts(words ...string) normalized.Response {
	var r normalized.Response
	for _, text := range words {
		r.Parts = append(r.Parts, normalized.Text(text))
	}
	return r
}

func says(words ...string) func(agents.Turn) normalized.Response {
	return func(agents.Turn) normalized.Response { return texts(words...) }
}

func asks(words string, to ...string) normalized.Response {
	var r normalized.Response
	for _, address := range to {
		r.Dispatch = append(r.Dispatch, normalized.Dispatch{To: address, Parts: []normalized.Part{normalized.Text(words)}})
	}
	return r
}

// relays asks the agents at first and then repeats what they said.
func relays(words string, to ...string) func(agents.Turn) normalized.Response {
	return func(turn agents.Turn) normalized.Response {
		if turn.Message.ReceivedTrace == nil {
			return asks(words, to...)
		}
		return normalized.Response{Parts: append([]normalized.Part{normalized.Text("They said:")}, turn.Message.ReceivedTrace.Parts...)}
	}
}

// callFunc is a Caller that is one function.
type callFunc func(ctx context.Context, d exchange.Dispatch) (normalized.Response, error)

func (f callFunc) Call(ctx context.Context, d exchange.Dispatch) (normalized.Response, error) {
	return f(ctx, d)
}

// composed is an engine with several agents; the messages of the tests go to the one called echo.
func composed(t *testing.T, databaseURL string, change func(*pipeline.Options), scripts ...*script) *engine {
	t.Helper()
	return composedBy(t, 4, databaseURL, change, scripts...)
}

// composedBy is composed with that many workers for calls.
func composedBy(t *testing.T, workers int, databaseURL string, change func(*pipeline.Options), scripts ...*script) *engine {
	t.Helper()
	var e engine
	var jobs *queue.Queue
	ready := make(chan struct{})
	opened, err := store.Open(t.Context(), store.Options{URL: databaseURL, DataDir: directory(t), Notify: func(channel, payload string) {
		select {
		case <-ready:
		default:
			return
		}
		if channel == store.ChannelJob {
			jobs.Wake(payload)
			return
		}
		e.pipeline.Changed(payload)
	}})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var entries []agents.Entry
	for _, s := range scripts {
		entries = append(entries, s.entry())
	}
	registry := agenttest.Registry(t, entries...)
	e.store, e.peer = opened, newPeer()
	channels := exchange.NewChannels(exchange.Module{Name: normalized.ViaEmail, Channel: e.peer})
	demands := demand.New(demand.Options{
		Store: opened, BaseURL: &url.URL{Scheme: "https", Host: "inbox.test"}, Secret: bytes.Repeat([]byte("s"), 32),
	})
	options := pipeline.Options{Store: opened.Pipeline(), Agents: registry, Channels: channels, Blobs: blobs, Documents: opened.State(), Demands: demands}
	if change != nil {
		change(&options)
	}
	e.pipeline, e.demands = pipeline.New(options), demands
	demands.Bind(e.pipeline)
	e.delivery = delivery.New(delivery.Options{Store: opened.Deliverer(), Channels: channels})
	jobs = queue.New(opened.Queue(), queue.Options{Poll: 100 * time.Millisecond})
	jobs.Handle(pipeline.JobKind, queue.KindOptions{Concurrency: 2}, e.pipeline.Run)
	jobs.Handle(pipeline.DispatchKind, queue.KindOptions{Concurrency: workers, Schedule: []time.Duration{time.Millisecond}}, e.pipeline.RunDispatch)
	jobs.Handle(delivery.JobKind, queue.KindOptions{}, e.delivery.Run)
	jobs.Handle(pipeline.ApprovalKind, queue.KindOptions{}, e.pipeline.RunApproval)
	close(ready)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := jobs.Run(ctx); err != nil {
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

// audits returns the records with the code, oldest first.
func (e *engine) audits(t *testing.T, code string) []exchange.AuditRecord {
	t.Helper()
	records, err := e.store.AuditRecords(t.Context(), exchange.AuditFilter{Code: code, Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(records)
	return records
}

func (e *engine) answered(t *testing.T, in exchange.Inbound) exchange.TurnRecord {
	t.Helper()
	turn := e.settled(t, e.receive(t, in).TurnID)
	if turn.Response == nil {
		t.Fatalf("turn is %s (%s) without a response", turn.State, turn.Reason)
	}
	return turn
}

// plain is the text of a response, part by part.
func plain(r *normalized.Response) (words []string) {
	for _, p := range r.Parts {
		words = append(words, p.Content)
	}
	return words
}

// fromAgent is a message of an agent elsewhere that carries its chain.
func fromAgent(id, thread string, hop, maxHops int) exchange.Inbound {
	in := from("bot", id, thread)
	in.FromAgent = true
	in.Message.ReceivedVia = normalized.ViaEmail
	in.Message.RecipientCapabilities = normalized.RecipientCapabilities{
		MentionRelay: normalized.MentionRelay{Kind: normalized.RelayNone},
		AgentChain:   &normalized.AgentChain{Hop: hop, MaxHops: maxHops, IsFinal: hop == maxHops},
	}
	return in
}

func localEvidence(sender normalized.Sender) *identity.Evidence {
	if len(sender.Identities) != 1 || sender.Identities[0].Method != identity.MethodLocalAgent {
		return nil
	}
	return &sender.Identities[0]
}

// idle waits until nothing is left to do.
func (e *engine) idle(t *testing.T) {
	t.Helper()
	await.Until(t, "no job is left", func() bool {
		jobs, err := e.store.Jobs(t.Context(), store.JobFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return len(jobs) == 0
	})
}
