package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/normalized"
)

// TestFilesOfEarlierMessagesEndWithTheirMessage: contents to which only the history in a route refers stay as long as the route has them,
// and are deleted by the next sweep after the message was withdrawn, the conversation was deleted, or the time of files was over.
func TestFilesOfEarlierMessagesEndWithTheirMessage(t *testing.T) {
	t.Parallel()
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			s := openWith(t, store.Options{URL: url(t)})
			blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
			if err != nil {
				t.Fatal(err)
			}

			stored := func(thread, content string) (turn exchange.TurnRecord, digest string) {
				t.Helper()
				if digest, err = blobs.PutBytes(ctx, []byte(content)); err != nil {
					t.Fatal(err)
				}
				form := exchange.Format{Kind: exchange.FormatSchema, Description: "of my pears"}
				route, err := json.Marshal(map[string]any{"chat": true, exchange.RouteFormat: form, exchange.RouteHistory: []exchange.Earlier{
					{Role: normalized.RoleUser, Text: "hello"},
					{Role: normalized.RoleUser, Parts: []normalized.Part{normalized.Text("look"), {
						Kind: normalized.PartFile, MIME: "image/png", Name: "pear.png", Size: int64(len(content)), BytesRef: normalized.Stored(digest),
					}}},
				}})
				if err != nil {
					t.Fatal(err)
				}
				turn = exchange.TurnRecord{
					ID: uuid.Must(uuid.NewV7()).String(), Agent: "echo", Principal: "p", ThreadID: thread, State: exchange.StateSilent, AcceptedAt: time.Now(), UpdatedAt: time.Now(),
					Route: route, Message: normalized.Message{
						ID: thread, ThreadID: thread, Recipient: "@echo@inbox.test", ReceivedVia: normalized.ViaA2A, Parts: []normalized.Part{normalized.Text("and now?")},
						Raw: normalized.Raw{MediaType: "application/json", Ref: "sha256:" + normalized.Digest([]byte(thread))},
					},
				}
				err = s.InTx(ctx, func(tx *store.Tx) error {
					_, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: normalized.Digest([]byte(thread)), MediaType: "application/json", Body: []byte(thread)})
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				return turn, digest
			}
			sweep := func(left ...string) {
				t.Helper()
				if _, err := s.SweepBlobs(ctx, blobs, -time.Second); err != nil {
					t.Fatal(err)
				}
				count, _, err := blobs.Size(ctx)
				if err != nil || count != int64(len(left)) {
					t.Errorf("%d contents are left, want %d; %v", count, len(left), err)
				}
				for _, digest := range left {
					if _, err := blobs.Stat(ctx, digest); err != nil {
						t.Error(err)
					}
				}
			}
			history := func(turn exchange.TurnRecord) []exchange.Earlier {
				t.Helper()
				read, err := s.Turn(ctx, turn.ID)
				if err != nil {
					t.Fatal(err)
				}
				return exchange.EarlierIn(read.Route)
			}

			_, deleted := stored("deleted", "one picture")
			withdrawn, private := stored("withdrawn", "a third picture")
			expired, old := stored("expired", "another picture")
			if _, err := s.SweepOrphans(ctx, blobs, -time.Second); err != nil {
				t.Fatal(err)
			}
			for _, digest := range []string{deleted, old, private} {
				if needed, err := s.BlobNeeded(ctx, digest); err != nil || !needed {
					t.Errorf("a content of a route is not needed, %v", err)
				}
			}
			sweep(deleted, old, private)

			err = s.InTx(ctx, func(tx *store.Tx) error {
				_, err := tx.WithdrawTurn(ctx, withdrawn.ID, time.Now())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			sweep(deleted, old)
			if left := history(withdrawn); len(left) > 0 {
				t.Errorf("a withdrawn message has the history %+v", left)
			}
			if read, err := s.Turn(ctx, withdrawn.ID); err != nil || exchange.FormatIn(expired.Route) == nil || exchange.FormatIn(read.Route) != nil {
				t.Errorf("a withdrawn message has the route %s, %v", read.Route, err)
			}

			searched, err := blobs.PutBytes(ctx, []byte("a picture that another server showed"))
			if err != nil {
				t.Fatal(err)
			}
			namespace, key := pipeline.AncestorsOf("echo", "deleted")
			if err := s.State().Put(ctx, namespace, key, []byte(`{"turns":[{"messages":[{"parts":[{"bytes_ref":{"digest":"`+searched+`"}}]}]}]}`), time.Time{}); err != nil {
				t.Fatal(err)
			}
			sweep(deleted, old, searched)
			if _, err := s.ForgetThread(ctx, "echo", "deleted"); err != nil {
				t.Fatal(err)
			}
			sweep(old)
			if _, found, err := s.State().Get(ctx, namespace, key); err != nil || found {
				t.Errorf("what was said before the deleted conversation is there: %t, %v", found, err)
			}

			rules := store.Retention{Default: store.Periods{store.RetainFiles: time.Minute}}
			if _, err := s.Retain(ctx, rules, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			sweep()
			left := history(expired)
			if len(left) != 2 || left[0].Text != "hello" || len(left[1].Parts) != 2 || !strings.Contains(left[1].Parts[1].Content, "pear.png; it is not kept any more") {
				t.Errorf("the history is %+v", left)
			}
			if _, err := blobs.Stat(ctx, old); !fault.Is(err, fault.NotFound) {
				t.Errorf("the content is there: %v", err)
			}
		})
	}
}
