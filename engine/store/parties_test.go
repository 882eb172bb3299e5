package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/engine/pipeline"
	"inbox/engine/store/storetest"
	"inbox/exchange"
)

// TestErasedPersonIsNoParty: the messages of other people no longer name an erased person.
func TestErasedPersonIsNoParty(t *testing.T) {
	const bob, carol = "inbox.example mailto:bob@b.example", "inbox.example mailto:carol@c.example"
	for name, options := range map[string]Options{"sqlite": {DataDir: migrated(t)}, "postgres": {URL: storetest.Postgres(t), Connections: 2}} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()

			turn := said("ann", "inbox.example mailto:ann@a.example", "@ann@a.example", "hello", true)
			turn.Audience.Parties = []string{bob, carol}
			if err := s.InTx(t.Context(), func(tx *Tx) error {
				_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
				return err
			}); err != nil {
				t.Fatal(err)
			}

			if receipt := erasedPerson(t, s, PersonNames{Principals: []string{bob}}); receipt.Counts["parties"] != 1 {
				t.Errorf("the receipt counts %v", receipt.Counts)
			}
			parties, err := s.PartiesOf(t.Context(), turn.ID)
			if err != nil || len(parties) != 1 || parties[0] != carol {
				t.Errorf("parties %v, %v; want carol only", parties, err)
			}
		})
	}
}

// TestAudiences: the readers of a conversation are computed from whom its messages were meant for, and from what is shared with the sender's
// other conversations.
func TestAudiences(t *testing.T) {
	databases(t, func(t *testing.T, open func(t testing.TB) *Store) {
		const bob = "inbox.example mailto:bob@b.example"
		s := open(t)
		shared, alone := said(newRowID(), "inbox.example mailto:ann@a.example", "@ann@a.example", "hello", true), said(newRowID(), bob, "@bob@b.example", "hello", true)
		shared.Shared, shared.Audience.Parties, alone.ThreadID, alone.Shared, alone.Audience.Open = true, []string{bob}, shared.ThreadID, false, true
		if err := s.InTx(t.Context(), func(tx *Tx) error {
			_, _, err := tx.InsertTurn(t.Context(), shared, pipeline.Original{})
			if err == nil {
				_, _, err = tx.InsertTurn(t.Context(), alone, pipeline.Original{})
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}

		list, err := s.Audiences(t.Context(), shared.Agent, shared.ThreadID, 10)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]exchange.MessageAudience{
			{TurnID: alone.ID, Principal: bob, Address: "@bob@b.example", Audience: exchange.Audience{Open: true}},
			{TurnID: shared.ID, Principal: shared.Principal, Address: "@ann@a.example", Audience: exchange.Audience{Parties: []string{bob}}, Shared: true},
		}, list); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
