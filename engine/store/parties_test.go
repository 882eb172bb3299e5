package store

import (
	"testing"

	"inbox/engine/pipeline"
	"inbox/engine/store/storetest"
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
