package store

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/normalized"
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

// benchSpan is the time over which the stored messages are spread.
const benchSpan = 365 * 24 * time.Hour

// benchTurn is the message of a number: half of all say hello, those to agent00 say alpha and no one else does, one in a hundred
// says invoice and three say needle. Agent "old" had only the first hundredth, one sender in five is the same.
func benchTurn(n, rows int, begun time.Time) exchange.TurnRecord {
	at := begun.Add(time.Duration(n) * (benchSpan / time.Duration(rows)))
	id := fmt.Sprintf("%s-7%03x-8000-%012x", firstID(at), n%4096, n)
	agent := fmt.Sprintf("agent%02d", n*7%20)
	if n < rows/100 && n%2 == 0 {
		agent = "old"
	}
	sender := fmt.Sprintf("@user%d@domain%d.example", n*31%50_000, n*31%500)
	if n%5 == 0 {
		sender = "@busy@busy.example"
	}
	state := exchange.StateAnswered
	switch {
	case n%5000 == 17:
		state = exchange.StateHeld
	case n%100 == 3:
		state = exchange.StateFailed
	case n%100 == 4:
		state = exchange.StateSilent
	case n%1000 == 5:
		state = exchange.StateRefused
	}

	words := []string{"How do I fold a paper crane, and which paper is best?", "number" + strconv.Itoa(n)}
	for word, has := range map[string]bool{"hello": n%2 == 1, "alpha": agent == "agent00", "invoice": n%100 == 7, "needle": n*3/rows != (n+1)*3/rows} {
		if has {
			words = append(words, word)
		}
	}
	return exchange.TurnRecord{
		ID: id, Agent: agent, Channel: someChannels[n/3%3], Principal: "idp.example " + sender, ThreadID: "thread " + strconv.Itoa(n/4), State: state,
		AcceptedAt: at, UpdatedAt: at,
		Message: normalized.Message{
			ID: "m" + strconv.Itoa(n), Recipient: "@" + agent + "@inbox.example", ReceivedVia: normalized.ViaEmail,
			Sender: normalized.Sender{Address: sender, DisplayName: "User " + strconv.Itoa(n%977)}, Parts: []normalized.Part{normalized.Text(strings.Join(words, " "))},
		},
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
	for from := 0; from < rows; from += 10_000 {
		err := s.InTx(b.Context(), func(tx *Tx) error {
			for n := from; n < min(from+10_000, rows); n++ {
				arguments, err := turnArguments(benchTurn(n, rows, begun.Add(-benchSpan)), pipeline.Original{Digest: "d" + strconv.Itoa(n)})
				if err != nil {
					return err
				}
				if err := tx.do(b.Context(), insertTurn, arguments...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	fmt.Printf("%d rows stored in %s\n", rows, time.Since(begun).Round(time.Second))

	begun = time.Now()
	if err := s.RebuildSearch(b.Context()); err != nil {
		b.Fatal(err)
	}
	for {
		if _, rebuilding, err := s.waiting(b.Context()); err != nil {
			b.Fatal(err)
		} else if !rebuilding {
			break
		}
		if err := s.indexSome(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	fmt.Printf("%d rows indexed in %s\n", rows, time.Since(begun).Round(time.Second))
	if err := s.InTx(b.Context(), func(tx *Tx) error { return tx.do(b.Context(), `ANALYZE`) }); err != nil {
		b.Fatal(err)
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
	worst exchange.ArrivalFilter
	most  time.Duration
}

func measureArrivals(b *testing.B, s *Store) {
	agents := []string{"", "agent00", "old", "none"}
	senders := []string{"", "@busy@busy.example", "@user7@domain7.example", "@busy.example", "@domain7.example", "idp.example @busy@busy.example", "@none@none.example"}
	channels := []string{"", "email", "none"}
	states := [][]string{nil, {exchange.StateAnswered}, {exchange.StateFailed, exchange.StateHeld}, {exchange.StateCancelled}}
	times := []time.Time{{}, time.Now().Add(-24 * time.Hour), time.Now().Add(-time.Second)}
	untils := []time.Time{{}, time.Now().Add(-benchSpan + 24*time.Hour)}
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
		fmt.Printf("%-16q %4d filters  p50 %8s  p95 %8s  p99 %8s  most %8s  %+v\n", word, len(k.times), at(0.5), at(0.95), at(0.99), k.most.Round(10*time.Microsecond), k.worst)
	}
}

func (k *slowest) add(filter exchange.ArrivalFilter, took time.Duration) *slowest {
	if k == nil {
		k = &slowest{}
	}
	k.times = append(k.times, took)
	if took > k.most {
		k.most, k.worst = took, filter
	}
	return k
}
