package pipeline

import (
	"context"
	"testing"

	"inbox/agents"
	"inbox/internal/fault"
	"inbox/normalized"
)

// onlyOwn takes the digest of "own" and no other.
type onlyOwn struct{ agents.Files }

func (onlyOwn) Check(_ context.Context, parts []normalized.Part) ([]normalized.Part, error) {
	for _, part := range parts {
		if part.BytesRef != nil && part.BytesRef.Digest != normalized.Digest([]byte("own")) {
			return nil, fault.InField("digest", "names bytes of others")
		}
	}
	return parts, nil
}

// TestPiecesNameOwnBytesOnly: no piece of an answer that a stream shows, no whole answer and no question to another agent names bytes of
// others.
func TestPiecesNameOwnBytesOnly(t *testing.T) {
	file := func(content string) normalized.Part {
		return normalized.Part{Kind: normalized.PartFile, BytesRef: normalized.Stored(normalized.Digest([]byte(content)))}
	}
	for content, want := range map[string]bool{"own": true, "of others": false} {
		part := file(content)
		for name, delta := range map[string]normalized.Delta{
			"a piece":    {Kind: normalized.DeltaPartBegin, Part: &part},
			"an answer":  {Kind: normalized.DeltaResponse, Response: &normalized.Response{Parts: []normalized.Part{normalized.Text("x"), part}}},
			"a question": {Kind: normalized.DeltaResponse, Response: &normalized.Response{Dispatch: []normalized.Dispatch{{To: "@a@b.example", Parts: []normalized.Part{part}}}}},
		} {
			_, err := withOwnFiles(t.Context(), onlyOwn{}, delta)
			if (err == nil) != want {
				t.Errorf("%s with bytes that are %s: %v", name, content, err)
			}
			if err != nil && !fault.Of(unownedFiles(err)).Permanent {
				t.Errorf("%s is tried again", name)
			}
		}
	}
	if fault.Of(unownedFiles(fault.New(fault.Unavailable, "down"))).Permanent {
		t.Error("a database that is down fails the run for good")
	}
	if _, err := withOwnFiles(t.Context(), nil, normalized.Delta{Kind: normalized.DeltaText, Text: "x"}); err != nil {
		t.Error(err)
	}
}
