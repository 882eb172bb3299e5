package storetest

import (
	"context"
	"sync"
	"testing"

	"inbox/exchange"
	"inbox/normalized"
)

// Uploads are files that programs hand in for answers.
type Uploads interface {
	ReserveUpload(ctx context.Context, upload exchange.Upload, most int64) (fits bool, err error)
	FinishUpload(ctx context.Context, id, digest string) error
	DropUpload(ctx context.Context, id string) error
	Uploaded(ctx context.Context, agent, digest string) (size int64, found bool, err error)
	BlobNeeded(ctx context.Context, digest string) (bool, error)
}

var uploadCases = map[string]func(*testing.T, *probe){
	"belong to one agent":       uploadOwner,
	"are bounded":               uploadBounds,
	"count until an answer has": uploadUse,
}

func (p *probe) upload(agent string, size, most int64) (exchange.Upload, bool) {
	p.Helper()
	upload := exchange.Upload{ID: newID(), Agent: agent, Size: size}
	fits, err := p.Uploads.ReserveUpload(p.Context(), upload, most)
	p.ok(err)
	return upload, fits
}

func uploadOwner(t *testing.T, p *probe) {
	digest := normalized.Digest([]byte("file"))
	upload, fits := p.upload("Echo", 4, 10)
	if _, found, err := p.Uploads.Uploaded(t.Context(), "echo", digest); !fits || found || err != nil {
		t.Errorf("on its way: fits %t, found %t, %v", fits, found, err)
	}
	p.ok(p.Uploads.FinishUpload(t.Context(), upload.ID, digest))
	for agent, want := range map[string]bool{"echo": true, "ECHO": true, "other": false} {
		if size, found, err := p.Uploads.Uploaded(t.Context(), agent, digest); found != want || err != nil || found && size != 4 {
			t.Errorf("%s: %d, %t, %v", agent, size, found, err)
		}
	}
	if _, found, _ := p.Uploads.Uploaded(t.Context(), "echo", ""); found {
		t.Error("no digest is found")
	}
	if needed, err := p.Uploads.BlobNeeded(t.Context(), digest); !needed || err != nil {
		t.Errorf("needed %t, %v", needed, err)
	}
}

func uploadBounds(t *testing.T, p *probe) {
	if _, fits := p.upload("echo", 11, 10); fits {
		t.Error("a first file over the bound fits")
	}
	var taken sync.WaitGroup
	var mu sync.Mutex
	var in []exchange.Upload
	for range 8 {
		taken.Go(func() {
			upload := exchange.Upload{ID: newID(), Agent: "echo", Size: 4}
			fits, err := p.Uploads.ReserveUpload(t.Context(), upload, 10)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			}
			if fits {
				in = append(in, upload)
			}
		})
	}
	taken.Wait()
	if len(in) != 2 {
		t.Fatalf("%d files of 4 bytes fit into 10", len(in))
	}
	if _, fits := p.upload("other", 10, 10); !fits {
		t.Error("another agent has no room")
	}
	p.ok(p.Uploads.DropUpload(t.Context(), in[0].ID))
	p.ok(p.Uploads.DropUpload(t.Context(), in[0].ID))
	if _, fits := p.upload("echo", 6, 10); !fits {
		t.Error("what was dropped still counts")
	}
	if _, fits := p.upload("echo", 1, 10); fits {
		t.Error("it was dropped twice")
	}
}

func uploadUse(t *testing.T, p *probe) {
	digest := normalized.Digest([]byte("file"))
	for range 2 { // handed in again after a crash
		upload, _ := p.upload("echo", 4, 10)
		p.ok(p.Uploads.FinishUpload(t.Context(), upload.ID, digest))
	}
	turn := p.message("m1")
	p.insert(turn)
	response := p.reply(turn).Response
	response.Parts = append(response.Parts, normalized.Part{Kind: normalized.PartFile, BytesRef: normalized.Stored(digest)})
	p.ends(turn, response)
	if _, fits := p.upload("echo", 10, 10); !fits {
		t.Error("a file that an answer has still counts")
	}
	if _, found, err := p.Uploads.Uploaded(t.Context(), "echo", digest); !found || err != nil {
		t.Errorf("it cannot be named again: %v", err)
	}
}
