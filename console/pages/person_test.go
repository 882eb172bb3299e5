package pages_test

import (
	"net/http"
	"strings"
	"testing"

	"inbox/engine/store"
	"inbox/exchange"
	"inbox/identity"
	"inbox/inboxtest"
)

// TestPersonPage: the page says who a name means for an export and why, lists apart what is linked and what only states the address,
// and is for those who may erase.
func TestPersonPage(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	const ann, other = "localhost:8080 mailto:ann@social.test", "localhost:8080 mailto:ann@work.test"
	proven, stated := overviewTurn(exchange.StateSilent), overviewTurn(exchange.StateSilent)
	proven.Principal, proven.Message.Sender.Address = ann, identity.Stated("@ann@social.test")
	proven.Message.Sender.Identities = []identity.Evidence{{Issuer: "localhost:8080", Subject: "mailto:ann@social.test", Method: identity.MethodEmailDMARC}}
	stated.Principal, stated.Message.Sender.Address, stated.Message.Sender.Identities = "unverified @ann@social.test", identity.Stated("@ann@social.test"), nil
	eve := overviewTurn(exchange.StateSilent)
	eve.Principal, eve.Message.Sender.Address = "localhost:8080 https://social.test/eve", identity.Stated("@ann@social.test")
	eve.Message.Sender.Identities = []identity.Evidence{{Issuer: "localhost:8080", Subject: "https://social.test/eve", Method: identity.MethodActivityPubSignature}}
	overviewInsertAll(s, proven, stated, eve)
	err := s.Store().InTx(t.Context(), func(tx *store.Tx) error {
		return tx.PutLink(t.Context(), exchange.PersonLink{Agent: "memory", Digest: "shown", Sides: [2]exchange.LinkSide{
			{Principal: ann, Issuer: "localhost:8080", Subject: "mailto:ann@social.test", Method: identity.MethodEmailDMARC, Address: "@ann@social.test"},
			{Principal: other, Issuer: "localhost:8080", Subject: "mailto:ann@work.test", Method: identity.MethodEmailDMARC, Address: "@ann@work.test"},
		}})
	})
	if err != nil {
		t.Fatal(err)
	}

	const page = "/console/person/data?who=ann@social.test"
	admin, reader := agentsSignIn(s, exchange.RoleAdmin), agentsSignIn(s, exchange.RoleRead)
	if got := admin.get("/console/person?who=ann@social.test", http.StatusOK); !strings.Contains(got, "for memory") || !strings.Contains(got, "/console/person/data?who=") {
		t.Errorf("the page of the person lacks the link or the way to its data: %s", got)
	}
	got := admin.get(page, http.StatusOK)
	for _, want := range []string{
		ann, "1 message", other, "by consent for memory", "Unproven messages that state this address", "unverified @ann@social.test", "linked=true", "unproven=true",
		"for messages to memory only", "Is proven to be another sender, and states @ann@social.test",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q: %s", want, got)
		}
	}
	if got := admin.get(page+"&linked=true&unproven=true", http.StatusOK); !strings.Contains(got, "2 messages") || strings.Contains(got, "Linked, and left out") ||
		strings.Contains(got, "Unproven messages that state") || !strings.Contains(got, "Messages of others that state") {
		t.Errorf("something is left out, or the other sender is taken: %s", got)
	}
	reader.get(page, http.StatusForbidden)
}
