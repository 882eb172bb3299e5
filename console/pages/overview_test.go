package pages_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/identity"
	"inbox/inboxtest"
	"inbox/internal/bearer"
	"inbox/normalized"
)

// overviewDesk is an operator at the console of a server.
type overviewDesk struct {
	*inboxtest.Server

	browser http.Client
	csrf    string
}

func overviewSignIn(s *inboxtest.Server, role exchange.Role) *overviewDesk {
	s.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.Fatal(err)
	}
	token, hash := bearer.Mint()
	record := exchange.Token{ID: overviewID(), Name: "desk-" + role.String() + overviewID(), Scope: role.String(), Hash: hash, CreatedAt: time.Now()}
	if err := s.Operator().Tokens.Rows.CreateToken(s.Context(), record); err != nil {
		s.Fatal(err)
	}

	d := &overviewDesk{Server: s, browser: http.Client{Jar: jar, Timeout: inboxtest.Client.Timeout}}
	_, page := d.post("/console/login", "token", token)
	found := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(page)
	if found == nil {
		s.Fatalf("not signed in: %s", page)
	}
	d.csrf = found[1]
	return d
}

func overviewID() string { return uuid.Must(uuid.NewV7()).String() }

// get returns a page, which must be there.
func (d *overviewDesk) get(path string, want ...string) string {
	d.Helper()
	response, err := d.browser.Get(d.URL + path)
	status, page := overviewRead(d, response, err)
	if status != http.StatusOK || len(page) > 100<<10 {
		d.Fatalf("%s: %d, %d bytes: %s", path, status, len(page), page)
	}
	for _, words := range want {
		if !strings.Contains(page, words) {
			d.Errorf("%s lacks %q:\n%s", path, words, page)
		}
	}
	return page
}

// post sends a form and returns the page after it.
func (d *overviewDesk) post(path string, pairs ...string) (int, string) {
	d.Helper()
	form := url.Values{"csrf": {d.csrf}}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	response, err := d.browser.PostForm(d.URL+path, form)
	return overviewRead(d, response, err)
}

func overviewRead(d *overviewDesk, response *http.Response, err error) (int, string) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var page strings.Builder
	buffer := make([]byte, 32<<10)
	for {
		n, err := response.Body.Read(buffer)
		page.Write(buffer[:n])
		if err != nil {
			return response.StatusCode, page.String()
		}
	}
}

func TestOverview(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	desk := overviewSignIn(s, exchange.RoleRead)
	desk.get("/console/overview", "Nothing came in yet", "inbox doctor", "inbox chat ", "Answers itself", "Free on the disk", "There was nothing to tell.")

	for _, state := range []string{exchange.StateHeld, exchange.StateFailed, exchange.StateRefused} {
		overviewInsert(s, state)
	}
	if err := s.Store().CountHours(t.Context(), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, period := range []string{"24h", "30d"} {
		page := desk.get("/console/overview?period="+period, `<svg class="chart"`, "chart-bad", `<title id="chart-title">`, "Figures of the chart", `aria-current="true"`)
		if strings.Contains(page, "Nothing came in yet") {
			t.Error("the server is said to be new")
		}
		if got := strings.Count(page, `data-label="Begin"`); got != map[string]int{"24h": 24, "30d": 30}[period] {
			t.Errorf("%s has %d bars", period, got)
		}
	}
	if page := desk.get("/console/overview?agent=other"); strings.Contains(page, "chart-bar") {
		t.Error("another agent has the same figures")
	}
	if response, err := desk.browser.Get(s.URL + "/console?period=year"); err != nil || response.StatusCode != http.StatusBadRequest {
		t.Errorf("%v, %v", response, err)
	}
}

func overviewInsert(s *inboxtest.Server, state string) exchange.TurnRecord {
	s.Helper()
	turn := overviewTurn(state)
	overviewInsertAll(s, turn)
	return turn
}

func overviewTurn(state string) exchange.TurnRecord {
	id := overviewID()
	return exchange.TurnRecord{
		ID: id, Agent: "echo", Principal: "unverified @ana@peer.test", ThreadID: "thread " + id, State: state,
		AcceptedAt: time.Now(), UpdatedAt: time.Now(), Channel: normalized.ViaEmail,
		Message: normalized.Message{
			ID: id + "@peer.test", ThreadID: "thread " + id, Recipient: "@echo@localhost:8080", ReceivedVia: normalized.ViaEmail,
			ReceivedAt: identity.At(time.Now()), Raw: normalized.Raw{Ref: "sha256:00", MediaType: "message/rfc822"},
			Sender: normalized.Sender{Address: identity.Stated("@ana@peer.test"), AuthMethod: normalized.AuthNone}, Parts: []normalized.Part{normalized.Text("hello")},
		},
	}
}

// overviewInsertAll stores messages in one transaction.
func overviewInsertAll(s *inboxtest.Server, turns ...exchange.TurnRecord) {
	s.Helper()
	err := s.Store().Pipeline().InTx(s.Context(), func(tx pipeline.Tx) error {
		for _, turn := range turns {
			if _, _, err := tx.InsertTurn(s.Context(), turn, pipeline.Original{Digest: "00" + turn.ID, MediaType: "message/rfc822", Body: []byte("x")}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
}
