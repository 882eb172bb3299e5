package pipeline_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"inbox/agents"
	"inbox/agents/agenttest"
	"inbox/agents/upstream"
	"inbox/engine/delivery"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

// backEnd is a program behind an agent that can be down.
type backEnd struct {
	mu       sync.Mutex
	failure  error // nil = it answers
	poison   string
	poisoned error // what it fails with at a poisoned message; nil = 500
	hangs    bool  // at a poisoned message
	silent   bool  // a probe gets no answer
	probes   int
	calls    []time.Time
	answered []string
	at       []time.Time
	ages     []time.Duration
	running  int
	most     int
}

func (b *backEnd) fail(with error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failure = with
}

func (b *backEnd) Handle(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
	return func(yield func(normalized.Delta, error) bool) {
		b.mu.Lock()
		b.calls = append(b.calls, time.Now())
		failure := b.failure
		if b.poison != "" && strings.Contains(turn.Message.ID, b.poison) {
			failure = cmp.Or[error](b.poisoned, fault.RetryIn(0, upstream.Unreachable, errors.New("500 for this message")))
		}
		if failure == nil {
			b.answered, b.at = append(b.answered, turn.Message.ID), append(b.at, time.Now())
			b.ages = append(b.ages, time.Since(turn.AcceptedAt))
		}
		hangs := b.hangs && b.poison != "" && strings.Contains(turn.Message.ID, b.poison)
		b.mu.Unlock()
		if hangs {
			<-ctx.Done()
			failure = context.Cause(ctx)
		}
		if failure != nil {
			yield(normalized.Delta{}, failure)
			return
		}
		response := normalized.Response{Status: normalized.StatusCompleted, Visibility: normalized.VisibilityDirect, Parts: []normalized.Part{normalized.Text("answer to " + turn.Message.ID)}}
		yield(normalized.Delta{Kind: normalized.DeltaResponse, Response: &response}, nil)
	}
}

func (b *backEnd) counts() (calls, answered int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.calls), len(b.answered)
}

// awaitedPeer is a channel whose askers wait where their route says so.
type awaitedPeer struct{ *peer }

func (awaitedPeer) Awaits(route json.RawMessage) bool { return string(route) == `{"awaited":true}` }

// fetchedPeer is a channel whose askers fetch the answer: nothing is delivered.
type fetchedPeer struct{ *peer }

func (fetchedPeer) Plan(context.Context, exchange.Reply) (exchange.Plan, error) {
	return exchange.Plan{}, nil
}

var errRefused = fault.RetryIn(0, upstream.Unreachable, fmt.Errorf("%w: connection refused", upstream.ErrDown))

// outageRig is an engine with three channels, which can be stopped as if by SIGKILL and started on the same database.
type outageRig struct {
	*engine

	t         *testing.T
	url, dir  string
	program   *backEnd
	settings  agents.Settings
	operator  string
	peers     map[string]*peer
	fetched   bool
	looked    bool // the program can be looked for without a message
	probed    bool // the program can be asked without a message whether it works
	networks  *moderation.Networks
	stopQueue func()
	claims    int
}

