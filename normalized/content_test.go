package normalized

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
)

// kept keeps bytes in memory; nil fails.
type kept map[string][]byte

func (k kept) Put(_ context.Context, r io.Reader) (string, int64, error) {
	if k == nil {
		return "", 0, errors.New("the disk is full")
	}
	content, err := io.ReadAll(r)
	k[Digest(content)] = content
	return Digest(content), int64(len(content)), err
}

// TestContentOfFiles: what is small travels with the message, what is large is kept once and named by its digest.
func TestContentOfFiles(t *testing.T) {
	file := Part{Kind: PartFile, MIME: "image/png", Name: "dot.png"}
	for size, want := range map[int]string{0: BytesInline, 1: BytesInline, MaxInlineBytes: BytesInline, MaxInlineBytes + 1: BytesContentAddressed} {
		content, store := bytes.Repeat([]byte("x"), size), kept{}
		part, err := file.Carrying(t.Context(), content, store)
		if err != nil || part.BytesRef.Kind != want || part.Size != int64(size) || part.Name != file.Name || file.BytesRef != nil {
			t.Errorf("%d bytes: %+v, %v", size, part, err)
		}
		if got, err := part.BytesRef.Bytes(); want == BytesInline && (err != nil || !bytes.Equal(got, content) || len(store) != 0) {
			t.Errorf("%d bytes inline: %v, %d kept", size, err, len(store))
		}
		if want == BytesContentAddressed && !bytes.Equal(store[part.BytesRef.Digest], content) {
			t.Errorf("%d bytes are not kept", size)
		}
	}
	if _, err := file.Carrying(t.Context(), make([]byte, MaxInlineBytes+1), kept(nil)); err == nil {
		t.Error("a file that could not be kept was carried")
	}
}
