package backup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/backup"
	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/blob"
	"inbox/normalized"
)

// BenchmarkBackup measures, for a database with INBOX_BENCH_MESSAGES answered messages (10,000): how long a backup, its check, its restore
// on both databases and a move take, how large it is, and which part of the acceptances of a quiet time are left while it runs.
func BenchmarkBackup(b *testing.B) {
	messages, err := strconv.Atoi(os.Getenv("INBOX_BENCH_MESSAGES"))
	if err != nil {
		messages = 10_000
	}
	for _, kind := range []string{"sqlite", "postgres"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				measure(b, kind, messages)
			}
		})
	}
}

// BenchmarkRestore measures how many rows a second, and in a second of this process on the processor, a restore of INBOX_BENCH_MESSAGES (10,000)
// answered messages puts into either database. That of PostgreSQL's own processes is not in the latter.
func BenchmarkRestore(b *testing.B) {
	messages, err := strconv.Atoi(os.Getenv("INBOX_BENCH_MESSAGES"))
	if err != nil {
		messages = 10_000
	}
	from := place{Options: store.Options{URL: "sqlite", DataDir: b.TempDir()}}
	files, err := blob.OpenFiles(filepath.Join(from.DataDir, "blobs"), blob.Options{})
	if err != nil {
		b.Fatal(err)
	}
	source, err := store.Open(b.Context(), from.Options)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	accept(b, source, func(done int64) bool { return done < int64(messages) })
	directory := b.TempDir()
	written, err := backup.Write(b.Context(), backup.Options{Directory: directory, Sources: []backup.Source{{Domain: "a.test", Store: source, Blobs: files}}})
	if err != nil {
		b.Fatal(err)
	}

	for _, kind := range []string{"sqlite", "postgres"} {
		b.Run(kind, func(b *testing.B) {
			rows, spent := int64(0), processorTime()
			for b.Loop() {
				target := place{Options: store.Options{URL: "sqlite", DataDir: b.TempDir()}}
				if kind == "postgres" {
					target.URL = storetest.Postgres(b)
				}
				if target.blobs, err = blob.OpenFiles(filepath.Join(target.DataDir, "blobs"), blob.Options{}); err != nil {
					b.Fatal(err)
				}
				restored, err := backup.Restore(b.Context(), backup.RestoreOptions{Directory: directory, Manifest: written.Manifest, Targets: []backup.Target{target.target()}})
				if err != nil {
					b.Fatal(err)
				}
				rows += restored[0].Rows
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(rows)/(processorTime()-spent).Seconds(), "rows/cpu-s")
		})
	}
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func measure(b *testing.B, kind string, messages int) {
	b.Helper()
	from := place{Options: store.Options{URL: "sqlite", DataDir: b.TempDir()}}
	if kind == "postgres" {
		from.URL = storetest.Postgres(b)
	}
	files, err := blob.OpenFiles(filepath.Join(from.DataDir, "blobs"), blob.Options{})
	if err != nil {
		b.Fatal(err)
	}
	source, err := store.Open(b.Context(), from.Options)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	accept(b, source, func(done int64) bool { return done < int64(messages) })

	report := func(name string, begun time.Time) {
		b.ReportMetric(time.Since(begun).Seconds(), name+"-s")
	}
	directory := b.TempDir()
	begun := time.Now()
	written, err := backup.Write(b.Context(), backup.Options{Directory: directory, Sources: []backup.Source{{Domain: "a.test", Store: source, Blobs: files}}})
	if err != nil {
		b.Fatal(err)
	}
	report("backup", begun)
	own, _ := written.Size()
	b.ReportMetric(float64(own)/(1<<20), "backup-MiB")

	begun = time.Now()
	if found, err := backup.Verify(b.Context(), directory, "", nil, nil); err != nil || !found.Intact() {
		b.Fatalf("%v %v", found.Problems, err)
	}
	report("verify", begun)

	for _, to := range []string{"sqlite", "postgres"} {
		target := place{Options: store.Options{URL: "sqlite", DataDir: b.TempDir()}}
		if to == "postgres" {
			target.URL = storetest.Postgres(b)
		}
		if target.blobs, err = blob.OpenFiles(filepath.Join(target.DataDir, "blobs"), blob.Options{}); err != nil {
			b.Fatal(err)
		}
		begun = time.Now()
		if _, err := backup.Restore(b.Context(), backup.RestoreOptions{Directory: directory, Manifest: written.Manifest, Targets: []backup.Target{target.target()}}); err != nil {
			b.Fatal(err)
		}
		report("restore-"+to, begun)
	}

	quiet := rate(b, source, func() { <-time.After(3 * time.Second) })
	busy := rate(b, source, func() {
		if _, err := backup.Write(b.Context(), backup.Options{Directory: b.TempDir(), Sources: []backup.Source{{Domain: "a.test", Store: source, Blobs: files}}}); err != nil {
			b.Error(err)
		}
	})
	b.ReportMetric(quiet, "quiet-accepts/s")
	b.ReportMetric(busy, "accepts/s-during-backup")

	if kind == "sqlite" {
		target := place{Options: store.Options{URL: storetest.Postgres(b), DataDir: b.TempDir()}}
		begun = time.Now()
		_, err := backup.Move(b.Context(), backup.MoveOptions{
			From: []backup.MoveSource{{Domain: "a.test", Store: source, Name: "here"}}, Targets: []backup.Target{target.target()},
		})
		if err != nil {
			b.Fatal(err)
		}
		report("move", begun)
	}
}

// rate counts what is accepted in a second while something else goes on.
func rate(b *testing.B, s *store.Store, meanwhile func()) float64 {
	b.Helper()
	var over atomic.Bool
	begun, ended := time.Now(), make(chan time.Duration, 1)
	go func() {
		meanwhile()
		ended <- time.Since(begun)
		over.Store(true)
	}()
	done := accept(b, s, func(int64) bool { return !over.Load() })
	return float64(done) / (<-ended).Seconds()
}

// accept stores messages with their originals and answers, as 16 callers at once, as long as more says so.
func accept(b *testing.B, s *store.Store, more func(done int64) bool) int64 {
	b.Helper()
	var done atomic.Int64
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for more(done.Add(1) - 1) {
				id := uuid.Must(uuid.NewV7()).String()
				turn := exchange.TurnRecord{
					ID: id, Agent: "echo", Principal: "p", ThreadID: id, State: exchange.StateAnswered, AcceptedAt: time.Now(), Channel: "email",
					Message: normalized.Message{ID: id, ThreadID: id, Recipient: "@echo@a.test", ReceivedVia: normalized.ViaEmail, Parts: []normalized.Part{normalized.Text(strings.Repeat("some words ", 30))}},
				}
				response := normalized.Response{Parts: []normalized.Part{normalized.Text(strings.Repeat("an answer ", 30))}}
				reply := exchange.Reply{ID: exchange.DerivedID(id, "reply"), TurnID: id, Agent: "echo", Response: response, CreatedAt: time.Now()}
				digest := strings.ReplaceAll(id, "-", "")
				original := pipeline.Original{Digest: digest + digest, MediaType: "message/rfc822", Body: []byte(strings.Repeat(fmt.Sprintf("Header: %s\r\n", id), 30))}
				err := s.InTx(b.Context(), func(tx *store.Tx) error {
					if _, _, err := tx.InsertTurn(b.Context(), turn, original); err != nil {
						return err
					}
					return tx.InsertReply(b.Context(), reply, "")
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()
	return done.Load()
}
