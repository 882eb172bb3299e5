package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// TestNodesStartTogether: the migrations are applied once although three nodes find an empty database.
func TestNodesStartTogether(t *testing.T) {
	url := storetest.Postgres(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			s, err := store.Open(t.Context(), store.Options{URL: url, Connections: 2})
			if err != nil {
				t.Error(err)
				return
			}
			if version, err := s.SchemaVersion(t.Context()); err != nil || version < 4 {
				t.Errorf("version %d, %v", version, err)
			}

			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}

	await.Done(t, group.Wait, "the start of all nodes")
}

// TestNodesHearWhoEndsAtOnce: a command commits and is gone; the servers that run hear of its work all the same.
func TestNodesHearWhoEndsAtOnce(t *testing.T) {
	url := storetest.Postgres(t)
	heard := make(chan string, 100)
	listening := openWith(t, store.Options{URL: url, Notify: func(channel, payload string) { heard <- channel + " " + payload }})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- listening.Listen(ctx) }()
	expect(t, heard, "job ", "turn ") // something may have been missed before

	for i := range 5 {
		command, err := store.Open(t.Context(), store.Options{URL: url})
		if err != nil {
			t.Fatal(err)
		}

		kind := fmt.Sprint("kind", i)
		if err := enqueueUntilStored(t, command, kind); err != nil {
			t.Fatal(err)
		}
		if err := command.Close(); err != nil {
			t.Fatal(err)
		}

		expect(t, heard, "job "+kind)
	}

	stop()
	if err := await.Receive(t, ended, "the end of the listening"); err != nil {
		t.Error(err)
	}
}

// TestServersHearCommandsOnTheSameFile: SQLite announces no commit, and the server hears of a command's all the same,
// long before it looks by itself.
func TestServersHearCommandsOnTheSameFile(t *testing.T) {
	directory := t.TempDir()
	heard := make(chan string, 100)
	listening := openWith(t, store.Options{DataDir: directory, Notify: func(channel, payload string) { heard <- channel + " " + payload }})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- listening.Listen(ctx) }()
	expect(t, heard, "job ", "turn ", "lists ", "bridge ") // something may have been missed before
	command := openWith(t, store.Options{DataDir: directory})
	if err := enqueueUntilStored(t, command, "kind"); err != nil {
		t.Fatal(err)
	}

	expect(t, heard, "job ", "turn ", "lists ", "bridge ")
	// While the server itself commits, only the lists are told apart.
	entry := exchange.ListEntry{ID: newID(), List: exchange.ListBlock, Kind: exchange.TargetHost, Target: "spam.example"}
	if err := enqueueUntilStored(t, listening, "own"); err != nil {
		t.Fatal(err)
	}
	if err := command.PutListEntries(t.Context(), entry); err != nil {
		t.Fatal(err)
	}

	expect(t, heard, "lists ")
	stop()
	if err := await.Receive(t, ended, "the end of the listening"); err != nil {
		t.Error(err)
	}
}

// TestListeningEndsWithTheStore: a store that is closed while a caller listens ends it without an error.
func TestListeningEndsWithTheStore(t *testing.T) {
	heard := make(chan string, 100)
	listening, err := store.Open(t.Context(), store.Options{DataDir: t.TempDir(), Notify: func(channel, payload string) { heard <- channel + " " + payload }})
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() { ended <- listening.Listen(t.Context()) }()
	expect(t, heard, "bridge ")
	if err := listening.Close(); err != nil {
		t.Error(err)
	}
	if err := await.Receive(t, ended, "the end of the listening"); err != nil {
		t.Error(err)
	}
}

// TestNodesHearEachOther listens on one node and works on another, also after the listening connection broke.
func TestNodesHearEachOther(t *testing.T) {
	url := storetest.Postgres(t)
	heard := make(chan string, 100)
	listening := openWith(t, store.Options{URL: url, Notify: func(channel, payload string) { heard <- channel + " " + payload }})
	working := openWith(t, store.Options{URL: url})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- listening.Listen(ctx) }()
	expect(t, heard, "job ", "turn ") // something may have been missed before
	turn := sample(1)
	if err := accept(t.Context(), working, turn); err != nil {
		t.Fatal(err)
	}

	expect(t, heard, "job turn", "turn "+turn.ID)
	terminateOthers(t, url)
	expect(t, heard, "job ", "turn ")
	if err := listening.InTx(t.Context(), func(tx *store.Tx) error {
		return tx.Enqueue(t.Context(), queue.NewJob{ID: newID(), Kind: "own"})
	}); err != nil && !fault.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}

	if err := enqueueUntilStored(t, working, "other"); err != nil {
		t.Fatal(err)
	}

	for got := ""; got != "job other"; got = await.Receive(t, heard, "the news of the other node's job") {
		if strings.Count(got, "own") > 1 {
			t.Error("heard its own notification again")
		}
	}

	stop()
	if err := await.Receive(t, ended, "the end of the listening"); err != nil {
		t.Error(err)
	}
}

