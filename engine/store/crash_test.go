package store_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/internal/queue"
	"inbox/internal/queue/queuetest"
)

// Environment of the child process of TestCrash.
const (
	crashURL       = "INBOX_STORE_CRASH_URL"
	crashDirectory = "INBOX_STORE_CRASH_DIRECTORY"
)

// crash accepts messages with 32 callers until it is killed, and prints the id of each that is acknowledged.
func crash(url string) {
	s, err := store.Open(context.Background(), store.Options{URL: url, DataDir: os.Getenv(crashDirectory)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}

	var lock sync.Mutex
	var number atomic.Int64
	for range 32 {
		go func() {
			for {
				turn := sample(number.Add(1) + time.Now().UnixNano())
				if err := accept(context.Background(), s, turn); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}

				lock.Lock()
				fmt.Println(turn.ID)
				lock.Unlock()
			}
		}()
	}

	select {}
}

// TestCrash kills a process that accepts messages, several times, and looks for every message that it acknowledged.
func TestCrash(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, directory := url(t), t.TempDir()
			acknowledged := map[string]bool{}
			for range 3 {
				for _, id := range killed(t, address, directory) {
					acknowledged[id] = true
				}
			}

			if name == "postgres" {
				awaitAlone(t, address)
			}
			s := openWith(t, store.Options{URL: address, DataDir: directory})
			stored := checkWhole(t, s)
			for id := range acknowledged {
				if !stored[id] {
					t.Errorf("acknowledged turn %s is not there", id)
				}
			}

			t.Logf("%d acknowledged, %d stored, 3 kills", len(acknowledged), len(stored))
		})
	}
}

// awaitAlone waits until the database has ended the sessions of the killed children: PostgreSQL goes on with what it was
// sent, so that turns would still be added while they are counted.
func awaitAlone(t *testing.T, url string) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close(context.Background()) //nolint:errcheck // the test is over

	const others = `SELECT count(*) FROM pg_stat_activity, pg_sleep(0.05) WHERE datname = current_database()
		AND backend_type = 'client backend' AND pid <> pg_backend_pid()`
	await.Until(t, "the sessions of the killed children have ended", func() bool {
		var count int
		if err := connection.QueryRow(t.Context(), others).Scan(&count); err != nil {
			t.Fatal(err)
		}
		return count == 0
	})
}

// killed runs a child until it acknowledged a few hundred messages, kills it, and returns what it said.
func killed(t *testing.T, url, directory string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*await.Patience)
	defer cancel()

	child := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
	child.Env = append(os.Environ(), crashURL+"="+url, crashDirectory+"="+directory)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := children.Start(child); err != nil {
		t.Fatal(err)
	}
	var ids []string
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if ids = append(ids, lines.Text()); len(ids) == 400 {
			if err := child.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}

	if err := child.Wait(); err == nil || len(ids) < 400 {
		t.Fatalf("the child ended by itself, or was late, after %d messages: %v", len(ids), err)
	}
	if last := len(ids) - 1; len(ids[last]) < len(ids[0]) {
		ids = ids[:last] // the kill cut the line
	}

	return ids
}

// checkWhole returns the ids of all turns, each with its original, first row and job.
func checkWhole(t *testing.T, s *store.Store) map[string]bool {
	t.Helper()
	stored := map[string]bool{}
	for before := ""; ; {
		turns, err := s.Turns(t.Context(), exchange.TurnFilter{Limit: 500, Before: before})
		if err != nil {
			t.Fatal(err)
		}
		if len(turns) == 0 {
			break
		}

		for _, turn := range turns {
			stored[turn.ID] = true
			before = fmt.Sprintf("%d.%s", turn.UpdatedAt.UnixMicro(), turn.ID)
			if _, err := s.Original(t.Context(), turn.ID); err != nil {
				t.Errorf("original of %s: %v", turn.ID, err)
			}
			if events, err := s.Events(t.Context(), turn.ID, 0, 10); err != nil || len(events) != 1 {
				t.Errorf("timeline of %s: %v, %v", turn.ID, events, err)
			}
		}
	}

	if jobs := countJobs(t, s); jobs != len(stored) {
		t.Errorf("%d jobs for %d turns", jobs, len(stored))
	}

	return stored
}

// countJobs empties the queue.
func countJobs(t *testing.T, s *store.Store) (count int) {
	t.Helper()
	for {
		jobs, err := queuetest.Claim(t.Context(), s.Queue(), "o", "turn", 100, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) == 0 {
			return count
		}

		count += len(jobs)
		if err := s.InTx(t.Context(), func(tx *store.Tx) error {
			for _, job := range jobs {
				if err := tx.SettleJob(t.Context(), job.Lease, queue.Outcome{Kind: queue.Done}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
