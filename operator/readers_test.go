package operator

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/config"
	"inbox/normalized"
	"inbox/operator/lookup"
)

// TestLinkedAddressesAreReaders: where the history of an agent follows the person, addresses that are linked with a party for that agent read
// what the party wrote, and a party also reads what its linked addresses may see.
func TestLinkedAddressesAreReaders(t *testing.T) {
	const (
		ann, work, bob   = "inbox.test mailto:ann@a.test", "inbox.test mailto:ann@work.test", "inbox.test mailto:bob@b.test"
		phone, elsewhere = "inbox.test https://social.test/bob", "inbox.test mailto:ann@else.test"
		gone, stranger   = "gone.test slack:1", "inbox.test mailto:eve@e.test"
	)
	rows := openStore(t)
	settings := &config.Config{Domain: "inbox.test", Agents: []config.Agent{{Name: "echo", History: config.History{Scope: "person"}}}}
	arrivals := Arrivals{rows, idsOf(rows), func() *config.Config { return settings }}
	say := func(principal string, shared bool, parties ...string) {
		t.Helper()
		turn := exchange.TurnRecord{
			ID: uuid.Must(uuid.NewV7()).String(), Agent: "echo", Principal: principal, ThreadID: "c-one", State: exchange.StateAnswered, Channel: normalized.ViaEmail,
			AcceptedAt: time.Now(), Shared: shared, Audience: exchange.Audience{Parties: parties},
			Message: normalized.Message{ID: uuid.NewString(), ThreadID: "c-one", ReceivedVia: normalized.ViaEmail, Sender: normalized.Sender{Address: identity.Stated("@x@x.test")}},
		}
		if err := rows.InTx(t.Context(), func(tx *store.Tx) error {
			_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	link := func(agent, a, b, issuer string) {
		t.Helper()
		made := exchange.PersonLink{Agent: agent, Digest: "shown", Sides: [2]exchange.LinkSide{{Principal: a, Issuer: "inbox.test"}, {Principal: b, Issuer: issuer}}}
		if err := rows.InTx(t.Context(), func(tx *store.Tx) error { return tx.PutLink(t.Context(), made) }); err != nil {
			t.Fatal(err)
		}
	}

	say(ann, true, bob)
	say(ann, true)
	say(ann, false) // from before the agent's history followed the person
	say(work, true)
	link("echo", ann, work, "inbox.test")
	link("echo", bob, phone, "inbox.test")
	link("other", ann, elsewhere, "inbox.test")
	link("echo", ann, gone, "gone.test") // is not in the trust list
	link("echo", work, stranger, "inbox.test")

	readers := func() map[string]Reader {
		t.Helper()
		found, err := arrivals.Readers(t.Context(), lookup.ConversationID{ID: "c-one", Agent: "echo"})
		if err != nil {
			t.Fatal(err)
		}
		list := map[string]Reader{}
		for _, one := range found.Readers {
			one.Address = ""
			list[one.Principal] = one
		}
		return list
	}

	if diff := cmp.Diff(map[string]Reader{
		ann:      {Principal: ann, Sees: 4, Wrote: 3, ByLink: 1, LinkedWith: []string{work}},
		work:     {Principal: work, Sees: 4, Wrote: 1, ByLink: 3, LinkedWith: []string{ann}},
		bob:      {Principal: bob, Sees: 1, Addressed: 1}, // what he was addressed in is no history of his other address
		stranger: {Principal: stranger, Sees: 1, ByLink: 1, LinkedWith: []string{work}},
	}, readers()); diff != "" {
		t.Errorf("readers (-want +got):\n%s", diff)
	}

	settings.Agents[0].History.Scope = "thread"
	if diff := cmp.Diff(map[string]Reader{
		ann: {Principal: ann, Sees: 3, Wrote: 3}, work: {Principal: work, Sees: 1, Wrote: 1}, bob: {Principal: bob, Sees: 1, Addressed: 1},
	}, readers()); diff != "" {
		t.Errorf("readers where the history follows the thread (-want +got):\n%s", diff)
	}
}
