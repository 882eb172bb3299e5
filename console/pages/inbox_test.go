package pages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/inboxtest"
)

// TestInboxUnread: what an operator did not open stands above the rest and beside the navigation; others have marks of their own.
func TestInboxUnread(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	ann, bob := overviewSignIn(s, exchange.RoleRead), overviewSignIn(s, exchange.RoleWork)
	var turns []exchange.TurnRecord
	for range 3 {
		turns = append(turns, overviewInsert(s, exchange.StateSilent))
	}
	thread := func(i int) string {
		return "/console/thread?" + url.Values{"agent": {"echo"}, "id": {turns[i].ThreadID}}.Encode()
	}
	const badge = `<span class="count hot">`

	page := ann.get("/console/inbox", badge+"3</span>", "Mark all as read", "Everything else is read.")
	if got := strings.Count(page, `class="row unread"`); got != 3 {
		t.Errorf("%d conversations are unread", got)
	}

	// Another site, or a browser that looks ahead, opens nothing.
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Purpose": "prefetch;prerender"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+thread(0), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set(name, value)
		if response, err := ann.browser.Do(request); err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		} else {
			_ = response.Body.Close()
		}
	}
	ann.get("/console/inbox", badge+"3</span>")

	ann.get(thread(0), badge+"2</span>")
	ann.get("/console/messages/"+turns[1].ID, badge+"1</span>")
	page = ann.get("/console/inbox", badge+"1</span>")
	if above, below := strings.Index(page, url.QueryEscape(turns[2].ThreadID)), strings.Index(page, url.QueryEscape(turns[0].ThreadID)); above < 0 || below < above {
		t.Errorf("the unread conversation stands at %d, a read one at %d", above, below)
	}
	if strings.Count(page, url.QueryEscape(turns[2].ThreadID)) != 1 {
		t.Error("an unread conversation is listed a second time")
	}

	// What came after the page was drawn stays unread.
	until := turns[2].ID
	overviewInsert(s, exchange.StateSilent)
	if status, page := ann.post("/console/inbox/read", "until", until); status != http.StatusOK || !strings.Contains(page, "marked as read") || !strings.Contains(page, badge+"1</span>") {
		t.Errorf("%d: %s", status, page)
	}
	if status, page := ann.post("/console/inbox/read", "until", ""); status != http.StatusOK || strings.Contains(page, badge) || strings.Contains(page, "Mark all as read") {
		t.Errorf("%d: %s", status, page)
	}
	bob.get("/console/inbox", badge+"4</span>")

	// More than are counted, and more messages than are looked at: the page says both.
	const older = "Only the newest 1,000 messages are looked at"
	turns = nil
	for range 100 {
		turns = append(turns, overviewTurn(exchange.StateSilent))
	}
	overviewInsertAll(s, turns...)
	if page := ann.get("/console/inbox", badge+"99+</span>"); strings.Contains(page, older) {
		t.Error("all messages were looked at, and the page says something else")
	}
	turns = nil
	for range 1000 {
		turn := overviewTurn(exchange.StateSilent)
		turn.ThreadID = "one thread"
		turns = append(turns, turn)
	}
	overviewInsertAll(s, turns...)
	if page := ann.get("/console/inbox", badge+"1+</span>", older); strings.Contains(page, "Everything else is read.") {
		t.Error("the page says of messages that were not looked at that they are read")
	}
}
