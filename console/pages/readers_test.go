package pages_test

import (
	"net/http"
	"net/url"
	"testing"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/inboxtest"
)

// TestReaders: a page says who can read a conversation, from whom its messages were meant for.
func TestReaders(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	operator := overviewSignIn(s, exchange.RoleRead)

	first, aside := overviewTurn(exchange.StateSilent), overviewTurn(exchange.StateSilent)
	first.Principal, aside.Principal = "localhost mailto:ann@a.test", "localhost mailto:ann@a.test"
	first.Audience.Parties = []string{"localhost mailto:bob@b.test"}
	aside.ThreadID = first.ThreadID
	overviewInsertAll(s, first, aside)

	at := url.Values{"agent": {"echo"}, "id": {first.ThreadID}}.Encode()
	operator.get("/console/thread?"+at, "Who can read this?", "/console/readers?")
	operator.get("/console/readers?"+at, "@ana@peer.test", "2 of 2", "mailto:bob@b.test", "1 of 2")
	response, err := operator.browser.Get(s.URL + "/console/readers?agent=echo&id=none")
	if status, _ := overviewRead(operator, response, err); status != http.StatusNotFound {
		t.Errorf("a conversation that is not there: %d", status)
	}
}

// TestReadersByALink: where the history of the agent follows the person, the page names the addresses that are linked with a party, with the
// party as the reason.
func TestReadersByALink(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t, "INBOX_AGENTS_0_NAME=echo", "INBOX_AGENTS_0_KIND=echo", "INBOX_AGENTS_0_HISTORY=person")
	operator := overviewSignIn(s, exchange.RoleRead)

	said := overviewTurn(exchange.StateSilent)
	said.Principal, said.Shared = "localhost:8080 mailto:ann@a.test", true
	overviewInsertAll(s, said)
	err := s.Store().InTx(t.Context(), func(tx *store.Tx) error {
		return tx.PutLink(t.Context(), exchange.PersonLink{Agent: "echo", Digest: "shown", Sides: [2]exchange.LinkSide{
			{Principal: said.Principal, Issuer: "localhost:8080", Subject: "mailto:ann@a.test", Method: identity.MethodEmailDMARC},
			{Principal: "localhost:8080 https://social.test/ann", Issuer: "localhost:8080", Subject: "https://social.test/ann", Method: identity.MethodActivityPubSignature},
		}})
	})
	if err != nil {
		t.Fatal(err)
	}

	at := url.Values{"agent": {"echo"}, "id": {said.ThreadID}}.Encode()
	operator.get("/console/readers?"+at, "@ana@peer.test", "https://social.test/ann", "Linked with @ana@peer.test for echo", "1 of 1")
}
