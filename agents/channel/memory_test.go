package channel_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"inbox/agents/channel"
	"inbox/agents/channel/channeltest"
)

func TestMemoryMarks(t *testing.T) {
	channeltest.Marks(t, func(*testing.T) channeltest.MarksSetup {
		marks, now := channel.NewMemoryMarks(0), time.Unix(1e9, 0)
		marks.SetClock(func() time.Time { return now })
		return channeltest.MarksSetup{Marks: marks, Advance: func(passed time.Duration) { now = now.Add(passed) }}
	})
}

func TestMemorySessions(t *testing.T) {
	channeltest.Sessions(t, func(*testing.T) channel.Sessions { return channel.NewMemorySessions(0) })
}

func TestMemoriesAreBounded(t *testing.T) {
	marks, sessions := channel.NewMemoryMarks(3), channel.NewMemorySessions(3)
	for i := range 10 {
		id := fmt.Sprint(i)
		if err := marks.Mark(t.Context(), channel.MessageKey{Provider: "a", ID: id}, time.Duration(i+1)*time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := sessions.SetSession(t.Context(), channel.NewSessionKey("a", id, "b"), "s"+id); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		id := fmt.Sprint(i)
		marked, _ := marks.Marked(t.Context(), channel.MessageKey{Provider: "a", ID: id})
		session, _ := sessions.Session(t.Context(), channel.NewSessionKey("a", id, "b"))
		if newest := i >= 7; marked != newest || (session != "") != newest {
			t.Errorf("entry %d: marked %v, session %q", i, marked, session)
		}
	}
}

// TestMarksLikeAMap compares the store with the simplest one there is.
func TestMarksLikeAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		marks, now, ends := channel.NewMemoryMarks(0), time.Unix(1e9, 0), map[channel.MessageKey]time.Time{}
		marks.SetClock(func() time.Time { return now })
		key := rapid.Custom(func(t *rapid.T) channel.MessageKey {
			return channel.MessageKey{Provider: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "provider"), ID: rapid.SampledFrom([]string{"1", "2", "3"}).Draw(t, "id")}
		})
		ttl := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(1, 9).Draw(t, "ttl")) * time.Second
		})
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				k, d := key.Draw(t, "key"), ttl.Draw(t, "ttl")
				first, _ := marks.Claim(context.Background(), k, d)
				if want := !now.Before(ends[k]); first != want {
					t.Fatalf("claim %v = %v", k, first)
				} else if want {
					ends[k] = now.Add(d)
				}
			},
			"mark": func(t *rapid.T) {
				k, d := key.Draw(t, "key"), ttl.Draw(t, "ttl")
				_ = marks.Mark(context.Background(), k, d)
				ends[k] = now.Add(d)
			},
			"unmark": func(t *rapid.T) {
				k := key.Draw(t, "key")
				_ = marks.Unmark(context.Background(), k)
				delete(ends, k)
			},
			"wait": func(t *rapid.T) { now = now.Add(ttl.Draw(t, "wait")) },
			"": func(t *rapid.T) {
				for k, end := range ends {
					if marked, _ := marks.Marked(context.Background(), k); marked != now.Before(end) {
						t.Fatalf("marked %v = %v", k, marked)
					}
				}
			},
		})
	})
}
