package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/inboxtest"
	"inbox/internal/await"
)

// BenchmarkPages measures each page of the console over many stored messages with their answers and deliveries, while 50 messages come by
// chat and are answered each second, and what open live views cost. It prints the times of each page and the share of a processor for each
// live view. It fills a database first, so it takes minutes; INBOX_BENCH_ARRIVALS says with how many messages (100,000),
// INBOX_BENCH_ENGINE on which database alone. INBOX_BENCH_DIRECTORY keeps the files of the server, and
// INBOX_BENCH_DATABASE_URL names a database of PostgreSQL that stays with them; one that has messages is taken as it is.
// INBOX_BENCH_PAGES is a regular expression that selects pages:
// INBOX_BENCH_ARRIVALS=1000000 go test -run '^$' -bench Pages -benchtime 1x -timeout 90m .
func BenchmarkPages(b *testing.B) {
	rows := 100_000
	if text := os.Getenv("INBOX_BENCH_ARRIVALS"); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil || rows < 1000 {
			b.Fatal("INBOX_BENCH_ARRIVALS must be a number from 1000")
		}
	}
	for _, engine := range []string{"sqlite", "postgres"} {
		if only := os.Getenv("INBOX_BENCH_ENGINE"); only == "" || only == engine {
			b.Run(engine, func(b *testing.B) { benchPages(b, engine, rows) })
		}
	}
}

func benchPages(b *testing.B, engine string, rows int) {
	directory := os.Getenv("INBOX_BENCH_DIRECTORY")
	if directory == "" {
		directory = b.TempDir()
	}
	driver, address := "sqlite", "file:"+filepath.Join(directory, store.File)
	settings := []string{"INBOX_DATA_DIR=" + directory}
	if engine == "postgres" {
		driver, address = "pgx", os.Getenv("INBOX_BENCH_DATABASE_URL")
		if address == "" {
			address = storetest.Postgres(b)
		}
		settings = append(settings, "INBOX_DATABASE_URL="+address)
	}
	file := filepath.Join(directory, "inbox.toml")
	text := "domain = \"inbox.example\"\n[federation]\nallow_private = true\n"
	for n := range 20 {
		text += fmt.Sprintf("[[agents]]\nname = \"agent%02d\"\nkind = \"echo\"\naccess = \"public\"\n", n)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	server := inboxtest.New(b, file, settings...)
	server.Store() // with the newest schema

	database, err := sql.Open(driver, address)
	if err != nil {
		b.Fatal(err)
	}
	defer database.Close()
	database.SetMaxOpenConns(1)
	var filled bool
	if err := database.QueryRowContext(b.Context(), `SELECT EXISTS (SELECT 1 FROM turns)`).Scan(&filled); err != nil {
		b.Fatal(err)
	}
	if !filled {
		fillLedger(b, engine, database, rows)
	}
	server.Serve()
	awaitIndex(b, database)

	token, _, err := server.Operator().Tokens.CreateOperator(b.Context(), fmt.Sprint("bench-", time.Now().UnixNano()), exchange.RoleAdmin)
	if err != nil {
		b.Fatal(err)
	}
	visitor := newVisitor(b, server.URL, token)
	ctx, cancel := context.WithCancel(b.Context())
	var load sync.WaitGroup
	load.Go(func() { askOften(ctx, b, server) })
	measurePages(b, visitor)
	visitor.measureLive()
	cancel()
	load.Wait()
}

func fillLedger(b *testing.B, engine string, database *sql.DB, rows int) {
	b.Helper()
	begun := time.Now()
	err := storetest.FillLedger(b.Context(), storetest.Ledger{Messages: rows, Answers: true}, func(ctx context.Context, statements []storetest.Statement) error {
		tx, err := database.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for _, one := range statements {
			if _, err := tx.ExecContext(ctx, one.Text, one.Arguments...); err != nil {
				_ = tx.Rollback()
				return err
			}
		}
		return tx.Commit()
	})
	if err != nil {
		b.Fatal(err)
	}
	statements := []string{`UPDATE search_state SET rebuild_before = '~'`}
	if engine == "postgres" { // it analyzes by itself in time; SQLite never does here
		statements = append(statements, `ANALYZE`)
	}
	for _, statement := range statements {
		if _, err := database.ExecContext(b.Context(), statement); err != nil {
			b.Fatal(err)
		}
	}
	fmt.Printf("%d messages stored in %s\n", rows, time.Since(begun).Round(time.Second))
}

// awaitIndex waits until the server has written the words of all messages.
func awaitIndex(b *testing.B, database *sql.DB) {
	b.Helper()
	begun := time.Now()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for time.Since(begun) < time.Hour {
		var rebuilding string
		if err := database.QueryRowContext(b.Context(), `SELECT rebuild_before FROM search_state`).Scan(&rebuilding); err != nil {
			b.Fatal(err)
		}
		if rebuilding == "" {
			fmt.Printf("indexed in %s\n", time.Since(begun).Round(time.Second))
			return
		}
		<-ticker.C
	}
	b.Fatal("the words of the messages were not indexed within an hour")
}

// askOften sends 50 messages a second in a hundred conversations, each answered by an agent.
func askOften(ctx context.Context, b *testing.B, server *inboxtest.Server) {
	token := server.Token("visitor")
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	var asked sync.WaitGroup
	defer asked.Wait()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		asked.Go(func() {
			status, _, body := server.Read(http.MethodPost, "/v1/chat", token, fmt.Sprintf(`{"agent":"agent%02d","session":"talk %d","message":"hello from now, number %d"}`, n%20, n%100, n))
			if status != http.StatusOK && ctx.Err() == nil {
				b.Errorf("chat: %d %s", status, body)
			}
		})
	}
}

