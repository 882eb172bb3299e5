package contract

import (
	"context"
	"fmt"
	"testing"
	"time"

	"inbox/agents/runtime/envelope/fixturetest"
	"inbox/agents/runtime/value"
)

// clockedMarks are marks under a clock that the test moves.
type clockedMarks struct {
	now  time.Time
	ends map[MessageKey]time.Time
}

func (m *clockedMarks) Claim(ctx context.Context, key MessageKey, ttl time.Duration) (bool, error) {
	if marked, err := m.Marked(ctx, key); marked || err != nil {
		return false, err
	}
	return true, m.Mark(ctx, key, ttl)
}

func (m *clockedMarks) Mark(_ context.Context, key MessageKey, ttl time.Duration) error {
	m.ends[key] = m.now.Add(ttl)
	return nil
}

func (m *clockedMarks) Marked(_ context.Context, key MessageKey) (bool, error) {
	return m.now.Before(m.ends[key]), nil
}

func (m *clockedMarks) Unmark(_ context.Context, key MessageKey) error {
	delete(m.ends, key)
	return nil
}

func TestRecordedDuplicates(t *testing.T) {
	fixturetest.Run(t, "idempotency", func(c fixturetest.Case) (any, error) {
		marks := &clockedMarks{now: time.Unix(1e9, 0), ends: map[MessageKey]time.Time{}}
		steps, _ := value.List(c.Object()["ops"])
		results := []any{}
		for _, one := range steps {
			step := value.Assoc(one)
			result, err := playDuplicates(t.Context(), marks, step)
			if err != nil {
				return nil, err
			}
			results = append(results, result)
		}
		return results, nil
	})
}

func playDuplicates(ctx context.Context, marks *clockedMarks, step map[string]any) (any, error) {
	duplicates, provider, id := Duplicates{marks}, value.Scalar(step["provider"]), value.Scalar(step["id"])
	switch operation := value.Text(step["op"]); operation {
	case "advance":
		marks.now = marks.now.Add(seconds(step))
		return nil, nil
	case "key":
		if key, ok := NewMessageKey(provider, id); ok {
			return key.Imported(), nil
		}
		return nil, nil
	case "seen":
		return duplicates.Seen(ctx, provider, id)
	case "mark":
		return nil, duplicates.MarkSeen(ctx, provider, id, seconds(step))
	case "forget":
		return nil, duplicates.Forget(ctx, provider, id)
	default:
		return nil, fmt.Errorf("unknown operation %q", operation)
	}
}

// seconds reads the one number of a step.
func seconds(step map[string]any) time.Duration {
	for name, given := range step {
		if number, is := value.Integer(given); is && name != "id" && name != "provider" {
			return time.Duration(number) * time.Second
		}
	}
	return 0
}

// TestClaimIsForOne: of several callers one takes a message, and one without a key or a time is never kept.
func TestClaimIsForOne(t *testing.T) {
	marks := &clockedMarks{now: time.Unix(1e9, 0), ends: map[MessageKey]time.Time{}}
	duplicates := Duplicates{marks}
	for i, want := range []bool{true, false} {
		if first, err := duplicates.Claim(t.Context(), "Tele Gram", " 7 ", time.Minute); err != nil || first != want {
			t.Errorf("claim %d: first %t, %v; want %t", i, first, err, want)
		}
	}
	for range 2 {
		if first, err := duplicates.Claim(t.Context(), "telegram", " ", time.Minute); err != nil || !first {
			t.Errorf("a message without an id: first %t, %v", first, err)
		}
		if first, err := duplicates.Claim(t.Context(), "telegram", "8", time.Millisecond); err != nil || !first {
			t.Errorf("a mark without a time: first %t, %v", first, err)
		}
	}
}
