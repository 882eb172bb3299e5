package notice_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"inbox/engine/delivery"
	"inbox/engine/notice"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/queue"
	"inbox/internal/webhooksignature"
	"inbox/normalized"
	"inbox/policypart"
)

const secret = "a secret of at least sixteen bytes"

// rig is two nodes on one database whose clock stands still until the test moves it, and a webhook that both call.
type rig struct {
	*testing.T
	mu     sync.Mutex
	now    time.Time       // zero = that of the machine
	set    func(time.Time) // the clock of the database
	status int             // of the webhook's answers
	sent   []sent
	bad    map[string]bool // what the nodes see, by kind and subject

	settings notice.Settings
	stores   []*store.Store
	nodes    []*notice.Service
}

// sent is a request of a webhook.
type sent struct {
	id   string
	body []byte
	told told
}

// told is its content.
type told struct {
	Notice, Phase, Kind, Subject, Title, Text string
	Count                                     int64
	Counts                                    []exchange.NoticeTally
}

func eachDatabase(t *testing.T, test func(r *rig)) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"sqlite": func(*testing.T) string { return "sqlite" }, "postgres": func(t *testing.T) string { return storetest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(start(t, url(t)))
		})
	}
}

func start(t *testing.T, url string) *rig {
	r := &rig{T: t, now: time.Date(2026, 11, 24, 8, 0, 10, 0, time.UTC), status: http.StatusNoContent, bad: map[string]bool{}}
	r.settings = notice.Settings{
		OutageAfter: 2 * time.Minute,
		Addresses:   []notice.Address{{Label: "https://hooks.example/#1", URL: "https://hooks.example/secret"}}, Hour: 8, Zone: time.UTC, Secret: secret,
	}
	directory := storetest.Directory(t, func(directory string) (io.Closer, error) {
		return store.Open(t.Context(), store.Options{DataDir: directory})
	})
	nodes := 1
	r.set = func(time.Time) {} // of SQLite it is that of the process
	if url != "sqlite" {
		nodes = 2
		url, r.set = storetest.Clock(t, url)
	}
	r.set(r.now)
	for range nodes {
		opened, err := store.Open(t.Context(), store.Options{URL: url, DataDir: directory, Now: r.clock})
		if err != nil {
			t.Fatal(err)
		}
		r.stores = append(r.stores, opened)
		t.Cleanup(func() {
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 2 { // also two on one SQLite database: a round may meet another one
		opened := r.stores[i%len(r.stores)]
		node := notice.New(notice.Options{
			Store: opened.Notifier(), Domain: "inbox.test", Current: func() notice.Settings { return r.settings }, Now: r.clock,
			Observe: r.observe, Client: func(string) notice.Client { return r }, Logger: slog.New(slog.DiscardHandler),
		})
		jobs := queue.New(opened.Queue(), queue.Options{Poll: 50 * time.Millisecond})
		jobs.Handle(notice.JobKind, queue.KindOptions{Concurrency: 2}, node.Send)
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() {
			if err := jobs.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { stop(); await.Done(t, running.Wait, "the end of the queue's work") })
		r.nodes = append(r.nodes, node)
	}
	return r
}

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now.IsZero() {
		return time.Now()
	}
	return r.now
}

func (r *rig) observe(context.Context) (seen []notice.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, kind := range []string{exchange.NoticeDisk, exchange.NoticeCertificate, exchange.NoticeProbe} {
		seen = append(seen, notice.Observation{Kind: kind, Subject: "it", Bad: r.bad[kind], Reason: "it is bad"})
	}
	return seen
}

// Do is the webhook.
func (r *rig) Do(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	if !webhooksignature.Verify(secret, body, request.Header.Get(webhooksignature.Header), webhooksignature.Form{}) {
		r.Errorf("the signature %q is not that of the body", request.Header.Get(webhooksignature.Header))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	one := sent{id: request.Header.Get("Idempotency-Key"), body: body}
	if err := json.Unmarshal(body, &one.told); err != nil || one.told.Notice != one.id {
		r.Errorf("body %s of %s: %v", body, one.id, err)
	}
	r.sent = append(r.sent, one)
	return &http.Response{StatusCode: r.status, Body: http.NoBody, Header: http.Header{}}, nil
}

// received are the notices that the webhook got, each once, in the order of their making.
func (r *rig) received() (list []told) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]string{}
	for _, one := range r.sent {
		if before, twice := seen[one.id]; twice && before != string(one.body) {
			r.Errorf("two bodies of one notice:\n%s\n%s", before, one.body)
		} else if !twice {
			seen[one.id] = string(one.body)
			list = append(list, one.told)
		}
	}
	slices.SortFunc(list, func(a, b told) int { return strings.Compare(a.Notice, b.Notice) })
	return list
}

// pass lets time go by, with a round of both nodes at once after each step.
func (r *rig) pass(d, step time.Duration) {
	r.Helper()
	for range d / step {
		r.mu.Lock()
		r.now = r.now.Add(step)
		r.set(r.now)
		r.mu.Unlock()
		r.round()
	}
}

func (r *rig) round() {
	r.Helper()
	var rounds sync.WaitGroup
	for _, node := range r.nodes {
		rounds.Go(func() {
			if err := node.Round(r.Context()); err != nil {
				r.Error(err)
			}
		})
	}
	rounds.Wait()
}

func (r *rig) tx(work func(tx *store.Tx) error) {
	r.Helper()
	if err := r.stores[0].InTx(r.Context(), work); err != nil {
		r.Fatal(err)
	}
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// turns stores turns of an agent that come to a state.
func (r *rig) turns(agent, state string, count int) (ids []string) {
	r.Helper()
	r.tx(func(tx *store.Tx) error {
		ids = nil
		for range count {
			id := newID()
			turn := exchange.TurnRecord{
				ID: id, Agent: agent, Principal: "p", ThreadID: id, State: exchange.StateAccepted, AcceptedAt: r.clock(), Channel: normalized.ViaEmail,
				Message: normalized.Message{
					ID: id, ThreadID: id, Recipient: "@" + agent + "@inbox.test", ReceivedVia: normalized.ViaEmail, ReceivedAt: identity.At(r.clock()),
					Parts: []normalized.Part{normalized.Text("hello")},
				},
			}
			if state == exchange.StateHeld {
				turn.State, turn.Reason = state, "nothing proves the sender"
			}
			if _, _, err := tx.InsertTurn(r.Context(), turn, pipeline.Original{}); err != nil {
				return err
			}
			if turn.State != state {
				move := pipeline.Move{ID: id, From: []string{exchange.StateAccepted}, To: state, Reason: "the model is down\r\nsee https://evil.example", At: r.clock()}
				if moved, err := tx.MoveTurn(r.Context(), move); err != nil || !moved {
					return fmt.Errorf("moved %t: %w", moved, err)
				}
			}
			ids = append(ids, id)
		}
		return nil
	})
	return ids
}

// dead gives up deliveries of a turn.
func (r *rig) dead(agent, turnID string, count int) {
	r.Helper()
	r.tx(func(tx *store.Tx) error {
		reply := exchange.Reply{ID: newID(), TurnID: turnID, Agent: agent, Channel: "email", CreatedAt: r.clock()}
		if err := tx.InsertReply(r.Context(), reply, reply.ID); err != nil {
			return err
		}
		for range count {
			id := newID()
			record := delivery.Record{ID: id, TurnID: turnID, ReplyID: reply.ID, Agent: agent, Channel: "email", Key: "example.org", State: delivery.StatePending, CreatedAt: r.clock()}
			if err := tx.InsertDelivery(r.Context(), record); err != nil {
				return err
			}
			move := delivery.Move{ID: id, From: []string{delivery.StatePending}, To: delivery.StateDead, Reason: "550 no such user", At: r.clock()}
			if moved, err := tx.MoveDelivery(r.Context(), move); err != nil || !moved {
				return fmt.Errorf("moved %t: %w", moved, err)
			}
		}
		return nil
	})
}

// deadJob gives up a job of a kind.
func (r *rig) deadJob(kind string) {
	r.Helper()
	r.tx(func(tx *store.Tx) error { return tx.Enqueue(r.Context(), queue.NewJob{ID: newID(), Kind: kind}) })
	jobs, err := r.stores[0].Queue().Claim(r.Context(), queue.Claim{Owner: "test", Kind: kind, Lease: time.Minute, Takes: []queue.Take{{Share: queue.NewJob{Kind: kind}.Share(), Count: 1}}})
	if err != nil || len(jobs) != 1 {
		r.Fatalf("%d jobs, %v", len(jobs), err)
	}
	r.tx(func(tx *store.Tx) error {
		return tx.SettleJob(r.Context(), jobs[0].Lease, queue.Outcome{Kind: queue.Dead, Reason: "it cannot be done"})
	})
}

func (r *rig) backEnd(open bool) {
	r.Helper()
	r.tx(func(tx *store.Tx) error {
		if !open {
			_, err := tx.CloseBackEnd(r.Context(), "shop", r.clock())
			return err
		}
		_, err := tx.OpenBackEnd(r.Context(), pipeline.BackEnd{Agent: "shop", Since: r.clock(), ProbeAt: r.clock().Add(time.Minute), Reason: "connection refused"}, r.clock().Add(-10*time.Minute))
		return err
	})
}

func (r *rig) see(kind string, bad bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad[kind] = bad
}

// ledger counts the rows of the database itself.
func (r *rig) ledger() map[string]int64 {
	r.Helper()
	counts := map[string]int64{}
	for _, agent := range []string{"shop", "help"} {
		for kind, state := range map[string]string{exchange.NoticeTurn: exchange.StateFailed, exchange.NoticeHeld: exchange.StateHeld} {
			count, err := r.stores[0].CountTurns(r.Context(), exchange.TurnFilter{Agent: agent, States: []string{state}})
			if err != nil {
				r.Fatal(err)
			}
			counts[kind+" "+agent] = count
		}
	}
	deliveries, err := r.stores[0].Deliveries(r.Context(), delivery.Filter{State: delivery.StateDead, Limit: 500})
	if err != nil {
		r.Fatal(err)
	}
	for _, one := range deliveries {
		counts[exchange.NoticeDelivery+" "+one.Agent]++
	}
	jobs, err := r.stores[0].Jobs(r.Context(), store.JobFilter{State: "dead", Limit: 500})
	if err != nil {
		r.Fatal(err)
	}
	for _, one := range jobs {
		counts[exchange.NoticeJob+" "+one.Kind]++
	}
	approvals, err := r.stores[0].Approvals(r.Context(), exchange.ApprovalFilter{Limit: 500})
	if err != nil {
		r.Fatal(err)
	}
	for _, one := range approvals {
		counts[exchange.NoticeApproval+" "+one.Agent]++
	}
	reports, err := r.stores[0].AuditRecords(r.Context(), exchange.AuditFilter{Code: "report:*", Limit: 500})
	if err != nil {
		r.Fatal(err)
	}
	for _, one := range reports {
		counts[exchange.NoticeReport+" "+one.Agent]++
	}
	conditions, err := r.stores[0].Conditions(r.Context(), 500)
	if err != nil {
		r.Fatal(err)
	}
	for _, one := range conditions {
		if !one.DeadAt.IsZero() {
			counts[exchange.NoticeDestination+" "+one.Channel]++
		}
	}
	for key, count := range counts {
		if count == 0 {
			delete(counts, key)
		}
	}
	return counts
}

// trouble makes one of each kind that is counted.
func (r *rig) trouble() {
	r.Helper()
	failed := r.turns("shop", exchange.StateFailed, 3)
	r.turns("help", exchange.StateFailed, 1)
	r.turns("help", exchange.StateHeld, 5)
	r.dead("shop", failed[0], 2)
	r.deadJob("activitypub.later")
	r.tx(func(tx *store.Tx) error {
		issuance := policypart.Issuance{
			ID: newID(), StateHash: newID(), TurnID: failed[0], Agent: "shop", Purpose: policypart.PurposeApproval, Status: policypart.StatusIssued,
			IssuedAt: r.clock(), ExpiresAt: time.Now().Add(100 * time.Hour), UpdatedAt: r.clock(),
		}
		if err := tx.InsertDemand(r.Context(), issuance); err != nil {
			return err
		}
		if err := tx.Audit(r.Context(), exchange.AuditRecord{At: r.clock(), Code: "report:activitypub", Agent: "shop", Detail: "it is spam"}); err != nil {
			return err
		}
		failure := delivery.Condition{Channel: "email", Key: "gone.example", FailedDay: 1, Reason: "no route", UpdatedAt: r.clock()}
		return tx.WorsenCondition(r.Context(), failure, 1)
	})
}

// TestADayOfTrouble: each kind is told once, a storm once with its number when it is over, and the digest has the numbers of the rows.
// Two nodes look at the same time.
func TestADayOfTrouble(t *testing.T) {
	eachDatabase(t, func(r *rig) {
		r.round()
		r.pass(10*time.Minute, 5*time.Minute)
		r.trouble()
		r.pass(time.Hour, 5*time.Minute)

		r.backEnd(true)
		r.pass(20*time.Minute, time.Minute)
		r.backEnd(false) // for a moment
		r.pass(time.Minute, time.Minute)
		r.backEnd(true)
		r.pass(20*time.Minute, time.Minute)
		r.backEnd(false)
		r.pass(2*time.Hour, 5*time.Minute)

		for _, kind := range []string{exchange.NoticeDisk, exchange.NoticeCertificate, exchange.NoticeProbe} {
			r.see(kind, true)
			r.pass(30*time.Minute, time.Minute)
			r.see(kind, false)
			r.pass(30*time.Minute, 5*time.Minute)
		}

		for range 40 { // a storm
			r.turns("shop", exchange.StateFailed, 50)
			r.pass(time.Minute, time.Minute)
		}
		r.pass(time.Hour, time.Minute)

		r.backEnd(true) // too short to be told at once
		r.pass(time.Minute, time.Minute)
		r.backEnd(false)
		r.pass(16*time.Hour, 10*time.Minute)

		want := []string{
			"began back_end shop 0", "ended back_end shop 0", "began disk it 0", "ended disk it 0", "began certificate it 0", "ended certificate it 0",
			"began probe it 0", "ended probe it 0", "began turn shop 50", "ended turn shop 2000", "digest   0",
		}
		await.Until(r, "the last notice has come", func() bool { return len(r.received()) >= len(want) })
		var got []string
		received := r.received()
		for _, one := range received {
			got = append(got, fmt.Sprintf("%s %s %s %d", one.Phase, one.Kind, one.Subject, one.Count))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatalf("told (-want +got):\n%s", diff)
		}

		digest := received[len(received)-1]
		counts := map[string]int64{}
		for _, one := range digest.Counts {
			counts[one.Kind+" "+one.Subject] = one.Count
		}
		ledger := r.ledger()
		ledger["back_end shop"] = 1 // the short one
		if ledger["turn shop"] != 2003 {
			r.Errorf("the ledger has %d failed turns of shop", ledger["turn shop"])
		}
		if diff := cmp.Diff(ledger, counts); diff != "" {
			r.Errorf("the digest is not the ledger (-ledger +digest):\n%s\n%s", diff, digest.Text)
		}
		if strings.Contains(digest.Text, "https://evil") || !strings.Contains(digest.Text, "inbox held list") || !strings.Contains(digest.Title, "2004 turns failed") {
			r.Errorf("%s\n%s", digest.Title, digest.Text)
		}

		r.pass(48*time.Hour, time.Hour) // quiet days
		if now := r.received(); len(now) != len(received) {
			r.Errorf("a quiet day was told: %+v", now[len(received):])
		}
	})
}

// TestAtMostSoManyInAnHour: what is over the bound is told when there is room again, and counted when it ended before.
func TestAtMostSoManyInAnHour(t *testing.T) {
	eachDatabase(t, func(r *rig) {
		r.round()
		agents := make([]string, notice.MaxPerHour+5)
		for i := range agents {
			agents[i] = fmt.Sprintf("agent%02d", i)
			r.turns(agents[i], exchange.StateFailed, notice.Burst)
		}
		r.pass(10*time.Minute, time.Minute)
		began := func() (count int) {
			for _, one := range r.received() {
				if one.Phase == exchange.NoticeBegan {
					count++
				}
			}
			return count
		}
		await.Until(r, "the bound is reached", func() bool { return began() >= notice.MaxPerHour })
		r.pass(24*time.Hour, 10*time.Minute)
		var digest told
		await.Until(r, "the digest has come", func() bool {
			all := r.received()
			digest = all[len(all)-1]
			return digest.Phase == exchange.NoticeDigest
		})
		if began() != notice.MaxPerHour {
			r.Errorf("%d bursts were told, want %d", began(), notice.MaxPerHour)
		}
		if len(digest.Counts) != len(agents) || !strings.Contains(digest.Title, fmt.Sprintf("%d turns failed", len(agents)*notice.Burst)) {
			r.Errorf("%s with %d agents", digest.Title, len(digest.Counts))
		}
	})
}

// TestComesAndGoes: what begins again within the hour is not told again; all of it is in the digest.
func TestComesAndGoes(t *testing.T) {
	eachDatabase(t, func(r *rig) {
		r.round()
		for range 5 {
			r.see(exchange.NoticeDisk, true)
			r.pass(2*time.Minute, time.Minute)
			r.see(exchange.NoticeDisk, false)
			r.pass(8*time.Minute, time.Minute)
		}
		r.pass(24*time.Hour, 10*time.Minute)
		await.Until(r, "the digest has come", func() bool {
			all := r.received()
			return len(all) > 0 && all[len(all)-1].Phase == exchange.NoticeDigest
		})
		got := r.received()
		if len(got) != 3 || got[0].Phase != exchange.NoticeBegan || got[1].Phase != exchange.NoticeEnded || got[2].Counts[0].Count != 4 {
			r.Errorf("told %+v", got)
		}
	})
}

// TestNothingAboutNotices: a notice that cannot be brought on its way, or whose mail is given up, is counted nowhere.
func TestNothingAboutNotices(t *testing.T) {
	eachDatabase(t, func(r *rig) {
		r.mu.Lock()
		r.status = http.StatusGone
		r.mu.Unlock()
		r.round()
		id, err := r.nodes[0].Test(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		var found exchange.Notice
		await.Until(r, "it is given up", func() bool {
			if found, err = r.stores[0].Notice(r.Context(), id); err != nil {
				r.Fatal(err)
			}
			return found.Ways[0].State == exchange.NoticeFailed
		})
		if !strings.Contains(found.Ways[0].Reason, "410") || strings.Contains(fmt.Sprint(found), "/secret") {
			r.Errorf("%+v", found)
		}

		turn := r.turns("shop", exchange.StateAnswered, 1)[0]
		way := found.Ways[0]
		way.State, way.TurnID = exchange.NoticeSent, turn
		r.tx(func(tx *store.Tx) error { return tx.SettleNotice(r.Context(), way) })
		r.dead("shop", turn, 1)
		r.pass(24*time.Hour, time.Hour)
		if tallies, err := r.stores[0].NoticeTallies(r.Context()); err != nil || len(tallies) != 0 {
			r.Errorf("counted %+v, %v", tallies, err)
		}
		if got := r.received(); len(got) != 1 {
			r.Errorf("told %+v", got)
		}
	})
}

// TestSettingsHoldAtOnce: kinds that are not wanted are told nowhere, an address that was taken out gets nothing that waits, and what
// was counted before there was any address is told then.
func TestSettingsHoldAtOnce(t *testing.T) {
	eachDatabase(t, func(r *rig) {
		addresses := r.settings.Addresses
		r.settings.Addresses = nil
		r.round()
		r.turns("shop", exchange.StateFailed, 3)
		r.turns("shop", exchange.StateHeld, 2)
		r.see(exchange.NoticeDisk, true)
		r.see(exchange.NoticeProbe, true)
		r.pass(30*time.Hour, time.Hour)
		if _, err := r.nodes[0].Test(r.Context()); err == nil {
			r.Error("a test was sent to nobody")
		}

		r.settings.Addresses, r.settings.Kinds = addresses, []string{exchange.NoticeTurn, exchange.NoticeDisk}
		r.pass(24*time.Hour, time.Hour)
		await.Until(r, "both notices have come", func() bool { return len(r.received()) >= 2 })
		got := r.received()
		if len(got) != 2 || got[0].Kind != exchange.NoticeDisk || len(got[1].Counts) != 1 || got[1].Counts[0].Count != 3 {
			r.Errorf("told %+v", got)
		}
	})
}

// TestRepeatsAreTheSame: a webhook that fails gets the same bytes with the same key again.
func TestRepeatsAreTheSame(t *testing.T) {
	eachDatabase(t, func(r *rig) {
		r.mu.Lock()
		r.set(time.Time{})
		r.status, r.now = http.StatusServiceUnavailable, time.Time{} // the pause before the next attempt is one of the queue
		r.mu.Unlock()
		if _, err := r.nodes[0].Test(r.Context()); err != nil {
			r.Fatal(err)
		}
		tries := func() int {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.sent)
		}
		await.Until(r, "it was tried", func() bool { return tries() >= 1 })
		r.mu.Lock()
		r.status = http.StatusOK
		r.mu.Unlock()
		await.Until(r, "it was tried again", func() bool { return tries() >= 2 })
		if got := r.received(); len(got) != 1 { // compares the bodies, too
			r.Errorf("%d notices", len(got))
		}
	})
}

// TestNoticeLeavesOnce: the job of a way that was sent runs again, as after a crash or a job that was queued twice.
func TestNoticeLeavesOnce(t *testing.T) {
	eachDatabase(t, func(r *rig) {
		if _, err := r.nodes[0].Test(r.Context()); err != nil {
			r.Fatal(err)
		}
		var way string
		await.Until(r, "the notice was sent", func() bool {
			list, err := r.stores[0].Notices(r.Context(), "", 1)
			if err != nil || len(list) != 1 || len(list[0].Ways) != 1 || list[0].Ways[0].State != exchange.NoticeSent {
				return false
			}
			way = list[0].Ways[0].ID
			return true
		})
		if err := r.nodes[1].Send(r.Context(), queue.Job{Kind: notice.JobKind, Attempt: 1, Payload: `{"way":"` + way + `"}`}); err != nil {
			r.Errorf("the job that comes again: %v", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.sent) != 1 {
			r.Errorf("the notice left %d times", len(r.sent))
		}
	})
}
