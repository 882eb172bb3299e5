package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"inbox/exchange"
	"inbox/normalized"
)

const (
	ancestorNamespace = "pipeline.ancestors" // hash of agent and thread → ancestry
	ancestorLife      = 30 * 24 * time.Hour  // after the last turn of the thread
	ancestorRenewal   = 24 * time.Hour       // its life is written down anew at most so often
	ancestorTries     = 2                    // searches that are begun for one turn; those that a crash cut off count
	maxAncestorTurns  = 16                   // turns of a thread whose ancestors are kept
	maxAncestors      = 100                  // messages that are kept for one turn
)

// ancestry is what was said in a thread where this server was not told, before each turn that entered it late. It is kept
// so that every later history of the thread has the same bytes, and no crash makes us ask other servers again and again.
type ancestry struct {
	Kept  time.Time     `json:"kept"` // when it was last written
	Turns []ancestorsOf `json:"turns"`
}

type ancestorsOf struct {
	Turn     string                         `json:"turn"`
	Tries    int                            `json:"tries"`
	Done     bool                           `json:"done"`
	Messages []normalized.HistoricalMessage `json:"messages,omitempty"`
}

func (a *ancestry) of(turnID string) *ancestorsOf {
	for i := range a.Turns {
		if a.Turns[i].Turn == turnID {
			return &a.Turns[i]
		}
	}
	return &ancestorsOf{}
}

// messages counts those of all turns.
func (a *ancestry) messages() (count int) {
	for _, one := range a.Turns {
		count += len(one.Messages)
	}
	return count
}

func ancestorKey(turn exchange.TurnRecord) string {
	sum := sha256.Sum256([]byte(turn.Agent + "\n" + turn.ThreadID))
	return hex.EncodeToString(sum[:])
}

// ancestors returns what is known of the thread, and searches for what was said before this turn if it entered late. Turns
// of a thread run one at a time, so nobody else writes the document.
func (s *Service) ancestors(ctx context.Context, turn exchange.TurnRecord, begun bool) (*ancestry, error) {
	known := new(ancestry)
	historian, is := s.options.Channels.Channel(turn.Channel).(exchange.Historian)
	if !is || s.options.Documents == nil {
		return known, nil
	}
	late := historian.Late(turn)
	if !late && !begun {
		return known, nil
	}
	value, found, err := s.options.Documents.Get(ctx, ancestorNamespace, ancestorKey(turn))
	if err != nil {
		return nil, fmt.Errorf("read ancestors: %w", err)
	}
	if found {
		if err := json.Unmarshal(value, known); err != nil {
			return nil, fmt.Errorf("decode ancestors: %w", err)
		}
	}
	if late && !known.of(turn.ID).Done {
		return known, s.search(ctx, historian, turn, known)
	}
	if found && time.Since(known.Kept) > ancestorRenewal {
		return known, s.writeAncestors(ctx, turn, known)
	}
	return known, nil
}

// search asks other servers, after it is written down that it does.
func (s *Service) search(ctx context.Context, historian exchange.Historian, turn exchange.TurnRecord, known *ancestry) error {
	one := *known.of(turn.ID)
	one.Turn, one.Tries = turn.ID, one.Tries+1
	if one.Tries <= ancestorTries {
		if err := s.keepAncestors(ctx, turn, known, one); err != nil {
			return err
		}
		found, err := historian.Ancestors(ctx, turn)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			s.options.Logger.WarnContext(ctx, "what was said before a message could not be found", "error", err)
		}
		one.Messages = s.sound(turn, found)
	}
	one.Done = true
	return s.keepAncestors(ctx, turn, known, one)
}

// sound keeps the messages that the contract allows in a history.
func (s *Service) sound(turn exchange.TurnRecord, found []normalized.HistoricalMessage) []normalized.HistoricalMessage {
	var kept []normalized.HistoricalMessage
	for _, one := range found[max(len(found)-maxAncestors, 0):] {
		message := turn.Message
		message.History = []normalized.HistoricalMessage{one}
		message.Clean()
		if normalized.Validate(message, s.options.Limits) == nil {
			kept = append(kept, message.History[0])
		}
	}
	return kept
}

func (s *Service) keepAncestors(ctx context.Context, turn exchange.TurnRecord, known *ancestry, one ancestorsOf) error {
	known.Turns = append(slices.DeleteFunc(known.Turns, func(other ancestorsOf) bool { return other.Turn == one.Turn }), one)
	known.Turns = known.Turns[max(len(known.Turns)-maxAncestorTurns, 0):]
	return s.writeAncestors(ctx, turn, known)
}

// writeAncestors returns them their whole life again.
func (s *Service) writeAncestors(ctx context.Context, turn exchange.TurnRecord, known *ancestry) error {
	known.Kept = time.Now().UTC()
	value, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("encode ancestors: %w", err)
	}
	if err := s.options.Documents.Put(ctx, ancestorNamespace, ancestorKey(turn), value, time.Now().Add(ancestorLife)); err != nil {
		return fmt.Errorf("keep ancestors: %w", err)
	}
	return nil
}
