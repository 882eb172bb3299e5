package inbox_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
)

// operatorTokens makes one token for each role.
func operatorTokens(s *inboxtest.Server) map[exchange.Role]string {
	s.Helper()
	tokens := map[exchange.Role]string{}
	for _, role := range []exchange.Role{exchange.RoleRead, exchange.RoleWork, exchange.RoleAdmin} {
		token, _, err := s.Operator().Tokens.CreateOperator(s.Context(), "desk-"+role.String(), role)
		if err != nil {
			s.Fatal(err)
		}
		tokens[role] = token
	}
	return tokens
}

// changesByItself are tables that differ from one moment to the next on a server of which no one asks anything, with the reason.
var changesByItself = map[string]string{
	"counted_hours": "a row for each hour", "arrivals": "the list follows the messages", "search_pending": "so does the index of words", "search_words": "the same", "search_state": "the same",
	"notice_state": "rounds of the server begin and end", "notice_conditions": "the same", "notice_tallies": "the same", "retention_cursors": "the same", "channel_hours": "the same",
}

// livingNamespaces are namespaces of documents that do so: signs of life, and when a round began last.
var livingNamespaces = []string{"probe", "nodes", "retention", "blobs"}

// kept returns the rows of all tables as texts, but of those that change by themselves.
func kept(s *inboxtest.Server, besides ...string) map[string][]string {
	s.Helper()
	snapshot, err := s.Store().Snapshot(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	defer snapshot.Close()

	rows := map[string][]string{}
	for _, table := range snapshot.Tables {
		if changesByItself[table.Name] != "" || slices.Contains(besides, table.Name) {
			continue
		}
		err := snapshot.Each(s.Context(), table, func(values []any) error {
			if table.Name == "documents" && slices.Contains(livingNamespaces, fmt.Sprint(values[0])) {
				return nil
			}
			rows[table.Name] = append(rows[table.Name], fmt.Sprint(values...))
			return nil
		})
		if err != nil {
			s.Fatal(err)
		}
		slices.Sort(rows[table.Name])
	}
	return rows
}

// changes names what differs between two looks at the same tables.
func changes(before, after map[string][]string) (found []string) {
	for _, table := range slices.Sorted(maps.Keys(after)) {
		for _, row := range after[table] {
			if !slices.Contains(before[table], row) {
				found = append(found, table+" has "+row)
			}
		}
	}
	for _, table := range slices.Sorted(maps.Keys(before)) {
		for _, row := range before[table] {
			if !slices.Contains(after[table], row) {
				found = append(found, table+" had "+row)
			}
		}
	}
	return found
}

// readersOwn are the acts on pages that are open to readers: each is about the session, the language or the marks of who does it.
var readersOwn = []string{"/console/login", "/console/logout", "/console/confirm", "/console/language", "/console/inbox/read", "/console/settings/sessions/end"}

// TestReadersChangeNothing tries every operation of the API that its description names, with each role that is too small for it, and every
// act of the console as a reader: all are refused, and the database is afterwards what it was before. The description says which role an
// operation needs. What is open to readers leaves all as it was but their own marks and sessions.
func TestReadersChangeNothing(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t)
	tokens := operatorTokens(s)
	if status, _, body := s.Read(http.MethodPost, "/v1/chat", "", `{"agent":"echo","message":"hello"}`); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	turns, err := s.Store().Turns(t.Context(), exchange.TurnFilter{Limit: 1})
	if err != nil || len(turns) != 1 {
		t.Fatal(len(turns), err)
	}
	s.Settled(turns[0].ID)

	var document struct {
		Paths map[string]map[string]struct {
			Security []map[string][]string `json:"security"`
		} `json:"paths"`
	}
	_, _, body := s.Read(http.MethodGet, "/openapi.json", "", "")
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		t.Fatal(err)
	}

	reader, admin := newBrowser(t), newBrowser(t)
	signIn(t, reader, s.URL, tokens[exchange.RoleRead])
	signIn(t, admin, s.URL, tokens[exchange.RoleAdmin])
	sessions, err := s.Operator().Sessions.List(t.Context(), exchange.ConsoleSessionFilter{Limit: 10})
	if err != nil || len(sessions) != 2 || sessions[0].Role != exchange.RoleAdmin {
		t.Fatalf("%+v, %v", sessions, err)
	}
	_, page := read(t, reader, http.MethodGet, s.URL+"/console/inbox", nil)
	secret := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(page)
	if secret == nil {
		t.Fatalf("no form on %s", page)
	}
	form := url.Values{
		"csrf": {secret[1]}, "id": {turns[0].ID, sessions[0].ID}, "agent": {"echo"}, "target": {"spam.example"}, "list": {"block"}, "text": {"x"}, "name": {"x"},
		"kind": {"echo"}, "scope": {"admin"}, "reason": {"x"}, "address": {"a@b.example"}, "session": {sessions[0].ID}, "language": {"de"},
	}

	if status, _, body := s.Read(http.MethodGet, "/.well-known/jwks.json", "", ""); status != http.StatusOK { // makes the key, which the first look at a page would make
		t.Fatalf("%d %s", status, body)
	}
	before := kept(s)
	tried := 0
	ids := strings.NewReplacer("{turn}", turns[0].ID, "{agent}", "echo", "{actor}", "echo", "{reply}", turns[0].ID)
	for _, route := range s.Routes() {
		if !strings.HasPrefix(route.Pattern, "/console") || route.Method == http.MethodGet || slices.Contains(readersOwn, route.Pattern) {
			continue
		}
		tried++
		status, page := read(t, reader, route.Method, s.URL+ids.Replace(route.Pattern), form)
		if status != http.StatusForbidden || !strings.Contains(page, "This needs an operator who") {
			t.Errorf("%s %s as a reader: %d %s", route.Method, route.Pattern, status, page)
		}
	}
	if tried < 40 {
		t.Errorf("only %d acts of the console were tried", tried)
	}

	tried = 0
	for path, operations := range document.Paths {
		for method, operation := range operations {
			if !strings.HasPrefix(path, "/api/v1/") {
				continue
			}
			if len(operation.Security) != 1 || len(operation.Security[0]["operator"]) != 1 {
				t.Errorf("%s %s needs %v, not one role of an operator", method, path, operation.Security)
				continue
			}

			var needed exchange.Role
			if err := needed.UnmarshalText([]byte(operation.Security[0]["operator"][0])); err != nil {
				t.Fatal(err)
			}
			looks := path == "/api/v1/agents/{agent}/access-check"                     // a question that is too long for an address
			own := path == "/api/v1/threads/{thread}/read" || path == "/api/v1/unread" // what this reader has read, which others do not see
			if needed == exchange.RoleRead && method != "get" && !looks && !own {
				t.Errorf("%s %s is open to readers", method, path)
			}
			for _, role := range []exchange.Role{exchange.RoleRead, exchange.RoleWork} {
				if role >= needed {
					continue
				}
				tried++
				status, header, answer := s.Read(strings.ToUpper(method), ids.Replace(path)+"?target=spam.example&person=a@b.example&address=a@b.example&principal=x", tokens[role], `{"target":"spam.example","person":"a@b.example","text":"x","message":"x","since":"2h","reason":"x"}`)
				if status != http.StatusForbidden || !strings.Contains(header.Get("WWW-Authenticate"), `scope="`+needed.String()+`"`) {
					t.Errorf("%s %s with the role %s: %d %s", method, path, role, status, answer)
				}
			}
		}
	}
	if tried < 40 {
		t.Errorf("only %d operations were tried", tried)
	}
	if found := changes(before, kept(s)); len(found) > 0 {
		t.Errorf("what was refused changed\n%s", strings.Join(found, "\n"))
	}

	own := []string{"audit", "read_marks", "console_sessions"}
	before = kept(s, own...)
	for _, route := range s.Routes() {
		address := s.URL + ids.Replace(route.Pattern) + "?agent=echo&id=" + url.QueryEscape(turns[0].ThreadID) + "&who=" + url.QueryEscape(turns[0].Message.Sender.Address.String())
		switch {
		case strings.HasPrefix(route.Pattern, "/console") && (route.Method == http.MethodGet || slices.Contains(readersOwn, route.Pattern)):
			if route.Pattern != "/console/logout" { // what follows needs the session
				read(t, reader, route.Method, address, form)
			}
		case strings.HasPrefix(route.Pattern, "/api/v1/"):
			s.Read(route.Method, strings.TrimPrefix(address, s.URL), tokens[exchange.RoleRead], `{"address":"@a@b.example"}`)
		}
	}
	if found := changes(before, kept(s, own...)); len(found) > 0 {
		t.Errorf("what is open to readers changed\n%s", strings.Join(found, "\n"))
	}
	if status := shows(t, admin, s.URL+"/console/confirm"); status != http.StatusOK {
		t.Errorf("a reader ended the session of another operator: %d", status)
	}

	// What is not the operator API takes tokens of operators who may do everything, or none.
	for _, path := range []string{"/v1/sessions", "/v1/bridge/pending", "/v1/tasks/runs"} {
		if status, _, _ := s.Read(http.MethodGet, path, tokens[exchange.RoleWork], ""); status != http.StatusUnauthorized && status != http.StatusNotFound {
			t.Errorf("%s with the role work: %d", path, status)
		}
	}

	if status, _, body := s.Read(http.MethodPost, "/api/v1/agents/echo/chat", tokens[exchange.RoleWork], `{"message":"hi"}`); status != http.StatusOK {
		t.Errorf("work: %d %s", status, body)
	}
	records, err := s.Operator().Audit.Records(t.Context(), exchange.AuditFilter{Code: "operator:agents.chat", Limit: 10})
	if err != nil || len(records) != 1 || records[0].Code != "operator:agents.chat" || records[0].Principal != "operator:desk-work" || records[0].Agent != "echo" {
		t.Errorf("the trail has %+v, %v", records, err)
	}
	if len(changes(before, kept(s, own...))) == 0 {
		t.Error("a message changes nothing: the comparison is blind")
	}
}

