package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/normalized"
)

// brokenBlobs fails as a process does that dies before the bytes are gone.
type brokenBlobs struct{ err error }

func (b brokenBlobs) DeleteIdle(context.Context, string, time.Time) (bool, error) {
	return false, b.err
}

// TestErasedFilesAreDeleted: the bytes of an erased original and of its files go when nothing refers to them any more, also
// after a crash in the middle; what somebody else's message has stays.
func TestErasedFilesAreDeleted(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			ctx, directory := t.Context(), t.TempDir()
			s := openWith(t, store.Options{URL: url(t)})
			blobs, err := blob.OpenFiles(directory, blob.Options{})
			if err != nil {
				t.Fatal(err)
			}
			put := func(text string) string {
				digest, err := blobs.PutBytes(ctx, []byte(text))
				if err != nil {
					t.Fatal(err)
				}
				return digest
			}
			original, own, shared := put("a long mail"), put("a picture"), put("a picture that two have")
			insert := func(id, original string, files ...string) exchange.TurnRecord {
				turn := exchange.TurnRecord{
					ID: id, Agent: "echo", Principal: "p " + id, ThreadID: id, State: exchange.StateAnswered, AcceptedAt: time.Now(),
					Message: normalized.Message{
						ID: id, ThreadID: id, Recipient: "@echo@inbox.test", ReceivedVia: normalized.ViaEmail, Parts: []normalized.Part{normalized.Text("hello")},
						Raw: normalized.Raw{MediaType: "message/rfc822", Ref: "sha256:" + original},
					},
				}
				for _, digest := range files {
					turn.Message.Parts = append(turn.Message.Parts, normalized.Part{
						Kind: normalized.PartFile, MIME: "image/png", BytesRef: &normalized.BytesRef{Kind: "content_addressed", Algo: "sha256", Digest: digest},
					})
				}
				err := s.InTx(ctx, func(tx *store.Tx) error {
					_, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: original, MediaType: "message/rfc822"})
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				return turn
			}
			first := insert("01936f2a-0000-7000-8000-00000000000a", original, own, shared)
			second := insert("01936f2a-0000-7000-8000-00000000000b", put("another long mail"), shared)
			sweep := func(idle time.Duration, want int) {
				t.Helper()
				if deleted, err := s.SweepBlobs(ctx, blobs, idle); err != nil || deleted != want {
					t.Fatalf("%d deleted, %v; want %d", deleted, err, want)
				}
			}
			has := func(digest string, want bool) {
				t.Helper()
				if _, err := blobs.Stat(ctx, digest); fault.Is(err, fault.NotFound) == want {
					t.Errorf("%s: %v", digest, err)
				}
			}
			sweep(0, 0)
			has(original, true)
			withdraw := func(turnID string) {
				t.Helper()
				err := s.InTx(ctx, func(tx *store.Tx) error {
					_, err := tx.WithdrawTurn(ctx, turnID, time.Now())
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			withdraw(first.ID)
			if _, err := s.SweepBlobs(ctx, brokenBlobs{errors.New("killed")}, 0); err == nil {
				t.Fatal("the failure is not reported")
			}
			sweep(time.Hour, 0) // somebody has put it just now
			has(original, true)
			if err := os.Remove(filepath.Join(directory, own[:2], own[2:4], own)); err != nil { // killed after the bytes were gone
				t.Fatal(err)
			}
			sweep(-time.Second, 2)
			has(original, false)
			has(own, false)
			has(shared, true)
			if left, err := s.Garbage(ctx, "", 10); err != nil || len(left) != 0 {
				t.Errorf("%v is left, %v", left, err)
			}
			third := insert("01936f2a-0000-7000-8000-00000000000c", put("a third mail"), shared)
			withdraw(third.ID)
			seen, err := s.Garbage(ctx, "", 10)
			if err != nil || len(seen) != 2 {
				t.Fatalf("%v, %v", seen, err)
			}
			withdraw(second.ID) // after a sweep has found that the second one needs it
			for _, content := range seen {
				if err := s.DropGarbage(ctx, content); err != nil {
					t.Fatal(err)
				}
			}
			sweep(-time.Second, 2)
			has(shared, false)
		})
	}
}
