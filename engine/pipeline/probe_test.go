package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// probed is a back end that answers probes while it works. A failure of one message is none of a probe.
type probed struct{ *backEnd }

func (p probed) Probe(ctx context.Context) error {
	p.mu.Lock()
	p.probes++
	failure, hangs := p.failure, p.silent
	p.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return failure
}

// errGateway is what a proxy answers in front of a program that is down.
var errGateway = fault.RetryIn(0, upstream.Unreachable, errors.New("the webhook answers 502 Bad Gateway"))

func withProbes(r *outageRig) { r.probed = true }

// outage returns the newest outage of the program.
func (r *outageRig) outage() (found pipeline.BackEnd) {
	r.t.Helper()
	list, err := r.store.BackEnds(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if len(list) > 0 {
		found = list[0]
	}
	return found
}

// TestOneFailureAndAProbeShowAnOutage: one message waits while a proxy says that nothing is behind it. The outage is known at once and ends soon
// after the program is back, after which everything is answered.
func TestOneFailureAndAProbeShowAnOutage(t *testing.T) {
	for name, failure := range map[string]error{"gateway": errGateway, "no connection": errRefused} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				program := &backEnd{failure: failure}
				r := startOutage(t, "sqlite", program, agents.Settings{}, withProbes)
				began := time.Now()
				ids := []string{r.receive(t, ofDomain("first.example", "m0")).TurnID}
				pass(time.Second)
				if got := r.outage(); got.Since.IsZero() || !got.ClosedAt.IsZero() || got.Since.Sub(began) > time.Second || got.Reason == "" {
					t.Fatalf("a second after the only message failed the outage is %+v", got)
				}
				if lasts := r.lasting(); lasts.State != exchange.ConditionOpen || lasts.Since.Sub(began) > time.Second {
					t.Errorf("the operator is told of %+v", lasts)
				}

				for i := range 100 {
					ids = append(ids, r.receive(t, ofDomain(fmt.Sprintf("d%03d.example", i), fmt.Sprintf("m%d", i+1))).TurnID)
				}
				pass(40 * time.Minute)
				if calls, answered := program.counts(); answered != 0 || calls > 250 {
					t.Errorf("%d calls, %d answers during the outage", calls, answered)
				}
				if most := int(40 * time.Minute / agents.DefaultProbe); program.probes > most+2 {
					t.Errorf("%d probes in 40 minutes; want at most %d", program.probes, most)
				}

				program.fail(nil)
				back := time.Now()
				pass(20 * time.Second)
				for _, id := range ids {
					if turn := r.turn(id); turn.State != exchange.StateAnswered {
						t.Fatalf("20 s after the program was back, turn %s is %s: %s", id, turn.State, turn.Reason)
					}
				}
				if got := r.outage(); got.ClosedAt.IsZero() || got.ClosedAt.Sub(back) > 15*time.Second {
					t.Errorf("the outage ended %s after the program was back", got.ClosedAt.Sub(back))
				}
				inSecond := map[int]int{}
				for _, at := range program.at {
					inSecond[int(at.Sub(back)/time.Second)]++
				}
				for second, count := range inSecond {
					if count > 2*agents.DefaultRetryRate {
						t.Errorf("%d messages in second %d after it was back", count, second)
					}
				}
			})
		})
	}
}

// TestFailureOfOneMessageIsNoOutage: the program answers probes while it fails at one message.
func TestFailureOfOneMessageIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{poison: "bad"}
		r := startOutage(t, "sqlite", program, agents.Settings{}, withProbes)
		r.receive(t, ofDomain("first.example", "bad"))
		pass(2 * time.Hour)
		if got := r.outage(); !got.Since.IsZero() {
			t.Errorf("outage %+v", got)
		}
		if program.probes == 0 || program.probes > 20 {
			t.Errorf("%d probes; want one for each failure", program.probes)
		}
	})
}

// TestBusyProgramIsNotDown: a program that works on one message after the other fails at one and answers no probe while it works on the next.
func TestBusyProgramIsNotDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{poison: "slow", hangs: true, silent: true}
		r := startOutage(t, "sqlite", program, agents.Settings{TimeLimit: 10 * time.Minute}, withProbes)
		program.fail(errGateway)
		r.receive(t, ofDomain("slow.example", "slow"))
		r.receive(t, ofDomain("first.example", "m1"))
		pass(time.Minute)
		if got := r.outage(); !got.Since.IsZero() {
			t.Errorf("outage %+v", got)
		}
		if program.probes == 0 {
			t.Error("the program was not probed")
		}
	})
}

