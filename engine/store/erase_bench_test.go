package store

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
)

// BenchmarkErase erases a person with as many messages as INBOX_BENCH_ROWS says, 20,000 by default: a half of them in one conversation, to which
// another sender adds one in ten, and as many audit rows, webhooks and runs of tasks. Fifty messages of other senders are stored a second; for each stage it
// reports its time and the longest wait of these: go test -run '^$' -bench Erase -benchtime 1x ./engine/store
func BenchmarkErase(b *testing.B) {
	rows := 20_000
	if text := os.Getenv(benchRowsVariable); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	for name, url := range postgresAndSQLite() {
		b.Run(name, func(b *testing.B) { benchErase(b, Options{DataDir: b.TempDir(), URL: url(b)}, rows) })
	}
}

func benchErase(b *testing.B, options Options, rows int) {
	s, err := Open(b.Context(), options)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	names := PersonNames{Principals: []string{"peer.example https://peer.example/users/bob"}, Addresses: []identity.ProvenAddress{"@bob@peer.example"}}
	fillPerson(b, s, names, rows)

	var longest atomic.Int64
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ctx.Err() == nil; n++ {
			begun := time.Now()
			err := s.InTx(ctx, func(tx *Tx) error {
				_, _, err := tx.InsertTurn(ctx, said(fmt.Sprint("beside", n), "peer.example https://peer.example/users/ann", "@ann@peer.example", "hello", true), pipeline.Original{})
				return err
			})
			if err != nil && ctx.Err() == nil {
				b.Error(err)
			}
			longest.Store(max(longest.Load(), time.Since(begun).Microseconds()))
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()

	b.ResetTimer()
	begun, stage := time.Now(), EraseFind
	erasePerson(b, s, names, func(next string) {
		if next == stage {
			return
		}
		b.ReportMetric(time.Since(begun).Seconds(), stage+"-s")
		b.ReportMetric(float64(longest.Swap(0))/1000, stage+"-longest-wait-ms")
		begun, stage = time.Now(), next
	})
	stop()
	<-ended
}

// fillPerson stores what BenchmarkErase erases.
func fillPerson(b *testing.B, s *Store, names PersonNames, rows int) {
	b.Helper()
	begun := time.Now().Add(-24 * time.Hour)
	for at := 0; at < rows; at += 500 {
		err := s.InTx(b.Context(), func(tx *Tx) error {
			for n := at; n < min(at+500, rows); n++ {
				turn := said(fmt.Sprint("m", n), names.Principals[0], string(names.Addresses[0]), strings.Repeat("some words ", 30), true)
				turn.ID = idBefore(begun.Add(time.Duration(n)*time.Millisecond)) + turn.ID[13:] // old ones: of new ones files and native forms may still come
				if turn.ThreadID = fmt.Sprint("thread", n); n%2 == 0 {
					turn.ThreadID = "long"
				}
				if n%10 == 0 {
					turn.Principal, turn.Message.Sender.Address = "peer.example https://peer.example/users/ann", identity.Stated("@ann@peer.example")
				}
				turn.Message.ThreadID = turn.ThreadID
				original := pipeline.Original{Digest: turn.ID, MediaType: "message/rfc822", Body: []byte(strings.Repeat("x", 1000))}
				if _, _, err := tx.InsertTurn(b.Context(), turn, original); err != nil {
					return err
				}
				if err := tx.Audit(b.Context(), exchange.AuditRecord{ID: newRowID(), At: time.Now(), Code: "access:refused", Agent: "echo", Principal: names.Principals[0], Detail: "no"}); err != nil {
					return err
				}
				if err := tx.sql.Do(b.Context(), `INSERT INTO watches (id, agent, principal, reference, name, owner_key, reference_key, name_key, created_at, data)
					VALUES ($1, 'echo', $2, $1, '', '', $1, '', 0, '{}')`, newRowID(), names.Principals[0]); err != nil {
					return err
				}
				if err := tx.sql.Do(b.Context(), `INSERT INTO task_runs (id, created_at, updated_at, run, owner, turn_id) VALUES ($1, 0, 0, '{}', $2, '')`, newRowID(), names.Principals[0]); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
