package activitypub

import (
	"context"
	"io"
	"iter"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/adapters/activitypub/document"
	"inbox/agents"
	"inbox/agents/agenttest"
	sending "inbox/engine/delivery"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// house is the adapter on the real engine: database, queue, pipeline and delivery. Only the other server is a rig's.
type house struct {
	*rig
	store    *store.Store
	pipeline *pipeline.Service
	delivery *sending.Service
	lists    *moderation.Lists

	mu     sync.Mutex
	asked  []string      // texts with which the agent was asked
	begun  chan string   // a text, when a run with it begins
	finish chan struct{} // nil = the agent answers at once; otherwise when it is closed, or its run is stopped
}

// laterQueue is the root package's outbox: activities that are not replies, as jobs.
type laterQueue struct{ store *store.Store }

func (l laterQueue) SendLater(ctx context.Context, partition, payload string) error {
	return l.store.Pipeline().InTx(ctx, func(tx pipeline.Tx) error {
		return tx.Enqueue(ctx, queue.NewJob{ID: uuid.Must(uuid.NewV7()).String(), Kind: "activity", Partition: partition, Payload: payload})
	})
}

func newHouse(t *testing.T, change ...func(*house, *Options)) *house {
	t.Helper()
	h := &house{begun: make(chan string, 100)}
	ready := make(chan struct{})
	var jobs *queue.Queue
	directory := storetest.Directory(t, func(directory string) (io.Closer, error) {
		return store.Open(t.Context(), store.Options{DataDir: directory})
	})
	opened, err := store.Open(t.Context(), store.Options{URL: "sqlite", DataDir: directory, Notify: func(channel, payload string) {
		select {
		case <-ready:
		default:
			return
		}
		if channel == store.ChannelJob {
			jobs.Wake(payload)
			return
		}
		h.pipeline.Changed(payload)
	}})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h.store = opened
	channels := exchange.NewChannels()
	h.rig = newRig(t, func(options *Options) {
		var entries []agents.Entry
		for _, name := range []string{"echo", "other"} {
			entries = append(entries, agents.Entry{
				Agent: agents.Func(h.answer), Settings: agents.Settings{},
				Profile: exchange.AgentProfile{Name: name, Address: "@" + name + "@" + options.Domain, DisplayName: name},
			})
		}
		registry := agenttest.Registry(t, entries...)
		h.lists = moderation.New(moderation.Options{Source: opened, Domain: options.Domain})
		limits := normalized.DefaultLimits()
		limits.AllowHTTP = true
		h.pipeline = pipeline.New(pipeline.Options{
			Limits: limits, Store: opened.Pipeline(), Agents: registry, Channels: channels, Blobs: blobs, Documents: opened.State(), Moderator: h.lists,
			Limiters: pipeline.Limiters{Stop: moderation.NewWords(moderation.DefaultStopWords)},
		})
		h.delivery = sending.New(sending.Options{Store: opened.Deliverer(), Channels: channels})
		options.Receiver, options.Amender, options.Timeline, options.Records = h.pipeline, h.pipeline, h.pipeline, opened
		options.Directory, options.Threads, options.Replies, options.State = registry, opened, opened, opened.State()
		options.Outbox, options.Blobs, options.Recent = laterQueue{opened}, blobs, opened
		for _, apply := range change {
			apply(h, options)
		}
	})
	if err := channels.Add(h.adapter.Module()); err != nil {
		t.Fatal(err)
	}
	jobs = queue.New(opened.Queue(), queue.Options{Poll: time.Second})
	jobs.Handle(pipeline.JobKind, queue.KindOptions{}, h.pipeline.Run)
	jobs.Handle(sending.JobKind, queue.KindOptions{}, h.delivery.Run)
	jobs.Handle(sending.BulkKind, queue.KindOptions{}, h.delivery.Run)
	jobs.Handle(sending.SpreadKind, queue.KindOptions{}, h.delivery.Spread)
	jobs.Handle("activity", queue.KindOptions{}, h.later)
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
	return h
}

// later is the root package's job of an activity.
func (h *house) later(ctx context.Context, job queue.Job) error {
	_, err := h.adapter.Perform(ctx, job.Payload, job.Attempt)
	if f := fault.Of(err); err != nil && f.Permanent {
		return queue.GiveUp(f.Public, err)
	}
	return err
}

// answer is the agent: it repeats what it was asked, at once or when the test lets it.
func (h *house) answer(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	text := turn.Message.Parts[0].Content
	h.mu.Lock()
	h.asked = append(h.asked, text)
	finish := h.finish
	h.mu.Unlock()
	h.begun <- text
	return func(yield func(normalized.Delta, error) bool) {
		if finish != nil {
			select {
			case <-finish:
			case <-ctx.Done():
				yield(normalized.Delta{}, ctx.Err())
				return
			}
		}
		for delta, err := range normalized.Whole(normalized.Response{Parts: []normalized.Part{normalized.Text("you said: " + text)}}) {
			if !yield(delta, err) {
				return
			}
		}
	}
}

func (h *house) questions() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.asked)
}