func startOutage(t *testing.T, url string, program *backEnd, settings agents.Settings, change func(*outageRig)) *outageRig {
	t.Helper()
	r := &outageRig{t: t, url: url, dir: memoryDirectory(t), program: program, settings: settings, peers: map[string]*peer{}}
	if change != nil {
		change(r)
	}
	for _, via := range []string{normalized.ViaEmail, normalized.ViaActivityPub, normalized.ViaA2A} {
		p := newPeer()
		p.arrivals = make(chan exchange.Delivery, 20_000)
		r.peers[via] = p
	}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *outageRig) start() {
	r.t.Helper()
	var e engine
	ready := make(chan struct{})
	var jobs *queue.Queue
	opened, err := store.Open(r.t.Context(), store.Options{URL: r.url, DataDir: r.dir, Notify: func(channel, payload string) {
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
		r.t.Fatal(err)
	}
	if err := opened.FreeLeases(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	blobs, err := blob.OpenFiles(r.t.TempDir(), blob.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	e.store = opened
	channels := exchange.NewChannels()
	for name, p := range r.peers {
		module := exchange.Module{Name: name, Channel: awaitedPeer{p}}
		if r.fetched && name == normalized.ViaA2A {
			module.Channel = fetchedPeer{p}
		}
		if err := channels.Add(module); err != nil {
			r.t.Fatal(err)
		}
	}
	var answering agents.Agent = r.program
	if r.looked {
		answering = reachable{r.program}
	}
	if r.probed {
		answering = probed{r.program}
	}
	list := agenttest.Registry(r.t, agents.Entry{
		Agent: answering, Settings: r.settings,
		Profile: exchange.AgentProfile{Name: "echo", Address: "@echo@inbox.test", DisplayName: "Echo"},
	})
	e.pipeline = pipeline.New(pipeline.Options{
		Store: opened.Pipeline(), Agents: list, Channels: channels, Blobs: blobs, Documents: opened.State(), OperatorHears: func() bool { return r.operator != "" },
		Limiters: pipeline.Limiters{Networks: r.networks},
	})
	e.delivery = delivery.New(delivery.Options{Store: opened.Deliverer(), Channels: channels})
	jobs = queue.New(opened.Queue(), queue.Options{})
	jobs.Handle(pipeline.JobKind, queue.KindOptions{Concurrency: 32}, func(ctx context.Context, job queue.Job) error {
		r.program.mu.Lock()
		r.claims++
		r.program.running++
		r.program.most = max(r.program.most, r.program.running)
		r.program.mu.Unlock()
		defer func() {
			r.program.mu.Lock()
			r.program.running--
			r.program.mu.Unlock()
		}()
		return e.pipeline.Run(ctx, job)
	})
	jobs.Handle(delivery.JobKind, queue.KindOptions{Concurrency: 32}, e.delivery.Run)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := jobs.Run(ctx); err != nil {
			r.t.Error(err)
		}
	})
	running.Go(func() {
		if err := e.pipeline.WatchBackEnds(ctx); !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	})
	close(ready)
	r.engine = &e
	r.stopQueue = func() {
		cancel()
		running.Wait()
		if err := opened.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

func (r *outageRig) stop() {
	if r.stopQueue != nil {
		r.stopQueue()
		r.stopQueue = nil
	}
}

func (r *outageRig) claimed() int {
	r.program.mu.Lock()
	defer r.program.mu.Unlock()
	return r.claims
}

// by makes a message on a channel.
func by(via, user, id, thread string) exchange.Inbound {
	in := from(user, id, thread)
	in.Message.ReceivedVia, in.Channel = via, via
	return in
}

// pass lets time go by.
func pass(d time.Duration) { <-time.After(d) }

func (r *outageRig) turn(id string) exchange.TurnRecord {
	r.t.Helper()
	turn, err := r.store.Turn(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	return turn
}

func (r *outageRig) audited(code string) []exchange.AuditRecord {
	r.t.Helper()
	records, err := r.store.AuditRecords(r.t.Context(), exchange.AuditFilter{Code: code, Limit: 500})
	if err != nil {
		r.t.Fatal(err)
	}
	return records
}

// counted returns how many events of a kind the operator is told of.
func (r *outageRig) counted(kind string) (sum int64) {
	r.t.Helper()
	tallies, err := r.store.NoticeTallies(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, one := range tallies {
		if one.Kind == kind {
			sum += one.Total
		}
	}
	return sum
}

// lasting returns what the operator is told of the back end.
func (r *outageRig) lasting() exchange.NoticeCondition {
	r.t.Helper()
	conditions, err := r.store.NoticeConditions(r.t.Context())
	if err != nil || len(conditions) != 1 || conditions[0].Kind != exchange.NoticeBackEnd {
		r.t.Fatalf("conditions %+v, %v", conditions, err)
	}
	return conditions[0]
}

// TestBackEndIsDownForAnHour: 1,000 messages wait on three channels, in threads of ten. The server is killed in the middle.
func TestBackEndIsDownForAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = agents.DefaultRetryRate
		messages, inThread := 1000, 10
		if testing.Short() { // under the race detector every message costs ten times as much
			messages, inThread = 200, 2
		}
		program := &backEnd{failure: errRefused}
		r := startOutage(t, "sqlite", program, agents.Settings{}, func(r *outageRig) { r.operator = "ops@inbox.test" })
		ways := []string{normalized.ViaEmail, normalized.ViaActivityPub, normalized.ViaA2A}
		began := time.Now()
		ids := make([]string, messages)
		for i := range messages {
			thread := i % (messages / inThread)
			ids[i] = r.receive(t, by(ways[thread%3], fmt.Sprintf("user%d", thread), fmt.Sprintf("m%04d", i), fmt.Sprintf("t%d", thread))).TurnID
			pass(time.Second)
		}
		pass(30*time.Minute - time.Since(began))
		r.stop() // nothing is told to the next process but what is in the database
		r.start()
		before := r.claimed()
		pass(time.Hour - time.Since(began))
		calls, answered := program.counts()
		if answered != 0 || calls > 130 {
			t.Errorf("%d calls and %d answers during an hour without a back end; want a probe a minute and the first failures", calls, answered)
		}
		if perSecond := float64(r.claimed()-before) / (30 * 60); perSecond > rate+1 {
			t.Errorf("%.1f runs a second were looked at while everybody waited", perSecond)
		}
		if program.most > 10 {
			t.Errorf("%d places were held at once", program.most)
		}

		program.fail(nil)
		back := time.Now()
		pass(20 * time.Minute)
		if _, answered := program.counts(); answered != messages {
			t.Fatalf("%d of %d messages were answered within 20 minutes", answered, messages)
		}
		for _, id := range ids {
			if turn := r.turn(id); turn.State != exchange.StateAnswered {
				t.Fatalf("turn %s is %s: %s", id, turn.State, turn.Reason)
			}
		}
		last := map[string]string{}
		for _, id := range program.answered { // m0042@peer.test is of thread 42 % 100
			thread := id[3:5]
			if last[thread] >= id {
				t.Fatalf("in thread %s, %s was answered after %s", thread, id, last[thread])
			}
			last[thread] = id
		}
		for i := range program.at { // in each window of ten seconds
			end := i
			for end < len(program.at) && program.at[end].Sub(program.at[i]) < 10*time.Second {
				end++
			}
			if got := float64(end - i); got > 10*rate+2 {
				t.Fatalf("%.0f messages within ten seconds, %s after the back end was back", got, program.at[i].Sub(back))
			}
		}
		if program.ages[0] < 30*time.Minute {
			t.Errorf("the agent was told an age of %s", program.ages[0])
		}
		if down, up := r.audited("backend:down"), r.audited("backend:back"); len(down) != 1 || len(up) != 1 {
			t.Errorf("it is on record %d times that it is down, %d times that it is back", len(down), len(up))
		}
		if c := r.lasting(); c.State != exchange.ConditionEnded || c.EndedAt.Sub(c.Since) < 55*time.Minute {
			t.Errorf("the operator is told of %+v", c)
		}
		delivered := 0
		for _, p := range r.peers {
			delivered += p.count()
		}
		if delivered != messages {
			t.Errorf("%d answers were delivered", delivered)
		}
		r.stop()
	})
}

// TestSomebodyWaitsForTheAnswer: they hear within a minute that there is none, while mail waits.
func TestSomebodyWaitsForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{failure: errRefused}
		r := startOutage(t, "sqlite", program, agents.Settings{Retry: agents.RetryPolicy{Schedule: []time.Duration{10 * time.Second, time.Minute, 30 * time.Minute, time.Hour}}}, nil)
		var waiting, mails []string
		for i := range 20 {
			in := by(normalized.ViaA2A, fmt.Sprintf("chat%d", i), fmt.Sprintf("c%d", i), fmt.Sprintf("c%d", i))
			in.Route = json.RawMessage(`{"awaited":true}`)
			waiting = append(waiting, r.receive(t, in).TurnID)
			mails = append(mails, r.receive(t, by(normalized.ViaEmail, fmt.Sprintf("ana%d", i), fmt.Sprintf("m%d", i), fmt.Sprintf("m%d", i))).TurnID)
		}
		pass(time.Minute)
		for _, id := range waiting {
			if turn := r.turn(id); turn.State != exchange.StateFailed || strings.Contains(normalized.PlainText(turn.Response.Parts), "operator") {
				t.Fatalf("who waits: %s, %+v", turn.State, turn.Response)
			}
		}
		for _, id := range mails {
			if turn := r.turn(id); turn.State != exchange.StateAccepted && turn.State != exchange.StateRunning {
				t.Fatalf("mail: %s", turn.State)
			}
		}
		pass(3 * time.Hour) // longer than the schedule
		for _, id := range mails {
			if turn := r.turn(id); turn.State != exchange.StateFailed {
				t.Fatalf("mail after its schedule: %s", turn.State)
			}
		}
		r.stop()
	})
}

