package store

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

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

// benchSpan is the time over which the stored messages are spread.
const benchSpan = 365 * 24 * time.Hour

// fillArrivals adds messages 1000 at a time, each thousand in a millisecond of its own. Half of all say hello, those to agent00 say alpha
// and no one else does, one in a hundred says invoice and three say needle. Agent "old" had only the first hundredth, one message in
// five is of the same sender.
func fillArrivals(b *testing.B, s *Store, rows int) {
	b.Helper()
	const insert = `WITH RECURSIVE numbers(n) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < $2),
		made AS (SELECT n, CASE WHEN n < $3 AND n % 2 = 0 THEN 'old' ELSE 'agent' || substr(CAST(100 + n * 7 % 20 AS TEXT), 2) END AS agent,
			CASE n / 3 % 3 WHEN 0 THEN 'email' WHEN 1 THEN 'activitypub' ELSE 'chat' END AS channel,
			CASE WHEN n % 5 = 0 THEN '@busy@busy.example' ELSE '@user' || (n * 31 % 50000) || '@domain' || (n * 31 % 500) || '.example' END AS sender,
			CASE WHEN n % 5000 = 17 THEN 'held' WHEN n % 100 = 3 THEN 'failed' WHEN n % 100 = 4 THEN 'silent' WHEN n % 1000 = 5 THEN 'refused' ELSE 'answered' END AS state
			FROM numbers)
		INSERT INTO turns (id, agent, recipient, received_via, principal, native_id, thread_id, reference, native_key, sender_key, thread_key, owner_key,
			reference_key, state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message, channel, sender, sender_domain)
		SELECT CAST($4 AS TEXT) || '-7000-8000-' || substr(CAST(1000000000000 + n AS TEXT), 2), agent, '@' || agent || '@inbox.example', 'email', 'idp.example ' || sender,
			'm' || n, 'thread ' || (n / 4), '', 'native ' || n, 'sender', 'thread ' || (n / 4), 'owner', '', state, '', 1, '', CAST($5 AS BIGINT), CAST($5 AS BIGINT), 'd' || n, '{}',
			'{"id":"m' || n || '","thread_id":"t","sender":{"address":"' || sender || '","display_name":"User ' || (n % 977) || '","auth_method":"none"},"recipient":"@' || agent ||
			'@inbox.example","received_via":"email","received_at":"2026-01-01T00:00:00Z","raw":{"ref":"","media_type":""},"parts":[{"kind":"text","content":"How do I fold a paper crane, and which paper is best? number' || n ||
			CASE WHEN n % 2 = 1 THEN ' hello' ELSE '' END || CASE WHEN agent = 'agent00' THEN ' alpha' ELSE '' END || CASE WHEN n % 100 = 7 THEN ' invoice' ELSE '' END ||
			CASE WHEN n % $6 = 5 THEN ' needle' ELSE '' END || '"}]}', channel, sender, CASE WHEN n % 5 = 0 THEN 'busy.example' ELSE 'domain' || (n * 31 % 500) || '.example' END
		FROM made`
	begun := time.Now().Add(-benchSpan)
	for from := 0; from < rows; from += 1000 {
		at := begun.Add(time.Duration(from) * (benchSpan / time.Duration(rows)))
		err := s.InTx(b.Context(), func(tx *Tx) error {
			return tx.do(b.Context(), insert, int64(from), int64(from+1000), int64(rows/100), firstID(at), micros(at), int64(rows/3))
		})
		if err != nil {
			b.Fatal(err)
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
	fillArrivals(b, s, rows)
	fmt.Printf("%d rows stored in %s\n", rows, time.Since(begun).Round(time.Second))

	begun = time.Now()
	if err := s.InTx(b.Context(), func(tx *Tx) error { return tx.rebuild(b.Context()) }); err != nil {
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
