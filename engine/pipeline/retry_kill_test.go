package pipeline_test

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"inbox/agents"
	"inbox/agents/upstream"
	"inbox/engine/delivery"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Environment of the child processes of TestRetryIsKilled.
const (
	retryURL       = "INBOX_PIPELINE_RETRY_URL"
	retryDirectory = "INBOX_PIPELINE_RETRY_DIRECTORY"
	retryWork      = "INBOX_PIPELINE_RETRY_WORK" // turns or deliveries
)

// retriedBefore is how many a child has retried when it stops inside of the next transaction.
const retriedBefore = 2

// stopping counts transactions. After so many it says so and never ends the next one.
type stopping struct{ begun atomic.Int64 }

func (s *stopping) stop() {
	if s.begun.Add(1) > retriedBefore {
		fmt.Println("stopped")
		select {}
	}
}

type stoppingTurns struct {
	pipeline.Store
	*stopping
}

func (s stoppingTurns) InTx(ctx context.Context, work func(pipeline.Tx) error) error {
	return s.Store.InTx(ctx, func(tx pipeline.Tx) error {
		err := work(tx)
		s.stop()
		return err
	})
}

type stoppingDeliveries struct {
	delivery.Store
	*stopping
}

func (s stoppingDeliveries) InTx(ctx context.Context, work func(delivery.Tx) error) error {
	return s.Store.InTx(ctx, func(tx delivery.Tx) error {
		err := work(tx)
		s.stop()
		return err
	})
}

// TestRetryUntilKilled is the child of TestRetryIsKilled: it retries in bulk until it stops, and waits to be killed.
func TestRetryUntilKilled(t *testing.T) {
	url := os.Getenv(retryURL)
	if url == "" {
		return // it is no child
	}
	opened, err := store.Open(t.Context(), store.Options{URL: url, DataDir: os.Getenv(retryDirectory)})
	if err != nil {
		t.Fatal(err)
	}
	channels := exchange.NewChannels(exchange.Module{Name: normalized.ViaEmail, Channel: newPeer()})
	filter := exchange.RetryFilter{Since: time.Now().Add(-time.Hour)}
	if os.Getenv(retryWork) == "turns" {
		service := pipeline.New(pipeline.Options{
			Store: stoppingTurns{opened.Pipeline(), &stopping{}}, Agents: registry(t, repeats, agents.Settings{}), Channels: channels, Documents: opened.State(),
		})
		_, err = service.RetryFailed(t.Context(), filter, "operator", false)
	} else {
		service := delivery.New(delivery.Options{Store: stoppingDeliveries{opened.Deliverer(), &stopping{}}, Channels: channels})
		_, err = service.RetryDead(t.Context(), filter, false)
	}
	t.Fatalf("it was not stopped: %v", err)
}

// killedRetry runs a child until it stops in the middle of its work, and kills it.
func (e *engine) killedRetry(t *testing.T, url, work string) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRetryUntilKilled$")
	child.Env = append(os.Environ(), retryURL+"="+url, retryDirectory+"="+e.directory, retryWork+"="+work)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := children.Start(child); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	if !lines.Scan() || lines.Text() != "stopped" {
		t.Errorf("the child says %q", lines.Text())
	}
	if err := child.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = child.Wait()
}

// TestRetryIsKilled: a bulk retry of failed turns, and one of dead deliveries, is killed inside of a transaction after some. The next one does the rest, a
// third one nothing; each peer gets one apology and one answer, whose id is that of before the death of its delivery.
func TestRetryIsKilled(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		const messages = 6
		var down atomic.Bool
		down.Store(true)
		agent := func(ctx context.Context, turn agents.Turn) iter.Seq2[normalized.Delta, error] {
			if down.Load() {
				return func(yield func(normalized.Delta, error) bool) {
					yield(normalized.Delta{}, fault.GiveUp(upstream.Refused, nil))
				}
			}
			return repeats(ctx, turn)
		}
		e := start(t, url, agent, agents.Settings{})
		ids := map[string]bool{}
		for n := range messages {
			ids[e.receive(t, message(fmt.Sprint("m", n))).TurnID] = true
		}
		for range messages {
			e.peer.next(t) // the apologies
		}
		failed := func() int64 {
			count, err := e.store.CountTurns(t.Context(), exchange.TurnFilter{States: []string{exchange.StateFailed}})
			if err != nil {
				t.Fatal(err)
			}
			return count
		}
		await.Until(t, "all messages have failed", func() bool { return failed() == messages })

		down.Store(false)
		e.peer.set(func(exchange.Delivery) error { return fault.GiveUp("550 out of service", nil) })
		e.killedRetry(t, url, "turns")
		if left := failed(); left != messages-retriedBefore {
			t.Errorf("%d messages are failed after the kill, want %d", left, messages-retriedBefore)
		}
		filter := exchange.RetryFilter{Since: time.Now().Add(-time.Hour)}
		for _, want := range []int{messages - retriedBefore, 0} {
			if done, err := e.pipeline.RetryFailed(t.Context(), filter, "operator", false); err != nil || done.Retried != want || done.Skipped != 0 {
				t.Fatalf("%+v, %v; want %d", done, err, want)
			}
		}

		dead := func() []delivery.Record {
			records, err := e.store.Deliveries(t.Context(), delivery.Filter{State: delivery.StateDead, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			return records
		}
		await.Until(t, "all answers are given up", func() bool { return len(dead()) == messages })
		answers := map[string]string{} // id on the wire → turn
		for _, one := range dead() {
			answers[one.NativeID] = one.TurnID
		}

		e.peer.set(nil)
		e.killedRetry(t, url, "deliveries")
		done, err := e.delivery.RetryDead(t.Context(), filter, false)
		if err != nil || done.Retried != messages-retriedBefore || done.Skipped != 0 {
			t.Fatalf("%+v, %v", done, err)
		}
		if again, err := e.delivery.RetryDead(t.Context(), filter, false); err != nil || again.Retried != 0 {
			t.Fatalf("a third one: %+v, %v", again, err)
		}

		for range messages {
			d := e.peer.next(t)
			if answers[d.NativeID] != d.Reply.TurnID || !ids[d.Reply.TurnID] {
				t.Errorf("%s is a second answer, or another one, to %s", d.NativeID, d.Reply.TurnID)
			}
			delete(answers, d.NativeID)
		}
		await.Until(t, "nothing is left to do", func() bool {
			jobs, err := e.store.Jobs(t.Context(), store.JobFilter{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			return len(jobs) == 0
		})
		if got := e.peer.count(); got != 2*messages {
			t.Errorf("the peer got %d messages, want %d", got, 2*messages)
		}
	})
}