// TestPoisonDoesNotStopOthers: a message that makes the back end fail is repeated for itself, whatever it costs others.
func TestPoisonDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{poison: "poison"}
		r := startOutage(t, "sqlite", program, agents.Settings{}, nil)
		for i := range 30 {
			r.receive(t, by(normalized.ViaEmail, "mallory", fmt.Sprintf("poison%d", i), fmt.Sprintf("p%d", i)))
		}
		pass(time.Second)
		began := time.Now()
		id := r.receive(t, by(normalized.ViaEmail, "ana", "honest", "h")).TurnID
		if turn := r.settled(t, id); turn.State != exchange.StateAnswered || time.Since(began) > time.Second {
			t.Errorf("an honest message is %s after %s", turn.State, time.Since(began))
		}
		if down := r.audited("backend:down"); len(down) != 0 {
			t.Errorf("the breaker opened: %+v", down)
		}
		r.stop()
	})
}

// TestStaleTurns: what is too old when the back end is back goes as the operator said.
func TestStaleTurns(t *testing.T) {
	for rule, want := range map[string]string{
		agents.StaleAnswer: exchange.StateAnswered, agents.StaleApologise: exchange.StateFailed,
		agents.StaleHold: exchange.StateHeld, agents.StaleDrop: exchange.StateRefused,
	} {
		t.Run(rule, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				program := &backEnd{failure: errRefused}
				r := startOutage(t, "sqlite", program, agents.Settings{Retry: agents.RetryPolicy{StaleAfter: 20 * time.Minute, Stale: rule}}, nil)
				var old []string
				for i := range 5 {
					old = append(old, r.receive(t, by(normalized.ViaEmail, fmt.Sprintf("ana%d", i), fmt.Sprintf("m%d", i), fmt.Sprintf("m%d", i))).TurnID)
				}
				pass(40 * time.Minute)
				program.fail(nil)
				young := r.receive(t, by(normalized.ViaEmail, "bob", "young", "young")).TurnID
				pass(30 * time.Minute)
				for _, id := range old {
					if turn := r.turn(id); turn.State != want {
						t.Errorf("an old one is %s (%s), want %s", turn.State, turn.Reason, want)
					}
				}
				if turn := r.turn(young); turn.State != exchange.StateAnswered {
					t.Errorf("a young one is %s", turn.State)
				}
				if words := r.peers[normalized.ViaEmail].count(); rule == agents.StaleDrop && words != 1 {
					t.Errorf("%d mails left", words)
				}
				if rule == agents.StaleHold {
					if err := r.pipeline.Release(t.Context(), old[0]); err != nil {
						t.Fatal(err)
					}
					if turn := r.settled(t, old[0]); turn.State != exchange.StateAnswered {
						t.Errorf("released: %s", turn.State)
					}
				}
				r.stop()
			})
		})
	}
}

