package pull

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/internal/fault"
)

// TestMemoryIsAMap compares the mailbox with plain maps.
func TestMemoryIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := t.Context()
		memory, model := NewMemory(), map[string]map[string]string{"a": {}, "b": {}}
		space, key := rapid.SampledFrom([]string{"a", "b"}), rapid.StringMatching(`[a-c]{0,2}`)
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				s, k, v := space.Draw(t, "space"), key.Draw(t, "key"), rapid.String().Draw(t, "value")
				if err := memory.Put(ctx, s, k, []byte(v), time.Time{}); err != nil {
					t.Fatal(err)
				}
				model[s][k] = v
			},
			"put if absent": func(t *rapid.T) {
				s, k, v := space.Draw(t, "space"), key.Draw(t, "key"), rapid.String().Draw(t, "value")
				_, there := model[s][k]
				if !there {
					model[s][k] = v
				}
				current, inserted, err := memory.PutIfAbsent(ctx, s, k, []byte(v), time.Time{})
				if err != nil || inserted == there || string(current) != model[s][k] {
					t.Fatalf("%q %t %v", current, inserted, err)
				}
			},
			"delete": func(t *rapid.T) {
				s, k := space.Draw(t, "space"), key.Draw(t, "key")
				delete(model[s], k)
				if err := memory.Delete(ctx, s, k); err != nil {
					t.Fatal(err)
				}
			},
			"list": func(t *rapid.T) {
				s, after, limit := space.Draw(t, "space"), key.Draw(t, "after"), rapid.IntRange(0, 5).Draw(t, "limit")
				var want []string
				for _, k := range slices.Sorted(maps.Keys(model[s])) {
					if k > after && len(want) < limit {
						want = append(want, k)
					}
				}
				keys, values, err := memory.List(ctx, s, after, limit)
				if diff := cmp.Diff(want, keys); diff != "" || err != nil {
					t.Fatalf("%v %s", err, diff)
				}
				for i, k := range keys {
					if string(values[i]) != model[s][k] {
						t.Fatalf("%q is %q", k, values[i])
					}
				}
			},
			"": func(t *rapid.T) {
				for s := range model {
					for k, want := range model[s] {
						if value, found, err := memory.Get(ctx, s, k); !found || string(value) != want || err != nil {
							t.Fatalf("%q %t %v", value, found, err)
						}
					}
				}
				if memory.count != len(model["a"])+len(model["b"]) {
					t.Fatalf("%d documents are counted", memory.count)
				}
			},
		})
	})
}

func TestMemoryForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, ctx := NewMemory(), t.Context()
		for i := range 100 {
			if err := memory.Put(ctx, fmt.Sprint("space ", i), "key", []byte("value"), time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		later(time.Minute)
		if _, found, _ := memory.Get(ctx, "space 1", "key"); found {
			t.Error("an ended document is there")
		}
		if _, inserted, err := memory.PutIfAbsent(ctx, "space 1", "key", nil, time.Time{}); !inserted || err != nil {
			t.Error("an ended document holds its place")
		}
		if memory.count != 1 || memory.bytes != 0 || len(memory.spaces) != 1 {
			t.Errorf("%d documents, %d bytes, %d namespaces are left", memory.count, memory.bytes, len(memory.spaces))
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	memory, ctx := NewMemory(), t.Context()
	large := make([]byte, maxMemoryBytes/4)
	for i := range 5 {
		err := memory.Put(ctx, "space", fmt.Sprint(i), large, time.Time{})
		if refused := fault.Is(err, fault.Unavailable); refused != (i == 4) {
			t.Errorf("document %d: %v", i, err)
		}
	}
}

// TestBellsPassOn wakes another waiter when the one that was woken has gone.
func TestBellsPassOn(t *testing.T) {
	var b notifier
	_, leave := b.listen("topic")
	second, leaveSecond := b.listen("topic")
	b.notify("topic", 1)
	select {
	case <-second:
		t.Error("the younger waiter was woken first")
	default:
	}
	leave()
	select {
	case <-second:
	default:
		t.Error("nobody was woken")
	}
	leaveSecond()
	if len(b.waiting) != 0 {
		t.Errorf("%d topics are left", len(b.waiting))
	}
}

// TestNothingStaysBehind looks at what is kept after many turns.
func TestNothingStaysBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := NewMemory()
		n := newNode(t, memory, Settings{})
		for i := range 20 {
			asked := question()
			asked.ID += fmt.Sprint(i)
			done := n.run(t.Context(), asked)
			turn := n.take(t)
			n.want(t, 200, turn.path("deltas"), `{"kind":"text","text":"x"}`)
			n.want(t, 200, turn.path("answer"), answerHello)
			mustAnswer(t, done, "hello")
		}
		if count := len(memory.spaces[requestsSpace]) + len(memory.spaces[offersSpace+"helper"]); count != 0 {
			t.Errorf("%d requests and offers are left", count)
		}
		if len(n.service.notifier.waiting) != 0 || len(n.service.sessions.byRun) != 0 {
			t.Errorf("%d waiters, %d sessions are left", len(n.service.notifier.waiting), len(n.service.sessions.byRun))
		}
		later(longest + keepFor + sweepEvery)
		if err := memory.Put(t.Context(), "space", "key", nil, time.Time{}); err != nil || memory.count != 1 {
			t.Errorf("%d documents are left, %v", memory.count, err)
		}
	})
}

func TestSessionsAreBounded(t *testing.T) {
	var s sessions
	for i := range maxSessions + 50 {
		_, release, err := s.take(fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		release(false)
	}
	if len(s.byRun) > maxSessions {
		t.Errorf("%d sessions", len(s.byRun))
	}
}
