package pages_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"inbox/exchange"
	"inbox/inboxtest"
)

// formerWorkLists are the addresses that lists of work had when each was a page of its own.
var formerWorkLists = []string{"held", "approvals", "failed", "deliveries", "jobs", "tools", "demands", "mailbox", "reports", "suppressed", "breakers"}

var workFilter = regexp.MustCompile(`href="/console/work(?:\?list=([a-z]+))?"[^>]*>\s*([^<]+?)\s*<`)

// filtersOf are the kinds of work by which a page lets its reader filter; "" is all of it.
func filtersOf(page string) (lists []string) {
	_, nav, _ := strings.Cut(page, `aria-label="Filter by kind of work"`)
	nav, _, _ = strings.Cut(nav, "</nav>")
	for _, found := range workFilter.FindAllStringSubmatch(nav, -1) {
		lists = append(lists, found[1])
	}
	return lists
}

// TestWorkIsOneList: all that waits is one list with what can be done about it at once, and a filter for each kind of which there is something.
func TestWorkIsOneList(t *testing.T) {
	t.Parallel()
	empty := signIn(t, inboxtest.Start(t), exchange.RoleWork)
	if got := filtersOf(empty.shows("/console/work", "Nothing waits for you")); strings.Join(got, " ") != "" || len(got) != 1 {
		t.Errorf("without work there are filters for %q", got)
	}
	if got := filtersOf(empty.shows("/console/work?list=tools", "No call waits for a program")); strings.Join(got, " ") != " tools" {
		t.Errorf("the filter that is chosen is not among %q", got)
	}
	if status, page := empty.get("/console/work?list=nonsense"); status != http.StatusBadRequest || !strings.Contains(page, "must be one of approvals, ") {
		t.Errorf("an unknown list: %d %s", status, page)
	}

	o := newOffice(t)
	held := o.stranger("May I come in?")
	o.insert(o.turn(exchange.StateFailed, "@bo@peer.test", "Are you there?"))
	o.dead("550 5.1.1 nobody here")
	worker, reader := signIn(t, o.Server, exchange.RoleWork), signIn(t, o.Server, exchange.RoleRead)
	page := worker.shows("/console/work", "May I come in?", "Are you there?", "550 5.1.1 nobody here")
	if got := strings.Join(filtersOf(page), " "); got != " held failed deliveries" {
		t.Errorf("filters: %q", got)
	}
	if strings.Contains(reader.shows("/console/work", "May I come in?"), "/console/work/held/release") {
		t.Error("a reader is offered the release")
	}
	if _, page := worker.does("/console/work/held/release", "id", held, "back", "/console/work"); !strings.Contains(page, "1 message was released") || !strings.Contains(page, "Are you there?") {
		t.Errorf("after the release: %s", page)
	}
}

// TestFormerWorkListsLeadToTheFilter: bookmarks of the lists still lead there, with what they were narrowed to.
func TestFormerWorkListsLeadToTheFilter(t *testing.T) {
	t.Parallel()
	desk := signIn(t, inboxtest.Start(t), exchange.RoleRead)
	desk.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, list := range formerWorkLists {
		response, err := desk.Get(desk.URL + "/console/work/" + list + "?agent=echo")
		status, _ := desk.read(response, err)
		if to := response.Header.Get("Location"); status != http.StatusPermanentRedirect || to != "/console/work?agent=echo&list="+list {
			t.Errorf("%s leads to %q with %d", list, to, status)
		}
	}
}
