package store

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
)

// TestThreadPlans: what is between the ends of a long thread is counted in an index, never read from the table.
func TestThreadPlans(t *testing.T) {
	directory := migrated(t)
	s, err := Open(t.Context(), Options{DataDir: directory})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()

	database, err := sql.Open("sqlite", sqliteURL(filepath.Join(directory, File)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := database.Close(); err != nil {
			t.Error(err)
		}
	}()

	for _, step := range plan(t, database, selectSent) {
		if strings.HasPrefix(step, "SCAN") {
			t.Errorf("sent: %s", step)
		}
	}

	for scope, texts := range threadTexts {
		for name, text := range map[string]string{"newest": texts.newest, "oldest": texts.oldest, "total": texts.total} {
			for _, step := range plan(t, database, text) {
				if strings.HasPrefix(step, "SCAN turns") || strings.HasPrefix(step, "SCAN t") && !strings.Contains(step, "hit") ||
					name == "total" && strings.Contains(step, "SEARCH turns") && !strings.Contains(step, "COVERING") {
					t.Errorf("%s of %+v: %s", name, scope, step)
				}
			}
		}
	}
}

func TestFirstID(t *testing.T) {
	if got := firstID(time.Time{}); got != "" {
		t.Errorf("%q", got)
	}
	before := time.Now()
	id := uuid.Must(uuid.NewV7()).String()
	if from := firstID(before); id < from || len(from) != 13 {
		t.Errorf("%s is before %s", id, from)
	}

	if from := firstID(before.Add(time.Minute)); id >= from {
		t.Errorf("%s is not before %s", id, from)
	}
	if got := firstID(time.Unix(-5, 0)); got != "00000000-0000" {
		t.Errorf("%q", got)
	}
}

func TestPace(t *testing.T) {
	s, err := Open(t.Context(), Options{DataDir: migrated(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()

	number := 0
	add := func(thread, principal, state string, chain *normalized.AgentChain, at time.Time) {
		t.Helper()
		number++
		turn := exchange.TurnRecord{
			ID: uuid.Must(uuid.NewV7()).String(), Agent: "echo", Principal: principal, ThreadID: thread, State: state, AcceptedAt: at,
			Message: normalized.Message{
				ID: fmt.Sprint("m", number), ThreadID: thread, Recipient: "@echo@a.test", ReceivedVia: normalized.ViaA2A,
				ReceivedAt: identity.At(at), RecipientCapabilities: normalized.RecipientCapabilities{AgentChain: chain},
			},
		}

		if err := s.InTx(t.Context(), func(tx *Tx) error {
			_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}

	now := time.Now()
	chain := &normalized.AgentChain{Hop: 2, MaxHops: 4}
	add("t", "bot", exchange.StateAnswered, nil, now.Add(-time.Hour))
	add("t", "bot", exchange.StateAnswered, chain, now)
	add("t", "bot", exchange.StateSilent, chain, now)
	add("t", "other", exchange.StateAccepted, chain, now)
	add("t", "stranger", exchange.StateHeld, nil, now)
	add("u", "bot", exchange.StateAnswered, nil, now)

	for _, test := range []struct {
		thread, principal string
		recent, hop       int
	}{{"t", "bot", 2, 2}, {"t", "other", 1, 2}, {"t", "nobody", 0, 2}, {"u", "bot", 1, 0}, {"empty", "bot", 0, 0}} {
		var pace pipeline.Pace
		err := s.InTx(t.Context(), func(tx *Tx) (err error) {
			pace, err = tx.Pace(t.Context(), "echo", test.principal, test.thread, now.Add(-10*time.Minute))
			return err
		})

		hop := 0
		if pace.Chain != nil {
			hop = pace.Chain.Hop
		}
		if err != nil || pace.Recent != test.recent || hop != test.hop {
			t.Errorf("%s in %s: %d recent, hop %d, %v", test.principal, test.thread, pace.Recent, hop, err)
		}
	}
}

// TestPacePlans: a long thread is not walked through for every message of an agent.
func TestPacePlans(t *testing.T) {
	directory := migrated(t)
	s, err := Open(t.Context(), Options{DataDir: directory})
	if err != nil {
		t.Fatal(err)
	}

	database, err := sql.Open("sqlite", sqliteURL(filepath.Join(directory, File)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := database.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()

	for _, query := range []string{oldestOfThread, newestOfThread, recentOfThread} {
		steps := strings.Join(plan(t, database, query), "; ")
		if !strings.Contains(steps, "turns_thread") || strings.Contains(steps, "TEMP B-TREE") {
			t.Errorf("%s: %s", query, steps)
		}
	}
}
