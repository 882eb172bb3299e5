package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/children"
	"inbox/normalized"
)

// Environment of the child process of TestErasureIsKilled.
const (
	EraseURL       = "INBOX_STORE_ERASE_URL"
	eraseDirectory = "INBOX_STORE_ERASE_DIRECTORY"
)

// EraseUntilKilled does the erasures that are open, and waits to be killed.
func EraseUntilKilled(url string) {
	s, err := Open(context.Background(), Options{URL: url, DataDir: os.Getenv(eraseDirectory)})
	if err == nil {
		err = eraseOpen(context.Background(), s)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	select {}
}

// eraseOpen does the erasures that are open. A portion that another process has done meanwhile, such as one that was killed, is looked at again.
func eraseOpen(ctx context.Context, s *Store) error {
	for {
		open, err := s.OpenErasures(ctx, "")
		if err != nil || len(open) == 0 {
			return err
		}
		if err := eraseStage(ctx, s, open[0]); err != nil && !errors.Is(err, errMoved) {
			return fmt.Errorf("stage %s: %w", open[0].Receipt.Stage, err)
		}
	}
}

// TestErasureIsKilled: a process that erases a person is killed in each stage that has portions. Another one goes on, nothing of the person is left,
// and the receipt, which ends with the last stage alone, counts everything once.
func TestErasureIsKilled(t *testing.T) {
	const messages, others = 90, 260
	const secret = "zyxmarkerwvu"
	names := PersonNames{Principals: []string{"peer.example https://peer.example/users/bob"}, Addresses: []identity.ProvenAddress{"@bob@peer.example"}}

	for name, url := range postgresAndSQLite() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, address, directory := t.Context(), url(t), t.TempDir()
			s, err := Open(ctx, Options{URL: address, DataDir: directory})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })

			err = s.InTx(ctx, func(tx *Tx) error {
				for n := range messages {
					for _, turn := range []exchange.TurnRecord{
						said(fmt.Sprint("bob", n), names.Principals[0], string(names.Addresses[0]), secret, true),
						said(fmt.Sprint("ann", n), "peer.example https://peer.example/users/ann", "@ann@peer.example", "another", true),
					} {
						if _, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: turn.ID, MediaType: "message/rfc822", Body: []byte(normalized.PlainText(turn.Message.Parts))}); err != nil {
							return err
						}
						// what an agent noted of the conversation, in which the other one says something too
						if err := tx.PutDocument(ctx, notesOfTurns[0], turn.ID+"/note", []byte(secret), time.Time{}); err != nil {
							return err
						}
					}
				}
				for n := range others {
					record := exchange.AuditRecord{ID: newRowID(), At: time.Now(), Code: "access:refused", Agent: "echo", Principal: names.Principals[0], Detail: "bob@peer.example may not"}
					if err := tx.Audit(ctx, record); err != nil {
						return err
					}
					if err := tx.sql.Do(ctx, `INSERT INTO watches (id, agent, principal, reference, name, owner_key, reference_key, name_key, created_at, data)
						VALUES ($1, 'echo', $2, $1, '', '', $1, '', 0, '{}')`, newRowID(), names.Principals[0]); err != nil {
						return err
					}
					if err := tx.PutDocument(ctx, "activitypub.note", fmt.Sprint(n), []byte("a note of @bob@peer.example: "+secret), time.Time{}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			begun, err := s.BeginErasure(ctx, names, []string{"x"}, "operator")
			if err != nil {
				t.Fatal(err)
			}

			state := func() Erasure {
				e, err := s.Erasure(ctx, begun.ID)
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			reached := map[string]int{EraseFind: 0, EraseStop: 1, EraseEmpty: 2, EraseDerived: 3, EraseTell: 4, EraseNames: 5, EraseRemove: 6, EraseContents: 7, EraseClean: 8, EraseDone: 9}
			for _, stage := range []string{EraseFind, EraseEmpty, EraseDerived, EraseNames, EraseNames, EraseRemove} {
				before := fmt.Sprint(state())
				child := exec.CommandContext(ctx, os.Args[0], "-test.run=^$")
				child.Env, child.Stderr = append(os.Environ(), EraseURL+"="+address, eraseDirectory+"="+directory), os.Stderr
				if err := children.Start(child); err != nil {
					t.Fatal(err)
				}
				await.Until(t, "the child is in the stage "+stage, func() bool {
					now := state()
					return reached[now.Receipt.Stage] >= reached[stage] && fmt.Sprint(now) != before
				})
				if err := child.Process.Kill(); err != nil {
					t.Error(err)
				}
				_ = child.Wait()
				t.Logf("killed in the stage %s, after %q: %v", state().Receipt.Stage, state().After, state().Receipt.Counts)
			}

			if err := eraseOpen(ctx, s); err != nil {
				t.Fatal(err)
			}
			receipt := state().Receipt
			for what, want := range map[string]int64{"messages": messages, "webhooks": others, "audit": others, "documents": others} {
				if receipt.Counts[what] != want {
					t.Errorf("the receipt counts %d %s, want %d: %v", receipt.Counts[what], what, want, receipt.Counts)
				}
			}
			for _, text := range []string{secret, "bob@peer.example", "users/bob"} {
				if found := everywhere(ctx, t, s, strings.ToLower(text)); len(found) != 0 {
					t.Errorf("%q is in %v", text, found)
				}
			}
			var left int64
			if _, err := first(ctx, s.engine.Reader(), `SELECT COUNT(*) FROM turns`, nil, &left); err != nil || left != messages {
				t.Errorf("%d messages of the other one are left, %v", left, err)
			}
		})
	}
}
