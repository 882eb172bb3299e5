package operator

import (
	"bytes"
	"context"
	"io"
	"strings"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Original is a message as it came.
type Original struct {
	MediaType string
	Content   io.ReadCloser
}

// Suffix is the end of a file name for the original, with its dot.
func (o Original) Suffix() string {
	switch {
	case o.MediaType == "message/rfc822":
		return ".eml"
	case strings.Contains(o.MediaType, "json"):
		return ".json"
	}
	return ".bin"
}

// Original returns a message as it came, by any of its ids: activity JSON, the request of A2A, RFC 5322 bytes. fault.NotFound when there is no such message,
// or when its original is not kept any more. The caller closes it.
func (m Messages) Original(ctx context.Context, id string) (Original, error) {
	turnID, err := m.index.Turn(ctx, id)
	if err != nil {
		return Original{}, err
	}
	turn, err := m.Timelines.Turn(ctx, turnID)
	if err != nil {
		return Original{}, err
	}

	digest, is := strings.CutPrefix(turn.Message.Raw.Ref, "sha256:")
	if !is {
		return Original{}, fault.New(fault.NotFound, "the original of the message is not kept")
	}
	found := Original{MediaType: turn.Message.Raw.MediaType}
	kept, err := m.Originals.Original(ctx, digest)
	if err != nil {
		return found, err
	}
	if kept.Body != nil {
		found.Content = io.NopCloser(bytes.NewReader(kept.Body))
		return found, nil
	}

	files, err := m.Files()
	if err != nil {
		return found, err
	}
	found.Content, err = files.Open(ctx, digest)
	return found, err
}

// HeldFiles open the files of answers that are held back.
type HeldFiles struct {
	approvals Approvals
	files     func() (exchange.Files, error)
}

// Open returns a file of the answer that an approval holds back, by its place in exchange.Approval.Files. fault.NotFound when there is no
// such file, or when only an address elsewhere is known. The caller closes it.
func (h HeldFiles) Open(ctx context.Context, approval string, place int) (exchange.HeldFile, io.ReadCloser, error) {
	found, err := h.approvals.Approval(ctx, approval)
	if err != nil {
		return exchange.HeldFile{}, nil, err
	}
	if place < 0 || place >= len(found.Files) || found.Files[place].SHA256 == "" {
		return exchange.HeldFile{}, nil, fault.New(fault.NotFound, "the answer has no such file here")
	}

	file := found.Files[place]
	for i := range found.Draft.Parts {
		ref := found.Draft.Parts[i].BytesRef
		if ref == nil {
			continue
		}
		if content, err := ref.Bytes(); err == nil && normalized.Digest(content) == file.SHA256 {
			return file, io.NopCloser(bytes.NewReader(content)), nil
		}
	}
	files, err := h.files()
	if err != nil {
		return file, nil, err
	}
	content, err := files.Open(ctx, file.SHA256)
	return file, content, err
}

// Thread returns the messages of a conversation with an agent, newest first: at most limit (1 to 500). Before is "" or the cursor of
// exchange.TurnFilter.
func (a Arrivals) Thread(ctx context.Context, agent, thread, before string, limit int) ([]exchange.TurnRecord, error) {
	turns, err := a.store.Turns(ctx, exchange.TurnFilter{Agent: agent, ThreadID: thread, Before: before, Limit: limit, ByArrival: true})
	return listed(turns), err
}