// TestPermanentFailureEndsAtOnce: what another attempt cannot change is told at once, and the claim about the operator is true.
func TestPermanentFailureEndsAtOnce(t *testing.T) {
	for name, address := range map[string]string{"nobody is told": "", "the operator is told": "ops@inbox.test"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				program := &backEnd{failure: fault.GiveUp(upstream.Refused, errors.New("400"))}
				r := startOutage(t, "sqlite", program, agents.Settings{}, func(r *outageRig) { r.operator = address })
				for i := range 10 {
					turn := r.settled(t, r.receive(t, by(normalized.ViaEmail, "ana", fmt.Sprintf("m%d", i), fmt.Sprintf("m%d", i))).TurnID)
					said := normalized.PlainText(turn.Response.Parts)
					if turn.State != exchange.StateFailed || strings.Contains(said, "operator will be told") != (address != "") {
						t.Fatalf("%s: %q", turn.State, said)
					}
				}
				if got := r.counted(exchange.NoticeTurn); got != 10 {
					t.Errorf("the operator hears of %d failures, want 10", got)
				}
				r.stop()
			})
		})
	}
}

// TestOperatorRunsFailedTurnsAgain: on both databases, with the answer as a further reply; a second command does nothing.
func TestOperatorRunsFailedTurnsAgain(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		program := &backEnd{failure: fault.GiveUp(upstream.Refused, errors.New("400"))}
		r := startOutage(t, url, program, agents.Settings{}, func(r *outageRig) { r.fetched = true })
		since := time.Now().Add(-time.Minute)
		var mails []string
		for i := range 3 {
			mails = append(mails, r.receive(t, by(normalized.ViaEmail, "ana", fmt.Sprintf("m%d", i), "one thread")).TurnID)
		}
		task := by(normalized.ViaA2A, "peer", "task", "task")
		task.Reference = "task-1"
		ended := r.receive(t, task).TurnID
		for _, id := range append(mails, ended) {
			if turn := r.settled(t, id); turn.State != exchange.StateFailed {
				t.Fatalf("turn is %s", turn.State)
			}
		}
		mail := r.peers[normalized.ViaEmail]
		for range mails {
			mail.next(t)
		}
		program.fail(nil)

		if err := r.pipeline.Retry(t.Context(), ended, "operator"); !fault.Is(err, fault.Conflict) {
			t.Errorf("a task that ended runs again: %v", err)
		}
		if err := r.pipeline.Retry(t.Context(), "none", "operator"); !fault.Is(err, fault.NotFound) {
			t.Errorf("no such turn: %v", err)
		}
		filter := exchange.RetryFilter{Agent: "echo", Since: since}
		dry, err := r.pipeline.RetryFailed(t.Context(), filter, "operator", true)
		if err != nil || dry.Retried != 3 || dry.Skipped != 1 || len(dry.Turns) != 4 || r.turn(mails[0]).State != exchange.StateFailed {
			t.Fatalf("dry run: %+v, %v", dry, err)
		}
		last := slices.MaxFunc(dry.Turns, func(a, b exchange.RetriedTurn) int {
			return cmp.Or(a.FailedAt.Compare(b.FailedAt), cmp.Compare(a.ID, b.ID))
		})
		newest, err := r.pipeline.RetryFailed(t.Context(), exchange.RetryFilter{Agent: "echo", Since: since, Limit: 1}, "operator", true)
		if err != nil || len(newest.Turns) != 1 || newest.Turns[0].ID != last.ID || !newest.More {
			t.Fatalf("dry run of the newest: %+v, %v; want %s", newest, err, last.ID)
		}
		done, err := r.pipeline.RetryFailed(t.Context(), filter, "operator", false)
		if err != nil || done.Retried != 3 || done.Skipped != 1 || done.More {
			t.Fatalf("retry: %+v, %v", done, err)
		}
		if twice, err := r.pipeline.RetryFailed(t.Context(), filter, "operator", false); err != nil || twice.Retried != 0 {
			t.Fatalf("the same command again: %+v, %v", twice, err)
		}
		for i, id := range mails {
			if d := mail.next(t); d.Reply.TurnID != id || d.Reply.Response.Status != normalized.StatusCompleted {
				t.Errorf("delivery %d is of %s: %+v", i, d.Reply.TurnID, d.Reply.Response)
			}
			if turn := r.settled(t, id); turn.State != exchange.StateAnswered {
				t.Errorf("turn is %s", turn.State)
			}
			if err := r.pipeline.Retry(t.Context(), id, "operator"); !fault.Is(err, fault.Conflict) {
				t.Errorf("an answered message runs again: %v", err)
			}
		}
		if _, answered := program.counts(); answered != 3 {
			t.Errorf("%d answers", answered)
		}
		if future, err := r.pipeline.RetryFailed(t.Context(), exchange.RetryFilter{Since: time.Now().Add(time.Hour)}, "operator", true); err != nil || len(future.Turns) != 0 {
			t.Errorf("later ones: %+v, %v", future, err)
		}
	})
}

