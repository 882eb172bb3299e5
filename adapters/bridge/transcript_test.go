package bridge

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inbox/exchange"
	"inbox/internal/fault"
)

type (
	otherTurns    = Turns
	otherSessions = Sessions
)

// manyTurns is a thread of so many turns, read newest first by pages as the store returns them.
type manyTurns struct {
	otherTurns

	number int
}

func (m *manyTurns) ThreadResults(context.Context, string, string) ([]exchange.RunResult, error) {
	return nil, nil
}

func (m *manyTurns) Turns(_ context.Context, filter exchange.TurnFilter) ([]exchange.TurnRecord, error) {
	left := m.number
	if filter.Before != "" {
		_, _ = fmt.Sscanf(filter.Before, "%d.", &left)
		left--
	}
	page := make([]exchange.TurnRecord, min(filter.Limit, left))
	for i := range page {
		at := left - i
		page[i] = exchange.TurnRecord{ID: fmt.Sprintf("%06d", at), UpdatedAt: time.UnixMicro(int64(at))}
	}
	return page, nil
}

// noTranscript is a session into which nothing was imported.
type noTranscript struct{ otherSessions }

func (noTranscript) Transcript(context.Context, string, string) ([]string, error) { return nil, nil }

func TestExportsAreWholeOrRefused(t *testing.T) {
	export := func(number int) (int, error) {
		document, err := Archive{Turns: &manyTurns{number: number}, Sessions: noTranscript{}}.Document(t.Context(), exchange.Session{ID: "s"}, FormatEnvelope)
		return len(document.Messages), err
	}
	for _, number := range []int{0, 1, maxEvents, maxEvents + 1, maxTranscriptTurns} {
		if got, err := export(number); err != nil || got != number {
			t.Errorf("of %d turns there are %d messages: %v", number, got, err)
		}
	}
	if got, err := export(maxTranscriptTurns + 1); err == nil || fault.Of(err).Kind != fault.TooLarge || got != 0 {
		t.Errorf("of too many turns there are %d messages: %v", got, err)
	}
	list, whole, err := Archive{Turns: &manyTurns{number: 3 * maxTranscriptTurns}, Sessions: noTranscript{}}.newest(t.Context(), exchange.Session{ID: "s"})
	if err != nil || whole || len(list) < maxTranscriptTurns || len(list) > maxTranscriptTurns+maxEvents {
		t.Errorf("the newest are %d, whole %v: %v", len(list), whole, err)
	}
}