// hold lets runs from now on wait until the result is called.
func (h *house) hold() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	finish := make(chan struct{})
	h.finish = finish
	return sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.finish = nil
		close(finish)
	})
}

// turns are all turns, newest first.
func (h *house) turns() []exchange.TurnRecord {
	h.t.Helper()
	turns, err := h.store.Turns(h.t.Context(), exchange.TurnFilter{Limit: 100})
	if err != nil {
		h.t.Fatal(err)
	}
	return turns
}

// settled waits for the end of the only turn.
func (h *house) settled() exchange.TurnRecord {
	h.t.Helper()
	turns := h.turns()
	if len(turns) != 1 {
		h.t.Fatalf("%d turns, want 1", len(turns))
	}
	ctx, cancel := context.WithTimeout(h.t.Context(), 30*time.Second)
	defer cancel()
	turn, err := h.pipeline.Wait(ctx, turns[0].ID)
	if err != nil {
		h.t.Fatal(err)
	}
	return turn
}

// run waits for the beginning of a run with the text.
func (h *house) run(text string) {
	h.t.Helper()
	for {
		select {
		case begun := <-h.begun:
			if begun == text {
				return
			}
		case <-time.After(30 * time.Second):
			h.t.Fatalf("no run with %q; the agent was asked %q", text, h.questions())
		}
	}
}

// reply waits for the answer that reaches alice's server.
func (h *house) reply() document.Object {
	h.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		for _, arrived := range h.remote.arrivals() {
			if activity, err := document.Parse(arrived.body); err == nil && document.Text(activity, "type") == "Create" {
				return activity
			}
		}
		select {
		case <-h.remote.posted:
		case <-deadline:
			h.t.Fatal("no answer within 30 s")
		}
	}
}

// TestOneNoteOneMessage: what another server forwarded and its own server confirmed is the message that the author delivers
// later, and the other way round.
func TestOneNoteOneMessage(t *testing.T) {
	for _, first := range []string{"forwarded", "delivered"} {
		t.Run("first "+first, func(t *testing.T) {
			h := newHouse(t)
			relay := newRemoteServer(t)
			note := h.mentionNote("1", "hello")
			h.remote.serve("/notes/1", note["object"])
			forward := func() { h.want(h.byMallory(relay, note), http.StatusAccepted, "") }
			deliver := func() { h.want(h.deliver(note).sign(), http.StatusAccepted, "") }
			ways := []func(){forward, deliver}
			if first == "delivered" {
				slices.Reverse(ways)
			}
			for range 2 { // each copy may come twice besides
				for _, way := range ways {
					way()
				}
			}
			if turn := h.settled(); turn.State != exchange.StateAnswered {
				t.Errorf("state %s (%s)", turn.State, turn.Reason)
			}
			h.reply()
			h.accept(h.update("1", "hello there", "2026-11-21T13:00:00Z"))
			if turn := h.settled(); turn.Message.Parts[0].Content != "hello there" {
				t.Errorf("the edit did not reach the message: %+v", turn.Message.Parts)
			}
			h.accept(h.tombstone("1"))
			if turn := h.settled(); len(turn.Message.Parts) > 0 && turn.Message.Parts[0].Content != "" {
				t.Errorf("the deletion did not reach the message: %+v", turn.Message.Parts)
			}
			if asked := h.questions(); len(asked) != 1 {
				t.Errorf("the agent was asked %q", asked)
			}
		})
	}
}

