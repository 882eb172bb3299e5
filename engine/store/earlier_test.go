package store

import (
	"path/filepath"
	"strings"
	"testing"

	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/exchange"
)

// earlierRows are conversations with the ids that they had before migration 00048.
func earlierRows() (statements []string) {
	turn := func(id, channel, principal, carrier, thread, conversation string) {
		statements = append(statements, `INSERT INTO turns (id, agent, recipient, received_via, principal, native_id, thread_id, reference, native_key, sender_key,
			thread_key, owner_key, reference_key, state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message,
			history_turns, channel, carrier, person_key, conversation) VALUES ('`+id+`', 'echo', 'r', 'a2a', '`+principal+`', '`+id+`', '`+thread+`', '', '`+id+`', 'sk', '`+
			hashKey("echo", thread)+`', 'ok', '', 'accepted', '', 0, '', 1, 2, 'd', '{}', '{}', 1, '`+channel+`', '`+carrier+`', '`+hashKey("echo", principal)+`', '`+conversation+`')`)
	}
	turn("t1", "a2a", "ann", "", "talk.0123456789abcdef", "talk")
	turn("t2", "a2a", "ann", "token", "talk.fedcba9876543210", "talk")
	turn("t3", "a2a", "ann", "", "minted", "")
	turn("t4", "chat", "ann", "", "chat:01:echo", "session")
	turn("t5", "local", "echo", "", "dispatch-01", "")
	return append(statements,
		`INSERT INTO dispatches (id, turn_id, number, state, created_at, updated_at, call, response) VALUES ('d1', 't1', 1, 'done', 1, 1, '{"id":"d1","thread_id":"dispatch-01"}', '')`,
		`INSERT INTO dispatches (id, turn_id, number, state, created_at, updated_at, call, response) VALUES ('d2', 't1', 2, 'done', 1, 1, '', '')`) // it was erased
}

// TestConversationsGoOnAfterTheUpgrade: those that were open are found by the names that their owners know.
func TestConversationsGoOnAfterTheUpgrade(t *testing.T) {
	check := func(t *testing.T, options Options) {
		t.Helper()
		s, err := Open(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()

		for _, c := range []struct{ channel, carrier, name, want string }{
			{"a2a", "", "talk", "talk.0123456789abcdef"}, {"a2a", "token", "talk", "talk.fedcba9876543210"}, {"a2a", "", "minted", "minted"}, {"chat", "", "session", "chat:01:echo"},
		} {
			name := exchange.ConversationName{Channel: c.channel, Agent: "echo", Owner: "ann", Carrier: c.carrier, Name: c.name}
			if got, err := s.Conversation(t.Context(), name); err != nil || got != c.want {
				t.Errorf("%v is %s, %v", name, got, err)
			}
			name.Owner = "eve"
			if got, err := s.Conversation(t.Context(), name); err != nil || got != name.ID() {
				t.Errorf("%v is %s, %v", name, got, err)
			}
		}
		if found, err := s.CallsIn(t.Context(), "dispatch-01"); err != nil || !found {
			t.Errorf("calls from before: %v, %v", found, err)
		}
	}

	t.Run("sqlite", func(t *testing.T) {
		directory := t.TempDir()
		buildWith(t, "sqlite", sqliteURL(filepath.Join(directory, File)), database.SQLite, 47, earlierRows())
		check(t, Options{DataDir: directory})
	})
	t.Run("postgres", func(t *testing.T) {
		url := storetest.EmptyPostgres(t)
		buildWith(t, "pgx", url, database.Postgres, 47, earlierRows())
		check(t, Options{URL: url, Connections: 2})
	})
}

// TestPlansOfEarlierConversations: looking for one reads a range of an index, and whether there are any is one step.
func TestPlansOfEarlierConversations(t *testing.T) {
	directory := t.TempDir()
	pool := opened(t, Options{DataDir: directory}, "sqlite", sqliteURL(filepath.Join(directory, File)))
	for _, one := range []struct {
		list    listed
		indexes []string
	}{
		{listed{name: "any", query: selectAnyEarlier}, []string{"turns_earlier"}},
		{listed{name: "named", query: selectEarlier, arguments: []any{"p", "n", "a2a", "", "t"}}, []string{"turns_earlier (person_key=? AND conversation=?", "turns_thread (thread_key=?"}},
		{listed{name: "any call", query: selectAnyEarlierCall}, []string{"dispatches_earlier"}},
		{listed{name: "call", query: selectEarlierCall, arguments: []any{"t"}}, []string{"dispatches_earlier (earlier_thread=?"}},
	} {
		var steps []string
		for _, step := range sqlitePlan(t, pool, one.list) {
			steps = append(steps, step.detail)
		}
		for _, index := range one.indexes {
			if plan := strings.Join(steps, "\n"); !strings.Contains(plan, index) {
				t.Errorf("%s does not read %s:\n%s", one.list.name, index, plan)
			}
		}
	}
}
