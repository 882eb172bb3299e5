package store

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/children"
)

// Environment of the child process of TestRetentionIsKilled.
const (
	RetainURL       = "INBOX_STORE_RETAIN_URL"
	retainDirectory = "INBOX_STORE_RETAIN_DIRECTORY"
)

// killedRules end something of every kind at a time of its own.
var killedRules = Retention{Default: Periods{
	RetainOriginals: 24 * time.Hour, RetainFiles: 48 * time.Hour, RetainSteps: 72 * time.Hour, RetainDemands: 96 * time.Hour,
	RetainMessages: 240 * time.Hour, RetainRecords: 960 * time.Hour,
}}

// RetainUntilKilled removes what has reached its end, and waits to be killed.
func RetainUntilKilled(url string) {
	s, err := Open(context.Background(), Options{URL: url, DataDir: os.Getenv(retainDirectory)})
	if err == nil {
		_, err = s.Retain(context.Background(), killedRules, time.Now())
	}
	if err == nil {
		err = s.DropOriginals(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// TestRetentionIsKilled: a process that removes what has reached its end is killed in the middle of its portions, several times. Another one goes
// on, and what is left is what the rules say: each message whole or gone as a kind says, nothing lost of what stays.
func TestRetentionIsKilled(t *testing.T) {
	for name, url := range postgresAndSQLite() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, directory, now := url(t), t.TempDir(), time.Now().Truncate(time.Millisecond)
			s, err := Open(t.Context(), Options{URL: address, DataDir: directory})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			turns := make([]aged, 120)
			for i := range turns {
				state := []string{exchange.StateAnswered, exchange.StateAnswered, exchange.StateWaiting}[i%3]
				age := now.Add(-time.Duration(len(turns)-i)*13*time.Hour - time.Minute)
				turns[i] = keptTurn(t, s, i, "echo", strings.Repeat(string("abcdef"[i%6]), 64), age, age, state, i%7 == 0)
			}

			progress := func() string {
				var done string
				query := `SELECT COALESCE(MAX(updated_at), 0) || ' ' || (SELECT COUNT(*) FROM retention_later) FROM retention_cursors`
				if _, err := first(t.Context(), s.engine.Reader(), query, nil, &done); err != nil {
					t.Fatal(err)
				}
				return done
			}
			for range 3 {
				before := progress()
				child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
				child.Env, child.Stderr = append(os.Environ(), RetainURL+"="+address, retainDirectory+"="+directory), os.Stderr
				if err := children.Start(child); err != nil {
					t.Fatal(err)
				}
				await.Until(t, "the child has done some portions", func() bool { return progress() != before })
				if err := child.Process.Kill(); err != nil {
					t.Error(err)
				}
				_ = child.Wait()
			}

			for range 2 { // what the last child had sent to PostgreSQL may still come to its end
				if _, err := s.Retain(t.Context(), killedRules, now); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.DropOriginals(t.Context()); err != nil {
				t.Fatal(err)
			}
			needed := map[string]bool{}
			for i := range turns {
				turns[i].apply(killedRules, now)
				if got := found(t, s, turns[i]); !maps.Equal(got, turns[i].left) {
					t.Errorf("%+v has %v", turns[i], got)
				}
				needed[turns[i].original] = needed[turns[i].original] || turns[i].left[RetainOriginals]
			}
			for digest, want := range needed {
				var one int64
				if is, err := first(t.Context(), s.engine.Reader(), `SELECT 1 FROM originals WHERE digest = $1`, []any{digest}, &one); is != want || err != nil {
					t.Errorf("the native form %s is there: %t, %v; want %t", digest[:1], is, err, want)
				}
			}
		})
	}
}