// TestOutageEndsWithoutAMessage: the only message that waited was withdrawn.
func TestOutageEndsWithoutAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{failure: errGateway}
		r := startOutage(t, "sqlite", program, agents.Settings{}, withProbes)
		id := r.receive(t, ofDomain("first.example", "m1")).TurnID
		pass(time.Minute)
		if _, err := r.pipeline.Cancel(t.Context(), id, "by its sender"); err != nil {
			t.Fatal(err)
		}
		program.fail(nil)
		pass(20 * time.Second)
		if got := r.outage(); got.Since.IsZero() || got.ClosedAt.IsZero() {
			t.Errorf("outage %+v", got)
		}
	})
}

// TestOutageEndsWithoutTheMessageThatWasToAsk: the message that was brought forward to ask whether the program is back is withdrawn before it asks.
func TestOutageEndsWithoutTheMessageThatWasToAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{failure: errGateway}
		r := startOutage(t, "sqlite", program, agents.Settings{}, withProbes)
		id := r.receive(t, ofDomain("first.example", "m1")).TurnID
		pass(20 * time.Minute)
		program.fail(nil)
		for before := program.probes; program.probes == before; {
			pass(100 * time.Millisecond)
		}
		if _, err := r.pipeline.Cancel(t.Context(), id, "by its sender"); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Second)
		if calls, answered := program.counts(); answered != 0 {
			t.Fatalf("%d calls, %d answers", calls, answered)
		}
		if got := r.outage(); got.Since.IsZero() || got.ClosedAt.IsZero() {
			t.Errorf("outage %+v", got)
		}
	})
}

// TestBackEndThatCameBackDuringARestart: the new process has never seen it down; the row of the outage says that it was.
func TestBackEndThatCameBackDuringARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program := &backEnd{failure: errGateway}
		r := startOutage(t, "sqlite", program, agents.Settings{}, withProbes)
		id := r.receive(t, ofDomain("first.example", "m1")).TurnID
		pass(11 * time.Minute)
		r.stop()
		program.fail(nil)
		r.start()
		pass(20 * time.Second)
		if turn := r.turn(id); turn.State != exchange.StateAnswered {
			t.Errorf("20 s after the start the turn is %s: %s", turn.State, turn.Reason)
		}
		if got := r.outage(); got.ClosedAt.IsZero() {
			t.Errorf("outage %+v", got)
		}
	})
}

// TestBacklogIsBroughtForwardInPlaces: each waiting turn of the agent gets an earlier place by its age; turns of other agents, and turns with an
// earlier place, keep theirs.
func TestBacklogIsBroughtForwardInPlaces(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		opened, err := store.Open(t.Context(), store.Options{URL: url, DataDir: directory(t)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := opened.Close(); err != nil {
				t.Error(err)
			}
		})
		now := time.Now()
		add := func(id, agent string, after time.Duration) queue.NewJob {
			return queue.NewJob{ID: id, Kind: pipeline.JobKind, Payload: id, RunAt: now.Add(after), Group: exchange.TurnGroup(agent, nil), Member: id}
		}
		jobs := []queue.NewJob{
			add("t1", "echo", time.Hour), add("t2", "echo", 2*time.Hour), add("t3", "echo other", time.Hour), add("t4", "echo-2", time.Hour),
			add("t5", "echo", time.Minute), add("t6", "echo", time.Hour),
		}
		err = opened.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) error {
			for _, job := range jobs {
				if err := tx.Enqueue(t.Context(), job); err != nil {
					return err
				}
			}
			waits, err := tx.HastenFirst(t.Context(), "nobody", 0)
			if waits {
				t.Error("an agent without turns has some")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := opened.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) error {
			return tx.HastenBacklog(t.Context(), "echo", 0.01, 10) // a place every 100 seconds
		}); err != nil {
			t.Fatal(err)
		}

		for id, want := range map[string]time.Duration{
			"t1": 0, "t2": 100 * time.Second, "t3": 200 * time.Second, "t4": time.Hour, "t5": time.Minute, "t6": 400 * time.Second,
		} {
			job, found, err := opened.Job(t.Context(), id)
			if err != nil || !found {
				t.Fatalf("%s: %t, %v", id, found, err)
			}
			if got := job.RunAt.Sub(now); got < want-time.Second || got > want+50*time.Second {
				t.Errorf("%s is due after %s; want about %s", id, got, want)
			}
		}
	})
}