// expect waits until all of want came, in any order.
func expect(t *testing.T, heard <-chan string, want ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, w := range want {
		missing[w] = true
	}

	timeout := time.After(20 * time.Second)
	for len(missing) > 0 {
		select {
		case got := <-heard:
			delete(missing, got)
		case <-timeout:
			t.Fatalf("did not hear %v", missing)
		}
	}
}

// terminateOthers ends all connections to the database, as a restart of the server or a firewall does.
func terminateOthers(t *testing.T, url string) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}

	_, err = connection.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	if err := errors.Join(err, connection.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// enqueueUntilStored repeats what a broken connection may refuse once per connection of the pool.
func enqueueUntilStored(t *testing.T, s *store.Store, kind string) (err error) {
	t.Helper()
	for range 20 {
		err = s.InTx(t.Context(), func(tx *store.Tx) error {
			return tx.Enqueue(t.Context(), queue.NewJob{ID: newID(), Kind: kind})
		})
		if !fault.Is(err, fault.Unavailable) {
			return err
		}
	}
	return err
}

// TestBrokenConnections: after the database ended all connections, work and reads go on with new ones.
func TestBrokenConnections(t *testing.T) {
	url := storetest.Postgres(t)
	s := openWith(t, store.Options{URL: url})
	var group errgroup.Group
	for n := range 8 { // several connections are open
		group.Go(func() error { return accept(t.Context(), s, sample(int64(n))) })
	}

	if err := await.Result(t, group.Wait, "all messages to be accepted"); err != nil {
		t.Fatal(err)
	}

	for n := range 3 {
		terminateOthers(t, url)
		if err := accept(t.Context(), s, sample(int64(100+n))); err != nil {
			t.Errorf("write: %v", err)
		}

		terminateOthers(t, url)
		if _, err := s.LocalPosts(t.Context()); err != nil {
			t.Errorf("read: %v", err)
		}
	}
}

// TestDeadlock has two transactions take two turns in opposite order: PostgreSQL ends one, which then runs again.
func TestDeadlock(t *testing.T) {
	s := open(t, storetest.Postgres(t))
	one, two := sample(1), sample(2)
	if err := errors.Join(accept(t.Context(), s, one), accept(t.Context(), s, two)); err != nil {
		t.Fatal(err)
	}

	var meet, group sync.WaitGroup
	meet.Add(2)
	move := func(first, second string) {
		waited := false
		arrive := sync.OnceFunc(meet.Done)
		defer arrive() // also when it fails: the other one waits

		err := s.Pipeline().InTx(t.Context(), func(tx pipeline.Tx) error {
			for _, id := range []string{first, second} {
				_, err := tx.MoveTurn(t.Context(), pipeline.Move{ID: id, From: []string{"accepted"}, To: "accepted", At: time.Now()})
				if err != nil {
					return err
				}

				if !waited {
					waited = true
					arrive()
					meet.Wait()
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}

	group.Go(func() { move(one.ID, two.ID) })
	group.Go(func() { move(two.ID, one.ID) })
	await.Done(t, group.Wait, "the end of both moves")
	for _, id := range []string{one.ID, two.ID} {
		if events, err := s.Events(t.Context(), id, 0, 10); err != nil || len(events) != 3 {
			t.Errorf("%d events, %v", len(events), err)
		}
	}
}

func TestUnusableDatabases(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	closed := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	garbage := t.TempDir()
	if err := os.WriteFile(filepath.Join(garbage, store.File), []byte(strings.Repeat("not a database ", 500)), 0o600); err != nil {
		t.Fatal(err)
	}

	for name, test := range map[string]struct {
		options store.Options
		kind    fault.Kind
	}{
		"closed port":      {store.Options{URL: "postgres://inbox@" + closed + "/x?sslmode=disable"}, fault.Unavailable},
		"unknown scheme":   {store.Options{URL: "mysql://x"}, fault.Malformed},
		"bad url":          {store.Options{URL: "postgres://x:y:z@["}, fault.Malformed},
		"directory a file": {store.Options{DataDir: file}, fault.Unavailable},
		"not a database":   {store.Options{DataDir: garbage}, fault.Unavailable},
	} {
		s, err := store.Open(t.Context(), test.options)
		if err == nil {
			t.Errorf("%s: opened; close: %v", name, s.Close())
		} else if !fault.Is(err, test.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLeasesDoNotWaitForOneRow: a transaction holds the row of one job for long. The leases of all jobs but those that are extended by the
// same statement go on.
func TestLeasesDoNotWaitForOneRow(t *testing.T) {
	s := open(t, storetest.Postgres(t))
	const count = 300 // of three statements
	leases := make([]queue.Lease, count)
	err := s.InTx(t.Context(), func(tx *store.Tx) error {
		for i := range leases {
			job := queue.NewJob{ID: newID(), Kind: "work"}
			leases[i] = queue.Lease{JobID: job.ID, Fence: 1}
			if err := tx.EnqueueLeased(t.Context(), job, "here", time.Minute); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	held, release := make(chan struct{}), make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		return s.InTx(t.Context(), func(tx *store.Tx) error {
			err := tx.SettleJob(t.Context(), leases[0], queue.Outcome{Kind: queue.Done})
			close(held)
			<-release
			return err
		})
	})
	await.Receive(t, held, "the transaction that holds the first row")
	kept := make(chan int, 1)
	group.Go(func() error {
		extended, _, err := s.Queue().Extend(t.Context(), leases, 24*time.Hour)
		kept <- len(extended)
		return err
	})
	await.Until(t, "the last lease is extended", func() bool {
		job, found, err := s.Job(t.Context(), leases[count-1].JobID)
		return err == nil && found && time.Until(job.LeaseEnds) > time.Hour
	})
	close(release)
	if err := await.Result(t, group.Wait, "the end of both"); err != nil {
		t.Fatal(err)
	}
	if extended := await.Receive(t, kept, "the leases"); extended != count-1 {
		t.Errorf("%d leases are held", extended)
	}
}

// TestTurnsOfATaskStoredAtOnce: two nodes store turns of one task at the same time, in either order of their ids. One is the latest.
func TestTurnsOfATaskStoredAtOnce(t *testing.T) {
	url := storetest.Postgres(t)
	s := open(t, url)
	for number, orders := range [][2]int64{{1, 2}, {4, 3}} {
		one, two := sample(orders[0]), sample(orders[1])
		one.Reference, two.Reference = fmt.Sprint("task ", number), fmt.Sprint("task ", number)
		two.Principal, two.Carrier = one.Principal, one.Carrier
		stored, release := make(chan struct{}), make(chan struct{})
		var group errgroup.Group
		group.Go(func() error {
			return s.InTx(t.Context(), func(tx *store.Tx) error {
				_, _, err := tx.InsertTurn(t.Context(), one, pipeline.Original{})
				close(stored)
				<-release
				return err
			})
		})
		await.Receive(t, stored, "the first turn")
		done := make(chan struct{})
		group.Go(func() error {
			defer close(done)
			return s.InTx(t.Context(), func(tx *store.Tx) error {
				_, _, err := tx.InsertTurn(t.Context(), two, pipeline.Original{})
				return err
			})
		})
		await.Until(t, "the second transaction waits or is done", func() bool {
			select {
			case <-done:
				return true
			default:
				return waitingTransactions(t, url) > 0
			}
		})
		close(release)
		if err := await.Result(t, group.Wait, "the end of both"); err != nil {
			t.Fatal(err)
		}

		latest, err := s.Turns(t.Context(), exchange.TurnFilter{Reference: one.Reference, Latest: true, Limit: 10})
		if want := max(one.ID, two.ID); err != nil || len(latest) != 1 || latest[0].ID != want {
			t.Errorf("%d turns are the latest, %v", len(latest), err)
		}
	}
}

// waitingTransactions counts the transactions that wait for another one.
func waitingTransactions(t *testing.T, url string) (count int64) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	err = connection.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&count)
	if err := errors.Join(err, connection.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	return count
}
