package store

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/exchange"
)

// Environment of BenchmarkArrivals: how many messages it stores, 100,000 by default, and on which database alone.
const (
	arrivalRowsVariable   = "INBOX_BENCH_ARRIVALS"
	arrivalEngineVariable = "INBOX_BENCH_ENGINE"
)

// BenchmarkArrivals measures the lists and searches of an operator over many stored messages, while 50 more come and are answered
// each second: every combination of filters, words that half of the messages have, few, three and none. It prints the slowest of
// each kind. It fills a database first, so it takes minutes:
// INBOX_BENCH_ARRIVALS=1000000 go test -run '^$' -bench Arrivals -benchtime 1x -timeout 60m ./engine/store
func BenchmarkArrivals(b *testing.B) {
	rows := 100_000
	if text := os.Getenv(arrivalRowsVariable); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil || rows < 1000 {
			b.Fatalf("%s must be a number from 1000", arrivalRowsVariable)
		}
	}

	for name, options := range map[string]func() Options{
		"sqlite":   func() Options { return Options{DataDir: b.TempDir()} },
		"postgres": func() Options { return Options{URL: storetest.Postgres(b), Connections: 8} },
	} {
		if only := os.Getenv(arrivalEngineVariable); only == "" || only == name {
			b.Run(name, func(b *testing.B) { benchArrivals(b, options(), rows) })
		}
	}
}

func benchArrivals(b *testing.B, options Options, rows int) {
	s, err := Open(b.Context(), options)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()

	begun := time.Now()
	err = storetest.FillLedger(b.Context(), storetest.Ledger{Messages: rows}, func(ctx context.Context, statements []storetest.Statement) error {
		return s.InTx(ctx, func(tx *Tx) error {
			for _, one := range statements {
				if err := tx.sql.Do(ctx, one.Text, one.Arguments...); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		b.Fatal(err)
	}
	fmt.Printf("%d rows stored in %s\n", rows, time.Since(begun).Round(time.Second))

	begun = time.Now()
	if err := s.InTx(b.Context(), func(tx *Tx) error { return tx.rebuild(b.Context()) }); err != nil {
		b.Fatal(err)
	}
	for {
		if waits, err := s.waits(b.Context()); err != nil {
			b.Fatal(err)
		} else if !waits {
			break
		}
		if err := s.indexSome(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	fmt.Printf("%d rows indexed in %s\n", rows, time.Since(begun).Round(time.Second))
	if s.engine.Kind() == database.Postgres { // it analyzes by itself in time; SQLite never does here
		if err := s.InTx(b.Context(), func(tx *Tx) error { return tx.sql.Do(b.Context(), `ANALYZE`) }); err != nil {
			b.Fatal(err)
		}
	}

	ctx, cancel := context.WithCancel(b.Context())
	var load sync.WaitGroup
	load.Go(func() { _ = s.IndexWords(ctx) })
	load.Go(func() { comeAndGo(ctx, b, s) })
	measureArrivals(b, s)
	cancel()
	load.Wait()
}

// comeAndGo stores and answers 50 messages each second.
func comeAndGo(ctx context.Context, b *testing.B, s *Store) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		turn := came(fmt.Sprintf("agent%02d", n%20), "email", fmt.Sprintf("@user%d@domain1.example", n), exchange.StateAccepted, "hello from now")
		accept(b, s, turn)
		answer(b, s, turn, "an answer")
	}
}

// slowest are the times of one kind of list.
type slowest struct {
	times []time.Duration
	calls []call
	worst exchange.ArrivalFilter // of those that were measured again
}

// call is a list and how long it took.
type call struct {
	filter exchange.ArrivalFilter
	took   time.Duration
}

func measureArrivals(b *testing.B, s *Store) {
	agents := []string{"", "agent00", "old", "none"}
	senders := []string{"", "@busy@busy.example", "@user7@domain7.example", "@busy.example", "@domain7.example", "idp.example @busy@busy.example", "@none@none.example"}
	channels := []string{"", "email", "none"}
	states := [][]string{nil, {exchange.StateAnswered}, {exchange.StateFailed, exchange.StateHeld}, {exchange.StateCancelled}}
	times := []time.Time{{}, time.Now().Add(-24 * time.Hour), time.Now().Add(-time.Second)}
	untils := []time.Time{{}, time.Now().Add(-storetest.LedgerSpan + 24*time.Hour)}
	words := []string{"", "hello", "hello paper", "alpha", "invoice", "needle", "nothing", "\"paper crane\"", "numb*"}

	kinds := map[string]*slowest{}
	for _, word := range words {
		for _, agent := range agents {
			for _, sender := range senders {
				for _, channel := range channels {
					for _, state := range states {
						for _, since := range times {
							for _, until := range untils {
								if word != "" && (agent == "none" || channel == "none" || !until.IsZero() && !since.IsZero()) {
									continue
								}
								filter := exchange.ArrivalFilter{Agent: agent, Sender: sender, Channel: channel, States: state, Since: since, Until: until, Text: word, Limit: 50}
								begun := time.Now()
								if _, err := s.Arrivals(b.Context(), filter); err != nil {
									b.Fatalf("%+v: %v", filter, err)
								}
								kinds[word] = kinds[word].add(filter, time.Since(begun))
							}
						}
					}
				}
			}
		}
	}

	for _, word := range words {
		k := kinds[word]
		slices.Sort(k.times)
		at := func(share float64) time.Duration {
			return k.times[int(share*float64(len(k.times)-1))].Round(10 * time.Microsecond)
		}
		again := k.again(b, s).Round(10 * time.Microsecond)
		fmt.Printf("%-16q %4d filters  p50 %9s  p95 %9s  p99 %9s  most %9s, the slowest again %9s  %+v\n", word, len(k.times), at(0.5), at(0.95), at(0.99), at(1), again, k.worst)
	}
}

func (k *slowest) add(filter exchange.ArrivalFilter, took time.Duration) *slowest {
	if k == nil {
		k = &slowest{}
	}
	k.times = append(k.times, took)
	k.calls = append(k.calls, call{filter, took})
	return k
}

// again measures the ten slowest filters five times more, and returns the longest of their medians: one call may have waited for something
// else on the machine, a filter that is slow is slow each time.
func (k *slowest) again(b *testing.B, s *Store) time.Duration {
	slices.SortFunc(k.calls, func(a, b call) int { return cmp.Compare(b.took, a.took) })
	longest := time.Duration(0)
	for _, one := range k.calls[:min(10, len(k.calls))] {
		var times []time.Duration
		for range 5 {
			begun := time.Now()
			if _, err := s.Arrivals(b.Context(), one.filter); err != nil {
				b.Fatal(err)
			}
			times = append(times, time.Since(begun))
		}
		slices.Sort(times)
		if median := times[len(times)/2]; median > longest {
			longest, k.worst = median, one.filter
		}
	}
	return longest
}