// TestBlockStopsTheAgent: who blocked an agent is neither answered nor costs a run, until the block is lifted.
func TestBlockStopsTheAgent(t *testing.T) {
	h := newHouse(t)
	release := h.hold()
	defer release()
	h.accept(h.mentionNote("1", "before"))
	h.run("before")
	block := h.simple("Block", h.base+"/agents/echo")
	h.accept(block)
	if turn := h.settled(); turn.State != exchange.StateCancelled || turn.Reason != reasonBlocked {
		t.Errorf("the running turn is %s (%s)", turn.State, turn.Reason)
	}
	release()
	h.accept(h.mentionNote("2", "while blocked"))
	if turn := h.turns()[0]; turn.State != exchange.StateSilent || turn.Reason != "the sender has blocked this agent" {
		t.Errorf("the question is %s (%s)", turn.State, turn.Reason)
	}
	undo := h.simple("Undo", block)
	undo["id"] = block["id"].(string) + "/undo"
	h.accept(undo)
	h.accept(h.mentionNote("3", "afterwards"))
	h.run("afterwards")
	answer := h.reply()
	if note := document.Embedded(answer["object"]); document.Text(note, "inReplyTo") != h.remote.base+"/notes/3" {
		t.Errorf("the first answer is to %s", document.Text(note, "inReplyTo"))
	}
	if asked := h.questions(); !slices.Equal(asked, []string{"before", "afterwards"}) {
		t.Errorf("the agent was asked %q", asked)
	}
}

// TestEditsAndDeletionsReachTheRun: the engine and the adapter agree on which message a note is, whatever comes first.
func TestEditsAndDeletionsReachTheRun(t *testing.T) {
	late := "2026-11-21T13:00:00Z"
	t.Run("edit during the run", func(t *testing.T) {
		h := newHouse(t)
		release := h.hold()
		defer release()
		h.accept(h.mentionNote("1", "old words"))
		h.run("old words")
		h.accept(h.update("1", "new words", late))
		h.run("new words")
		release()
		if turn := h.settled(); turn.State != exchange.StateAnswered || turn.Response.Parts[0].Content != "you said: new words" {
			t.Errorf("%s %+v", turn.State, turn.Response)
		}
	})
	t.Run("edit before its note", func(t *testing.T) {
		h := newHouse(t)
		h.accept(h.update("1", "new words", late))
		h.accept(h.mentionNote("1", "old words"))
		h.run("new words")
		h.settled()
	})
	t.Run("deletion during the run", func(t *testing.T) {
		h := newHouse(t)
		release := h.hold()
		defer release()
		h.accept(h.mentionNote("1", "hello"))
		h.run("hello")
		h.accept(h.tombstone("1"))
		if turn := h.settled(); turn.State != exchange.StateCancelled || len(turn.Message.Parts) > 0 && turn.Message.Parts[0].Content != "" {
			t.Errorf("%s, parts %+v", turn.State, turn.Message.Parts)
		}
	})
	t.Run("deletion before its note", func(t *testing.T) {
		h := newHouse(t)
		h.accept(h.tombstone("1"))
		h.accept(h.mentionNote("1", "hello"))
		if n := len(h.turns()); n != 0 {
			t.Errorf("%d turns", n)
		}
	})
	t.Run("deletion after the answer", func(t *testing.T) {
		h := newHouse(t)
		h.accept(h.mentionNote("1", "hello"))
		h.reply()
		h.accept(h.tombstone("1"))
		turn := h.settled()
		if turn.State != exchange.StateAnswered || turn.Response == nil || len(turn.Message.Parts) > 0 && turn.Message.Parts[0].Content != "" {
			t.Errorf("%s, parts %+v, answer %+v", turn.State, turn.Message.Parts, turn.Response)
		}
		h.accept(h.mentionNote("1", "hello"))
		if n := len(h.turns()); n != 1 {
			t.Errorf("%d turns", n)
		}
	})
	t.Run("deletion of the account", func(t *testing.T) {
		h := newHouse(t)
		release := h.hold()
		defer release()
		h.accept(h.mentionNote("1", "hello"))
		h.run("hello")
		h.accept(h.simple("Delete", h.remote.actor("alice")))
		if turn := h.settled(); turn.State != exchange.StateCancelled || turn.Reason != reasonAccountDeleted {
			t.Errorf("%s (%s)", turn.State, turn.Reason)
		}
	})
}
