package pages_test

import (
	"net/http"
	"net/url"
	"testing"

	"inbox/exchange"
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
