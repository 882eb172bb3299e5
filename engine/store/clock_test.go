package store_test

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/adapters/bridge/contract"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/internal/queue"
)

// lockedBuffer takes a log from several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	told chan struct{}
}

func (b *lockedBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	select {
	case b.told <- struct{}{}:
	default:
	}

	return b.text.Write(line)
}

// TestNodeWithAWrongClockRunsNothingTwice: one of two nodes is an hour ahead or behind, and neither takes what the other
// one runs, nor keeps back what is due.
func TestNodeWithAWrongClockRunsNothingTwice(t *testing.T) {
	for name, wrong := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			url := storetest.Postgres(t)
			log := &lockedBuffer{told: make(chan struct{}, 1)}
			right := openWith(t, store.Options{URL: url})
			clock := func() time.Time { return time.Now().Add(wrong) }
			skewed := openWith(t, store.Options{URL: url, Now: clock, Logger: slog.New(slog.NewTextHandler(log, nil))})

			const jobs = 60
			var mu sync.Mutex
			runs := map[string]int{}
			ended := make(chan string, 10*jobs)
			var group sync.WaitGroup
			ctx, stop := context.WithCancel(t.Context())
			for _, node := range []*store.Store{right, skewed} {
				q := queue.New(node.Queue(), queue.Options{Lease: 3 * time.Second, Poll: 100 * time.Millisecond})
				q.Handle("work", queue.KindOptions{Concurrency: 8}, func(ctx context.Context, job queue.Job) error {
					mu.Lock()
					runs[job.Payload]++
					mu.Unlock()

					select {
					case <-time.After(200 * time.Millisecond): // as long as other claims need to come by
					case <-ctx.Done():
						return ctx.Err()
					}

					ended <- job.Payload
					return nil
				})

				group.Go(func() {
					if err := q.Run(ctx); err != nil {
						t.Errorf("run: %v", err)
					}
				})
			}

			for n := range jobs {
				node, now := right, time.Now()
				if n%2 == 0 {
					node, now = skewed, clock()
				}

				job := queue.NewJob{ID: newID(), Kind: "work", Payload: fmt.Sprint(n)}
				if n%3 == 0 {
					job.RunAt = now.Add(500 * time.Millisecond)
				}
				if err := node.InTx(t.Context(), func(tx *store.Tx) error { return tx.Enqueue(t.Context(), job) }); err != nil {
					t.Fatal(err)
				}
			}

			timeout := time.After(2 * time.Minute)
			for n := range jobs {
				select {
				case <-ended:
				case <-timeout:
					t.Fatalf("%d of %d jobs ended within two minutes", n, jobs)
				}
			}

			stop()
			await.Done(t, group.Wait, "the end of both queues")
			for payload, count := range runs {
				if count != 1 {
					t.Errorf("job %s ran %d times", payload, count)
				}
			}

			offset, err := skewed.ClockOffset(t.Context())
			if err != nil || (offset-wrong).Abs() > time.Minute {
				t.Errorf("offset %v, %v; want %v", offset, err, wrong)
			}

			await.Receive(t, log.told, "the log of the clock")
			log.mu.Lock()
			defer log.mu.Unlock()

			if !strings.Contains(log.text.String(), "clock of this node differs") {
				t.Errorf("the log says %q", log.text.String())
			}
		})
	}
}

// wrongClocks are offsets of one of two nodes.
var wrongClocks = []time.Duration{
	10 * time.Minute, -10 * time.Minute, 2 * time.Hour, -2 * time.Hour, 24 * time.Hour, -24 * time.Hour,
}

// TestStoredTimesAreComparedWithTheClockOfTheDatabase: two nodes whose clocks differ agree on what has ended, whichever of them wrote it.
func TestStoredTimesAreComparedWithTheClockOfTheDatabase(t *testing.T) {
	for _, wrong := range wrongClocks {
		t.Run(wrong.String(), func(t *testing.T) {
			url, ctx := storetest.Postgres(t), t.Context()
			right := openWith(t, store.Options{URL: url})
			clock := func() time.Time { return time.Now().Add(wrong) }
			skewed := openWith(t, store.Options{URL: url, Now: clock, Logger: slog.New(slog.DiscardHandler)})
			nodes := []struct {
				name  string
				store *store.Store
				now   func() time.Time
			}{{"right", right, time.Now}, {"skewed", skewed, clock}}

			turn := sample(1)
			if err := accept(ctx, right, turn); err != nil {
				t.Fatal(err)
			}
			for _, node := range nodes {
				for key, expires := range map[string]time.Duration{"ended": -time.Second, "lives": 5 * time.Minute} {
					if err := node.store.State().Put(ctx, "clock", node.name+" "+key, []byte("v"), node.now().Add(expires)); err != nil {
						t.Fatal(err)
					}
				}
			}

			for _, node := range nodes {
				if _, err := node.store.Retain(ctx, store.Retention{Default: store.Periods{store.RetainMessages: time.Hour}}, node.now()); err != nil {
					t.Fatal(err)
				}
				if err := node.store.Sweep(ctx); err != nil {
					t.Fatal(err)
				}
				if _, err := node.store.Turn(ctx, turn.ID); err != nil {
					t.Errorf("the %s node erased a new message: %v", node.name, err)
				}

				keys, _, err := node.store.State().List(ctx, "clock", "", 10)
				if got := strings.Join(keys, ", "); err != nil || got != "right lives, skewed lives" {
					t.Errorf("the %s node sees the documents %q, %v", node.name, got, err)
				}
			}
		})
	}
}