// read asks for a page, or posts a form, and returns what came. Of a stream it takes what begins it.
func read(t *testing.T, browser *http.Client, method, address string, form url.Values) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if method != http.MethodGet {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return response.StatusCode, ""
	}
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(page)
}

// signIn signs a browser in at the console of a node.
func signIn(t *testing.T, browser *http.Client, address, token string) {
	t.Helper()
	response, err := browser.PostForm(address+"/console/login", url.Values{"token": {token}})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusSeeOther {
		t.Fatalf("%s: %d", address, response.StatusCode)
	}
}

func newBrowser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Jar: jar, Timeout: inboxtest.Client.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// shows returns the status of a page.
func shows(t *testing.T, browser *http.Client, address string) int {
	t.Helper()
	response, err := browser.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// TestSessionsOutliveTheirNode signs in at one node of a PostgreSQL database: the session is good at another one when the first is gone,
// and ends there when its token is revoked or an operator ends it.
func TestSessionsOutliveTheirNode(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(key, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := []string{"INBOX_DATABASE_URL=" + storetest.Postgres(t), "INBOX_SECRET_KEY_FILE=" + key, "INBOX_BLOB_URL=file://" + t.TempDir()}
	browser, other := newBrowser(t), newBrowser(t)
	var token, id string
	// Cookies are those of a host, whatever its port.
	t.Run("first node", func(t *testing.T) {
		first := inboxtest.Start(t, settings...)
		made, record, err := first.Operator().Tokens.CreateAdmin(t.Context(), "desk")
		if err != nil {
			t.Fatal(err)
		}
		token, id = made, record.ID
		signIn(t, browser, first.URL, token)
	})

	second := inboxtest.Start(t, settings...)
	if status := shows(t, browser, second.URL+"/console/confirm"); status != http.StatusOK {
		t.Fatalf("the second node answers %d to the session of the first", status)
	}
	signIn(t, other, second.URL, token)

	sessions, err := second.Operator().Sessions.List(t.Context(), exchange.ConsoleSessionFilter{Limit: 10})
	if err != nil || len(sessions) != 2 || sessions[0].Role != exchange.RoleAdmin || sessions[0].By != "token" || sessions[0].Name != "desk" {
		t.Fatalf("%+v, %v", sessions, err)
	}
	if status, _, body := second.Read(http.MethodDelete, "/api/v1/sessions/"+sessions[0].ID, token, ""); status != http.StatusNoContent {
		t.Fatalf("%d %s", status, body)
	}
	if first, ended := shows(t, browser, second.URL+"/console/confirm"), shows(t, other, second.URL+"/console/confirm"); first != http.StatusOK || ended != http.StatusSeeOther {
		t.Errorf("after one session was ended: %d and %d", first, ended)
	}
	if err := second.Operator().Tokens.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if status := shows(t, browser, second.URL+"/console/confirm"); status != http.StatusSeeOther {
		t.Errorf("the session of a revoked token: %d", status)
	}
}

// TestConsoleIsWhereTheOperatorIs: with a listener of the operator's own the other one has no console.
func TestConsoleIsWhereTheOperatorIs(t *testing.T) {
	t.Parallel()
	s := inboxtest.Start(t, "INBOX_ADMIN_LISTEN=127.0.0.1:0")
	browser := newBrowser(t)
	for address, want := range map[string]int{s.URL: http.StatusNotFound, "http://" + s.AdminAddr(): http.StatusOK} {
		if status := shows(t, browser, address+"/console/login"); status != want {
			t.Errorf("%s/console/login: %d, want %d", address, status, want)
		}
	}
}