// TestOneNodeProbes: of all nodes one asks, an outage begins once, and one that begins again soon is the same.
func TestOneNodeProbes(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		r := startOutage(t, url, &backEnd{}, agents.Settings{}, nil)
		now := time.Now()
		open := func(probe, same time.Time) (began bool) {
			t.Helper()
			if err := r.store.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) (err error) {
				began, err = tx.OpenBackEnd(t.Context(), pipeline.BackEnd{Agent: "echo", Since: now, ProbeAt: probe, Reason: "refused\x00"}, same)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return began
		}
		if !open(now, now.Add(-time.Minute)) || open(now.Add(time.Second), now.Add(-time.Minute)) {
			t.Error("an outage begins once")
		}
		taken := make([]bool, 8)
		var nodes sync.WaitGroup
		for i := range taken {
			nodes.Go(func() {
				err := r.store.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) (err error) {
					taken[i], err = tx.TakeProbe(t.Context(), "echo", now.Add(2*time.Second), now.Add(time.Minute))
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		await.Done(t, nodes.Wait, "all nodes")
		probes := 0
		for _, one := range taken {
			if one {
				probes++
			}
		}
		if probes != 1 {
			t.Errorf("%d nodes ask at once", probes)
		}
		note := func(outage pipeline.BackEnd) pipeline.BackEnd {
			t.Helper()
			outage.Agent, outage.Since = "echo", now
			if err := r.store.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) error {
				_, err := tx.OpenBackEnd(t.Context(), outage, now.Add(-time.Minute))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			list, err := r.store.BackEnds(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return list[0]
		}
		held := now.Add(time.Minute).Truncate(time.Microsecond)
		if got := note(pipeline.BackEnd{ProbeAt: now.Add(5 * time.Second)}); !got.ProbeAt.Equal(held) {
			t.Errorf("a run that is no probe shortens that of another one to %s", got.ProbeAt)
		}
		if got := note(pipeline.BackEnd{ProbeAt: now.Add(5 * time.Second), Held: held}); got.ProbeAt.Sub(now) > 6*time.Second {
			t.Errorf("after a probe that failed the next one is at %s", got.ProbeAt.Sub(now))
		}
		if got := note(pipeline.BackEnd{ProbeAt: now.Add(6 * time.Second), Suspected: true}); got.Suspected {
			t.Error("an outage that no message can have caused becomes one that is suspected")
		}
		closeIt := func() (closed bool) {
			t.Helper()
			if err := r.store.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) (err error) {
				closed, err = tx.CloseBackEnd(t.Context(), "echo", now.Add(3*time.Second))
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return closed
		}
		if !closeIt() || closeIt() {
			t.Error("an outage ends once")
		}
		if open(now.Add(4*time.Second), now.Add(-time.Minute)) {
			t.Error("a back end that fails again soon has another outage")
		}
		if !closeIt() || !open(now.Add(time.Hour), now.Add(time.Minute)) {
			t.Error("an outage long after the last one is the same")
		}
		list, err := r.store.BackEnds(t.Context())
		if err != nil || len(list) != 1 || !list[0].ClosedAt.IsZero() || list[0].Opened != 1 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