// visitor is an operator with a browser.
type visitor struct {
	*testing.B
	browser *http.Client
	url     string
}

func newVisitor(b *testing.B, address, token string) *visitor {
	b.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	v := &visitor{B: b, browser: &http.Client{Jar: jar}, url: address}
	response, err := v.browser.PostForm(address+"/console/login", url.Values{"token": {token}})
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		b.Fatalf("login: %d", response.StatusCode)
	}
	return v
}

func (v *visitor) get(path string) string {
	v.Helper()
	response, err := v.browser.Get(v.url + path)
	if err != nil {
		v.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		v.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		v.Fatalf("%s: %d %s", path, response.StatusCode, body)
	}
	return string(body)
}

// leadsTo returns where links of a page lead.
func leadsTo(page, prefix string) []string {
	var paths []string
	for _, found := range regexp.MustCompile(`href="(/console/[^"]*)"`).FindAllStringSubmatch(page, -1) {
		if path := html.UnescapeString(found[1]); strings.HasPrefix(path, prefix) && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

func measurePages(b *testing.B, v *visitor) {
	await.Until(b, "a message that comes now in the inbox", func() bool { return strings.Contains(v.get("/console/inbox"), "hello from now") })
	inbox := v.get("/console/inbox")
	pages := []string{
		"/console/overview", "/console/overview?period=30d", "/console/inbox", "/console/inbox/rows", "/console/inbox?agent=agent03", "/console/inbox?agent=old", "/console/inbox?channel=email",
		"/console/inbox?sender=" + url.QueryEscape("@busy@busy.example"), "/console/inbox?text=hello", "/console/inbox?text=needle", "/console/inbox?text=invoice&agent=agent03",
		"/console/inbox?text=nothingofthekind", "/console/inbox?state=failed", "/console/inbox?state=held", "/console/inbox?waiting=1",
		"/console/work", "/console/work/held", "/console/work/approvals", "/console/work/tools", "/console/work/demands", "/console/work/failed", "/console/work/failed/retry",
		"/console/work/deliveries", "/console/work/deliveries/retry", "/console/work/jobs", "/console/work/mailbox", "/console/work/reports", "/console/work/suppressed", "/console/work/breakers",
		"/console/agents", "/console/agents/agent03", "/console/agents/tokens", "/console/agents/agent03/access",
		"/console/settings", "/console/settings/lists", "/console/settings/notices", "/console/settings/audit", "/console/settings/sessions", "/console/settings/configuration",
		"/@agent03", "/",
	}
	for _, prefix := range []string{"/console/thread", "/console/person", "/console/messages/"} {
		links := leadsTo(inbox, prefix)
		if prefix == "/console/person" && len(links) == 0 && len(leadsTo(inbox, "/console/thread")) > 0 {
			links = leadsTo(v.get(leadsTo(inbox, "/console/thread")[0]), prefix)
		}
		if prefix == "/console/messages/" && len(links) == 0 && len(leadsTo(inbox, "/console/thread")) > 0 {
			links = leadsTo(v.get(leadsTo(inbox, "/console/thread")[0]), prefix)
		}
		if len(links) == 0 {
			b.Fatalf("the inbox leads to no %s…", prefix)
		}
		pages = append(pages, links[:min(2, len(links))]...)
	}

	selected := regexp.MustCompile(os.Getenv("INBOX_BENCH_PAGES"))
	pages = slices.DeleteFunc(pages, func(page string) bool { return !selected.MatchString(page) })
	const rounds = 20
	times := map[string][]time.Duration{}
	for range rounds {
		for _, page := range pages {
			begun := time.Now()
			v.get(page)
			times[page] = append(times[page], time.Since(begun))
		}
	}
	for _, page := range pages {
		slices.Sort(times[page])
		at := func(share float64) time.Duration {
			return times[page][int(share*float64(rounds-1))].Round(10 * time.Microsecond)
		}
		fmt.Printf("p50 %9s  p95 %9s  most %9s  %s\n", at(0.5), at(0.95), at(1), page)
	}
}

// measureLive prints what each of twenty open inboxes costs: each hears of news and asks for the rows again as often as the page does, every two
// seconds while messages come.
func (v *visitor) measureLive() {
	const views, lasts = 20, 20 * time.Second
	measure := func(views int) time.Duration {
		ctx, cancel := context.WithTimeout(v.Context(), lasts)
		defer cancel()
		var open sync.WaitGroup
		used := processorTime()
		for range views {
			open.Go(func() { v.watch(ctx) })
		}
		<-ctx.Done()
		used = processorTime() - used
		open.Wait()
		return used
	}

	quiet := measure(0)
	watched := measure(views)
	fmt.Printf("live view: %.2f %% of a processor each (with the reader's own cost); %s without and %s with %d for %s\n",
		100*(watched-quiet).Seconds()/lasts.Seconds()/views, quiet.Round(time.Millisecond), watched.Round(time.Millisecond), views, lasts)
}

func (v *visitor) watch(ctx context.Context) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.url+"/console/live?after=0", nil)
	if err != nil {
		v.Error(err)
		return
	}
	response, err := v.browser.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	fetched := time.Time{}
	buffer := make([]byte, 4096)
	for {
		n, err := response.Body.Read(buffer)
		if err != nil {
			return
		}
		if strings.Contains(string(buffer[:n]), "event: arrived") && time.Since(fetched) >= 2*time.Second {
			fetched = time.Now()
			v.get("/console/inbox/rows")
		}
	}
}
