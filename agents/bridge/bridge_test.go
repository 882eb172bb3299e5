package bridge_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/agents/bridge"
)

func item(members map[string]any) map[string]any {
	value := map[string]any{"client_id": "cli", "agent": "bot", "content": "hello"}
	for key, member := range members {
		if value[key] = member; member == "absent" {
			delete(value, key)
		}
	}
	return value
}

func TestItems(t *testing.T) {
	made, err := bridge.NormalizeItem(item(map[string]any{
		"client_id": " My__Client.1 ", "connector_id": "!", "agent": "The Bot", "session_id": " s ", "role": " TOOL ",
		"content": " x ", "completed": "0", "created_at": nil, "metadata": []any{"no object"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(made.ID, "bridge_") || len(made.ID) != len("bridge_")+32 {
		t.Errorf("id %q", made.ID)
	}
	if _, err := time.Parse(time.RFC3339, made.CreatedAt); err != nil {
		t.Error(err)
	}
	made.ID, made.CreatedAt = "", ""
	want := bridge.Item{ClientID: "my--client-1", Agent: "the-bot", SessionID: "s", Role: "tool", Content: "x", Status: bridge.Pending, Metadata: map[string]any{}}
	if difference := cmp.Diff(want, made); difference != "" {
		t.Error(difference)
	}
}

func TestRefusedItems(t *testing.T) {
	for want, members := range map[string]map[string]any{
		"queue_id must be non-empty.":                            {"queue_id": " "},
		"client_id must be a non-empty slug.":                    {"client_id": "__"},
		"agent must be a non-empty slug.":                        {"agent": "absent"},
		"role must be assistant, system, or tool.":               {"role": "user"},
		"content must be non-empty.":                             {"content": []any{"x"}},
		"delivery_status must be pending, delivered, or failed.": {"delivery_status": "gone"},
		"content must not be longer than 1 MiB.":                 {"content": strings.Repeat("x", bridge.MaxContentBytes+1)},
		"ids must not be longer than 255 bytes.":                 {"session_id": strings.Repeat("x", bridge.MaxIDBytes+1)},
	} {
		_, err := bridge.NormalizeItem(item(members))
		var refused *bridge.Error
		if !errors.As(err, &refused) || refused.Code != bridge.CodeInvalid || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := bridge.ReadItem([]byte(`[1]`)); err == nil {
		t.Error("a list is an item")
	}
}

func TestStatusOfACopy(t *testing.T) {
	original, err := bridge.NormalizeItem(item(map[string]any{"metadata": map[string]any{"a": "b"}}))
	if err != nil {
		t.Fatal(err)
	}
	copied, err := original.WithStatus("Delivered")
	if err != nil || copied.Status != bridge.Delivered || original.Status != bridge.Pending {
		t.Errorf("%v, %+v, %+v", err, original, copied)
	}
	copied.Metadata["a"] = "c"
	if original.Metadata["a"] != "b" {
		t.Error("the copy shares its metadata")
	}
	if _, err := original.WithStatus("lost"); err == nil {
		t.Error("an unknown status was taken")
	}
}

func TestCallbackURLs(t *testing.T) {
	for address, valid := range map[string]bool{
		"https://ex.example/cb": true, "http://localhost": true, "http://127.0.0.1:80/x?y=z#f": true, "http://[::1]/": true,
		"https://user:pass@ex.example": true, "ftp://ex.example/": true, "https://ex.example.": true,
		"not a url": false, "//ex.example/": false, "/path": false, "https://": false, "https:///path": false, "ex.example": false,
		"https://ex ample/": false, "https://exämple.example/": false, "https://-ex.example/": false, "https://a_b.example/": false,
		"javascript:alert(1)": false, "https://ex.example/\x01": false, "https://ex..example/": false,
		"https://ex.example/" + strings.Repeat("x", 3000): false,
	} {
		client, err := bridge.NormalizeClient(map[string]any{"client_id": "a", "callback_url": address})
		if (err == nil) != valid || valid && client.CallbackURL != address {
			t.Errorf("%.60q: %v", address, err)
		}
	}
	if client, err := bridge.NormalizeClient(map[string]any{"client_id": "a", "callback_url": " ", "connector_id": nil}); err != nil || client.CallbackURL != "" {
		t.Errorf("a blank URL is none: %v", err)
	}
	if _, err := bridge.NormalizeClient(map[string]any{}); err == nil {
		t.Error("a client without id was taken")
	}
}

// TestKilledBetweenPendingAndAck is what the protocol is for.
func TestKilledBetweenPendingAndAck(t *testing.T) {
	b := bridge.Bridge{Store: bridge.NewMemory(0, 0)}
	for _, id := range []string{"q1", "q2", "q3"} {
		if _, err := b.Enqueue(t.Context(), item(map[string]any{"queue_id": id})); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the first client dies with the items in its hands
		items, err := b.Pending(t.Context(), "CLI", 0, nil)
		if err != nil || len(items) != 3 {
			t.Fatalf("%d items, %v", len(items), err)
		}
	}
	if kept, err := b.Attempted(t.Context(), "cli", "q1", true); !kept || err != nil {
		t.Errorf("attempt: %v, %v", kept, err)
	}
	if kept, err := b.Attempted(t.Context(), "cli", "q2", false); !kept || err != nil {
		t.Errorf("attempt: %v, %v", kept, err)
	}
	leased, err := b.Lease(t.Context(), "cli", -1, nil, time.Hour)
	if err != nil || len(leased) != 1 {
		t.Errorf("a limit below one leased %d, %v", len(leased), err)
	}
	acked, err := b.Ack(t.Context(), "cli", []string{"q1", "q2", "q3"})
	if err != nil || acked != 3 {
		t.Errorf("acked %d, %v", acked, err)
	}
	if again, _ := b.Ack(t.Context(), "cli", []string{"q1", "q2", "q3"}); again != 0 {
		t.Errorf("acked %d twice", again)
	}
	if items, _ := b.Pending(t.Context(), "cli", 0, nil); len(items) != 0 {
		t.Errorf("%d items after the ack", len(items))
	}
}

func TestSessionsFilter(t *testing.T) {
	b := bridge.Bridge{Store: bridge.NewMemory(0, 0)}
	for id, session := range map[string]any{"q1": "s1", "q2": nil} {
		if _, err := b.Enqueue(t.Context(), item(map[string]any{"queue_id": id, "session_id": session})); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		sessions []string
		want     int
	}{{nil, 2}, {[]string{""}, 2}, {[]string{"", "s1"}, 1}, {[]string{"s2"}, 0}} {
		if items, err := b.Pending(t.Context(), "cli", 0, test.sessions); err != nil || len(items) != test.want {
			t.Errorf("sessions %q: %d items, %v", test.sessions, len(items), err)
		}
	}
}

// TestQueueLikeAList compares the store with the simplest queue there is: nothing but an ack removes anything.
func TestQueueLikeAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, ctx := bridge.Bridge{Store: bridge.NewMemory(0, 0)}, context.Background()
		type row struct{ id, client string }
		var rows []row
		ids, clients := []string{"1", "2", "q3", "q4"}, []string{"a", "b"}
		t.Repeat(map[string]func(*rapid.T){
			"enqueue": func(t *rapid.T) {
				one := row{rapid.SampledFrom(ids).Draw(t, "id"), rapid.SampledFrom(clients).Draw(t, "client")}
				_, err := b.Enqueue(ctx, map[string]any{"queue_id": one.id, "client_id": one.client, "agent": "bot", "content": "x"})
				known := slices.IndexFunc(rows, func(other row) bool { return other.id == one.id })
				switch {
				case known >= 0 && rows[known] != one:
					if !errors.Is(err, bridge.ErrForeign) {
						t.Fatalf("error %v", err)
					}
				case err != nil:
					t.Fatal(err)
				case known < 0:
					rows = append(rows, one)
				}
			},
			"ack": func(t *rapid.T) {
				client, some := rapid.SampledFrom(clients).Draw(t, "client"), rapid.SliceOf(rapid.SampledFrom(ids)).Draw(t, "ids")
				acked, err := b.Ack(ctx, client, some)
				before := len(rows)
				rows = slices.DeleteFunc(rows, func(one row) bool { return one.client == client && slices.Contains(some, one.id) })
				if err != nil || acked != before-len(rows) {
					t.Fatalf("acked %d, want %d, %v", acked, before-len(rows), err)
				}
			},
			"attempt": func(t *rapid.T) {
				_, _ = b.Attempted(ctx, rapid.SampledFrom(clients).Draw(t, "client"), rapid.SampledFrom(ids).Draw(t, "id"), rapid.Bool().Draw(t, "ok"))
			},
			"lease": func(t *rapid.T) {
				_, _ = b.Lease(ctx, rapid.SampledFrom(clients).Draw(t, "client"), 1, nil, time.Hour)
			},
			"": func(t *rapid.T) {
				for _, client := range clients {
					items, _ := b.Pending(ctx, client, 99, nil)
					got, want := []string{}, []string{}
					for _, one := range items {
						got = append(got, one.ID)
					}
					for _, one := range rows {
						if one.client == client {
							want = append(want, one.id)
						}
					}
					if !slices.Equal(got, want) {
						t.Fatalf("pending of %s: %v, want %v", client, got, want)
					}
				}
			},
		})
	})
}

func FuzzReadItem(f *testing.F) {
	f.Add([]byte(`{"queue_id":"q1","client_id":"My_Client 1!","agent":"bot","content":" x ","created_at":null,"metadata":{"a":[1]}}`))
	f.Add([]byte(`{"queue_id":17,"client_id":true,"agent":1.5e30,"content":0,"role":"system","completed":[],"session_id":false}`))
	f.Add([]byte(`{"client_id":"\u212a","agent":"é","content":"\u0000"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		item, err := bridge.ReadItem(data)
		if err != nil {
			return
		}
		again, err := bridge.NormalizeItem(item.Value())
		if err != nil {
			t.Fatal(err)
		}
		if difference := cmp.Diff(item, again); difference != "" {
			t.Fatal(difference)
		}
	})
}