// TestBridgeItemsAreLeasedOnceWhateverTheClocks: of two nodes whose clocks differ each gets items that the other one does not have.
func TestBridgeItemsAreLeasedOnceWhateverTheClocks(t *testing.T) {
	for _, wrong := range wrongClocks {
		t.Run(wrong.String(), func(t *testing.T) {
			url, ctx := storetest.Postgres(t), t.Context()
			right := openWith(t, store.Options{URL: url}).Bridge(nil)
			clock := func() time.Time { return time.Now().Add(wrong) }
			skewed := openWith(t, store.Options{URL: url, Now: clock, Logger: slog.New(slog.DiscardHandler)}).Bridge(nil)

			const items = 12
			for range items {
				item := contract.Item{
					ID: newID(), ClientID: "slack", Agent: "echo", SessionID: "s", Role: "assistant", Content: "hello", Completed: true,
					CreatedAt: "2026-11-21T12:00:00+00:00", Status: contract.Pending,
				}
				if err := right.Offer(ctx, item); err != nil {
					t.Fatal(err)
				}
			}
			leased := map[string]int{}
			for i := range items {
				node := []*store.Bridge{right, skewed}[i%2]
				found, err := node.Lease(ctx, "slack", contract.Query{Limit: 2}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				for _, item := range found {
					leased[item.ID]++
				}
			}

			if len(leased) != items {
				t.Errorf("%d of %d items were leased", len(leased), items)
			}
			for id, times := range leased {
				if times != 1 {
					t.Errorf("item %s was leased %d times", id, times)
				}
			}
		})
	}
}

// ownClock are the functions of the store that may read this node's clock, with the reason. Besides them it measures how long something took.
var ownClock = map[string]string{
	"watchClock":   "how often it warns",
	"LocalPosts":   "the age of a count in memory",
	"walk":         "how long a search may take",
	"withDefaults": "the clock itself",
	"check":        "how long it is remembered whether there are rows of an earlier version",
	"begin":        "how often it looks for stranded jobs",
}

// TestStoredTimesMeetNoLocalClock: no file of the store compares a stored time with this node's clock. time.Now() may begin a measurement
// (begun := time.Now()) or bound one (end := time.Now().Add(…)); everything else asks for now().
func TestStoredTimesMeetNoLocalClock(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			function, is := declared.(*ast.FuncDecl)
			if !is || ownClock[function.Name.Name] != "" {
				continue
			}
			ast.Inspect(function, func(node ast.Node) bool {
				if assigned, is := node.(*ast.AssignStmt); is && measures(assigned) {
					return false
				}
				if compared, is := node.(*ast.CallExpr); is && endsMeasurement(compared) {
					return false
				}
				if selected, is := node.(*ast.SelectorExpr); is && selected.Sel.Name == "Now" && fmt.Sprint(selected.X) == "time" {
					t.Errorf("%s: %s reads this node's clock; stored times are compared with now() of the store", set.Position(selected.Pos()), function.Name.Name)
				}
				return true
			})
		}
	}
}

// measures reports whether a statement notes when something begins or has to end.
func measures(assigned *ast.AssignStmt) bool {
	for _, left := range assigned.Lhs {
		if name := fmt.Sprint(left); name == "begun" || name == "end" {
			return true
		}
	}
	return false
}

// endsMeasurement reports whether a call compares the clock with an end that measures noted.
func endsMeasurement(call *ast.CallExpr) bool {
	selected, is := call.Fun.(*ast.SelectorExpr)
	return is && (selected.Sel.Name == "After" || selected.Sel.Name == "Before") && len(call.Args) == 1 && fmt.Sprint(call.Args[0]) == "end"
}
