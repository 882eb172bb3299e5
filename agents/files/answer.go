package files

import (
	"context"
	"fmt"
	"io"

	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// Put keeps a content for the answer of this run.
func (t *Turn) Put(ctx context.Context, from io.Reader) (digest string, size int64, err error) {
	digest, size, err = t.service.options.Blobs.Put(ctx, from)
	if err != nil {
		return "", 0, err
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept[digest] = true
	return digest, size, nil
}

func (t *Turn) has(digest string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kept[digest]
}

// Check lets parts of an answer of the run name contents of the turn and those that were handed in for the agent: bytes that are named by
// their digest leave with the answer, no matter who else has them. Their addresses are left out of the list that it returns, because the way out
// decides how the bytes travel. The fault for another content is Malformed and names the member.
func (t *Turn) Check(ctx context.Context, parts []normalized.Part) ([]normalized.Part, error) {
	return t.service.check(ctx, t.turn, parts, t.has)
}

// Check is Turn.Check for an answer that comes in before the run goes on with it.
func (s *Service) Check(ctx context.Context, turnID string, parts []normalized.Part) error {
	if !named(parts) {
		return nil
	}
	turn, err := s.options.Turn(ctx, turnID)
	if err != nil {
		return err
	}
	_, err = s.check(ctx, turn, parts, func(string) bool { return false })
	return err
}

// named reports whether parts refer to contents by digest.
func named(parts []normalized.Part) bool {
	for i := range parts {
		if ref := parts[i].BytesRef; ref != nil && ref.Kind == normalized.BytesContentAddressed {
			return true
		}
	}
	return false
}

func (s *Service) check(ctx context.Context, turn exchange.TurnRecord, parts []normalized.Part, kept func(digest string) bool) ([]normalized.Part, error) {
	if !named(parts) {
		return parts, nil
	}

	checked := append([]normalized.Part(nil), parts...)
	for i := range checked {
		ref := checked[i].BytesRef
		if ref == nil || ref.Kind != normalized.BytesContentAddressed {
			continue
		}

		size, allowed := checked[i].Size, kept(ref.Digest)
		if !allowed {
			var err error
			if size, allowed, err = s.ofAgent(ctx, turn, ref.Digest, size); err != nil {
				return nil, err
			}
		}
		if !allowed {
			return nil, fault.InField(fmt.Sprintf("parts[%d].bytes_ref.digest", i),
				"names bytes that are neither in the message nor handed in by this agent: POST the file to /v1/files first")
		}

		checked[i].BytesRef, checked[i].Size = normalized.Stored(ref.Digest), size
	}

	return checked, nil
}

// ofAgent reports whether an answer may name a content: the turn or its history has it, or it was handed in, whose size is known then.
func (s *Service) ofAgent(ctx context.Context, turn exchange.TurnRecord, digest string, stated int64) (size int64, allowed bool, err error) {
	if found, is := inMessage(turn.Message, digest); is && !found.native {
		return stated, true, nil
	}

	size, found, err := s.options.Uploads.Uploaded(ctx, turn.Agent, digest)
	if err != nil || found {
		return size, found, err
	}

	told, err := s.options.Told(ctx, turn)
	if err != nil {
		return 0, false, err
	}
	part, is := inMessage(told, digest)
	return stated, is && !part.native, nil
}
