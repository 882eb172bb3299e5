package pages_test

import (
	"net/http"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/identity"
	"inbox/inboxtest"
)

// TestIDOfSeveralSendersShowsNone: a sender may call a message by the id of another person's. The search and the API list both with their senders, and an
// id of the server's own still leads to its message.
func TestIDOfSeveralSendersShowsNone(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	ann, eve, mimic := overviewTurn(exchange.StateSilent), overviewTurn(exchange.StateSilent), overviewTurn(exchange.StateSilent)
	ann.Principal, ann.Message.Sender.Address = "localhost:8080 mailto:ann@a.test", identity.Stated("@ann@a.test")
	eve.Principal, eve.Message.Sender.Address = "localhost:8080 mailto:eve@e.test", identity.Stated("@eve@e.test")
	mimic.Principal, mimic.Message.Sender.Address = "localhost:8080 mailto:mim@e.test", identity.Stated("@mim@e.test")
	ann.Message.ID, eve.Message.ID, mimic.Message.ID = "one@a.test", "one@a.test", ann.ID
	overviewInsertAll(s, ann, eve, mimic)

	desk := overviewSignIn(s, exchange.RoleRead)
	response, err := desk.browser.Get(s.URL + "/console/find?id=one@a.test")
	status, page := overviewRead(desk, response, err)
	if status != http.StatusConflict || !strings.Contains(page, ann.ID+" from @ann@a.test") || !strings.Contains(page, eve.ID+" from @eve@e.test") {
		t.Errorf("the search answers %d: %s", status, page)
	}
	desk.get("/console/find?id="+ann.ID, "@ann@a.test")

	token, _, err := s.Operator().Tokens.CreateAdmin(t.Context(), "boss")
	if err != nil {
		t.Fatal(err)
	}
	if status, _, content := s.Read(http.MethodGet, "/api/v1/turns/one@a.test", token, ""); status != http.StatusConflict || !strings.Contains(content, ann.ID) || !strings.Contains(content, eve.ID) {
		t.Errorf("the API answers %d: %s", status, content)
	}
	if status, _, content := s.Read(http.MethodGet, "/api/v1/turns/"+ann.ID, token, ""); status != http.StatusOK || !strings.Contains(content, "@ann@a.test") {
		t.Errorf("the API answers the id of a turn with %d: %s", status, content)
	}
}
