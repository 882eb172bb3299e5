package pipeline_test

import (
	"bytes"
	"strings"
	"sync"
	"testing"

	"inbox/agents"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/normalized"
)

// withFile is a message with a large file and a large original.
func withFile(in exchange.Inbound, content, original string) exchange.Inbound {
	file := []byte(strings.Repeat(content, normalized.MaxInlineBytes))
	in.Original = []byte(strings.Repeat(original, normalized.MaxInlineBytes))
	in.Files = exchange.Contents{normalized.Digest(file): file}
	in.Message.Parts = append(in.Message.Parts, normalized.Part{
		Kind: normalized.PartFile, MIME: "image/png", Name: "logo.png", Size: int64(len(file)), BytesRef: normalized.Stored(normalized.Digest(file)),
	})
	return in
}

// TestMessageThatIsNotStoredLeavesNoFiles: messages that arrive at the same time pass every check that comes before the transaction. Those that
// it does not store leave no file, and the one that it stores has its own.
func TestMessageThatIsNotStoredLeavesNoFiles(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		files, err := blob.OpenFiles(t.TempDir(), blob.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e := startWith(t, url, repeats, agents.Settings{Unverified: agents.UnverifiedHold}, func(o *pipeline.Options) {
			o.Blobs = files
			o.Quotas = pipeline.Quotas{Sender: pipeline.Usage{Messages: 3, Bytes: 1 << 30}, All: pipeline.Usage{Messages: 3, Bytes: 1 << 30}}
		})
		guest := func(id, content, original string) exchange.Inbound {
			in := from("ana", id, id)
			in.Message.Sender.Identities, in.Message.Sender.Verified, in.Message.Sender.AuthMethod = nil, false, normalized.AuthNone
			return withFile(in, content, original)
		}
		holds := func(want int64) {
			t.Helper()
			if count, _, err := files.Size(t.Context()); err != nil || count != want {
				t.Errorf("%d files, want %d; %v", count, want, err)
			}
		}

		var group sync.WaitGroup
		for i := range 8 { // copies of one mail: each server on its way added a line to the original
			group.Go(func() {
				if _, err := e.pipeline.Receive(t.Context(), guest("same", "a", string(rune('b'+i)))); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		holds(2)

		for i := range 8 { // room for two more
			group.Go(func() {
				_, err := e.pipeline.Receive(t.Context(), guest("other"+string(rune('0'+i)), string(rune('0'+i)), string(rune('A'+i))))
				if err != nil && !fault.Is(err, fault.RateLimited) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		holds(6)

		if _, err := e.pipeline.Receive(t.Context(), guest("late", "a", "Z")); !fault.Is(err, fault.RateLimited) {
			t.Errorf("without room: %v", err)
		}
		holds(6)
		opened, err := files.Open(t.Context(), normalized.Digest(bytes.Repeat([]byte("a"), normalized.MaxInlineBytes)))
		if err != nil {
			t.Fatalf("a file of the held message: %v", err)
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
}
