package inbox_test

import (
	"database/sql"
	"flag"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"inbox/e2e/load"
	"inbox/engine/store/storetest"
	"inbox/inboxtest"
	"inbox/internal/await"
)

var updateCosts = flag.Bool("update-costs", false, "write the counts of docs/performance.md anew")

// message sends the messages of one channel, one after the other.
type message struct {
	name  string
	start func(t *testing.T, settings []string) (send func(), directory string)
}

const (
	warmMessages    = 60 // each person of the community has been seen
	countedMessages = 25
	profiledOnes    = 10
	maxRounds       = 3
)

// TestCostOfAMessage counts what one message costs, and compares it with docs/performance.md. It counts and takes no times,
// so that it means the same on every machine. Of several messages
// the cheapest counts: what a poll or a slow machine adds now and then is not of the message.
func TestCostOfAMessage(t *testing.T) {
	const page = "docs/performance.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, table, after := costTable(t, string(text))
	known := make(map[string]cost)
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		name, one := parseCost(t, line)
		known[name] = one
	}

	written := strings.Join(strings.Split(strings.TrimSpace(table), "\n")[:2], "\n") + "\n"
	for _, m := range []message{{"mention accepted", mentions}, {"mail of 10 KiB accepted", mails}, {"A2A echo", tasks}, {"mention answered", repliedMentions}} {
		for _, database := range []string{"SQLite", "PostgreSQL"} {
			name := m.name + ", " + database
			t.Run(name, func(t *testing.T) {
				var settings []string
				if database == "PostgreSQL" {
					settings = append(settings, "INBOX_DATABASE_URL="+storetest.Postgres(t))
				}
				least, most := countRounds(t, m, settings, database == "SQLite", known[name])
				t.Log(least, most)
				written += least.row(name)
				if was, there := known[name]; !*updateCosts && !there {
					t.Errorf("%s has no row for %s; run: go test . -run TestCostOfAMessage -update-costs", page, name)
				} else if !*updateCosts {
					compare(t, least, most, was)
				}
			})
		}
	}

	if *updateCosts && !t.Failed() {
		if err := os.WriteFile(page, []byte(before+written+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const costBegin, costEnd = "<!-- counts -->\n", "<!-- end of counts -->"

func costTable(t *testing.T, text string) (before, table, after string) {
	t.Helper()
	before, rest, found := strings.Cut(text, costBegin)
	table, after, ends := strings.Cut(rest, costEnd)
	if !found || !ends {
		t.Fatalf("docs/performance.md has no table between %q and %q", costBegin, costEnd)
	}
	return before + costBegin, table, costEnd + after
}

// cost is what one message costs.
type cost struct {
	writes, reads, roundTrips, transactions float64 // before the sender has an answer
	rows, entries                           float64 // that stay, in inbox.db of SQLite; NaN elsewhere
	allocations, json                       float64
}

func (c *cost) figures() []*float64 {
	return []*float64{&c.writes, &c.reads, &c.roundTrips, &c.transactions, &c.rows, &c.entries, &c.allocations, &c.json}
}

var costNames = []string{
	"statements in transactions", "other statements", "round trips", "transactions", "rows", "index entries", "allocations", "calls of encoding/json",
}

func (c cost) row(name string) string {
	cells := []string{name}
	for _, figure := range c.figures() {
		cells = append(cells, strings.Replace(strconv.FormatFloat(*figure, 'f', -1, 64), "NaN", "–", 1))
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func parseCost(t *testing.T, line string) (name string, c cost) {
	t.Helper()
	cells := strings.Split(strings.Trim(line, "| "), "|")
	figures := c.figures()
	if len(cells) != len(figures)+1 {
		t.Fatalf("the row %q has %d cells; want %d", line, len(cells), len(figures)+1)
	}
	for i, figure := range figures {
		value, err := strconv.ParseFloat(strings.Replace(strings.TrimSpace(cells[i+1]), "–", "NaN", 1), 64)
		if err != nil {
			t.Fatalf("the row %q: %v", line, err)
		}
		*figure = value
	}
	return strings.TrimSpace(cells[0]), c
}

// slack allows for what a scheduler decides, such as which buffer comes from a pool. What runs in transactions is exact;
// beside them the queue looks for work now and then.
func (c *cost) slack() []float64 { return []float64{0, 2, 0, 0, 1, 2, 0.05*c.allocations + 10, 1.5} }

// excess names the figures that are larger than they were.
func (c *cost) excess(was cost) (names []string) {
	now, then, slack := c.figures(), was.figures(), was.slack()
	for i, name := range costNames {
		if *now[i] > *then[i]+slack[i] {
			names = append(names, fmt.Sprintf("%s: %g, and docs/performance.md says %g", name, *now[i], *then[i]))
		}
	}
	return names
}

// compare fails for figures that are larger than they were in each round, and for those that are smaller in each.
func compare(t *testing.T, least, most, was cost) {
	t.Helper()
	for _, more := range least.excess(was) {
		t.Errorf("%s. Find what each message pays for now, or change the figure and say why in the commit", more)
	}
	for _, less := range was.excess(most) {
		t.Errorf("this message costs less than docs/performance.md says: write it there, so that it stays so (-update-costs): %s", less)
	}
}

// countRounds measures up to three rounds and returns the lowest and the highest value of each figure. It stops after the first round that matches
// the known cost. A round can be too low as well, because work left over from one message may be done together with that of the next.
func countRounds(t *testing.T, m message, settings []string, sqlite bool, known cost) (least, most cost) {
	send, directory := m.start(t, settings)
	for range warmMessages {
		send()
	}
	settle(t)
	for round := range maxRounds {
		now := count(t, send, directory, sqlite)
		for i, figure := range now.figures() {
			if low := least.figures()[i]; round == 0 || *figure < *low {
				*low = *figure
			}
			if high := most.figures()[i]; round == 0 || *figure > *high {
				*high = *figure
			}
		}
		if !*updateCosts && least.excess(known) == nil && known.excess(most) == nil {
			break
		}
	}
	return least, most
}

// count sends messages and returns what one costs.
func count(t *testing.T, send func(), directory string, sqlite bool) (counted cost) {
	figures := make([][]float64, len(counted.figures()))
	var rows, entries [2]int
	if sqlite {
		rows[0], entries[0] = stored(t, directory)
	}
	for range countedMessages {
		start, allocated := readCounters(t), allocations()
		send()
		allocated = allocations() - allocated
		answered := readCounters(t)
		settle(t)
		figures[0] = append(figures[0], answered.writes-start.writes)
		figures[1] = append(figures[1], answered.reads-start.reads)
		figures[2] = append(figures[2], answered.roundTrips-start.roundTrips)
		figures[3] = append(figures[3], answered.transactions-start.transactions)
		figures[6] = append(figures[6], allocated)
	}
	for i, figure := range counted.figures() {
		if len(figures[i]) > 0 {
			*figure = slices.Min(figures[i])
		}
	}
	counted.rows, counted.entries = math.NaN(), math.NaN()
	if sqlite {
		rows[1], entries[1] = stored(t, directory)
		counted.rows = rounded(rows[1]-rows[0], countedMessages)
		counted.entries = rounded(entries[1]-entries[0], countedMessages)
	}
	counted.json = rounded(jsonCalls(func() {
		for range profiledOnes {
			send()
		}
		settle(t)
	}), profiledOnes)
	return counted
}

func rounded(sum, messages int) float64 {
	value, _ := strconv.ParseFloat(strconv.FormatFloat(float64(sum)/float64(messages), 'f', 1, 64), 64)
	return value
}

// reading is the state of the counters of this process.
type reading struct{ writes, reads, roundTrips, transactions float64 }

func readCounters(t *testing.T) (r reading) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			switch family.GetName() {
			case "inbox_store_statements_total":
				if metric.GetLabel()[0].GetValue() == "write" {
					r.writes += metric.GetCounter().GetValue()
				} else {
					r.reads += metric.GetCounter().GetValue()
				}
			case "inbox_store_round_trips_total":
				r.roundTrips += metric.GetCounter().GetValue()
			case "inbox_store_transaction_seconds":
				r.transactions += float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return r
}

// allocations returns how many objects this process has allocated.
func allocations() float64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return float64(memory.Mallocs)
}

// settle waits until no statement has run for a while: the work behind a message is done.
func settle(t *testing.T) {
	t.Helper()
	const calm = 25 * time.Millisecond
	last, since := readCounters(t), time.Now()
	await.Until(t, "the work behind a message to end", func() bool {
		if now := readCounters(t); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > calm
	})
}

// stored counts the rows and the index entries of a database of SQLite.
func stored(t *testing.T, directory string) (rows, entries int) {
	t.Helper()
	database, err := sql.Open("sqlite", "file:"+(&url.URL{Path: filepath.Join(directory, "inbox.db")}).EscapedPath()+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	err = database.QueryRowContext(t.Context(), `SELECT
		COALESCE(SUM(d.ncell) FILTER (WHERE s.type = 'table' AND d.pagetype = 'leaf'), 0),
		COALESCE(SUM(d.ncell) FILTER (WHERE s.type = 'index'), 0)
		FROM dbstat d JOIN sqlite_schema s ON s.name = d.name`).Scan(&rows, &entries)
	if err != nil {
		t.Fatal(err)
	}
	return rows, entries
}

// jsonCalls counts the calls of encoding/json in work: each makes an object of its own, which a profile of every allocation shows.
func jsonCalls(work func()) int {
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1
	defer func() { runtime.MemProfileRate = rate }()
	before := profiled()
	work()
	return profiled() - before
}

func profiled() (calls int) {
	runtime.GC() // the profile is that of the last collection
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 1<<16)
	n, ok := runtime.MemProfile(records, true)
	for !ok {
		records = make([]runtime.MemProfileRecord, n+n/4)
		n, ok = runtime.MemProfile(records, true)
	}
	for _, record := range records[:n] {
		frames := runtime.CallersFrames(record.Stack())
		for frame, more := frames.Next(); more || frame.Function != ""; frame, more = frames.Next() {
			if strings.HasPrefix(frame.Function, "runtime.") {
				continue
			}
			if slices.Contains([]string{"encoding/json.Unmarshal", "encoding/json.Marshal", "encoding/json.NewDecoder", "encoding/json.NewEncoder"}, frame.Function) {
				calls += int(record.AllocObjects)
			}
			break
		}
	}
	return calls
}

// inTurn brings prepared messages one at a time.
func inTurn[T any](t *testing.T, all []T, bring func(T)) func() {
	next := 0
	return func() {
		if next == len(all) {
			t.Fatal("every prepared message was sent")
		}
		bring(all[next])
		next++
	}
}

const preparedMessages = warmMessages + maxRounds*(countedMessages+profiledOnes)

func mentions(t *testing.T, settings []string) (send func(), directory string) {
	return notesTo(t, "busy", settings, func(chan struct{}) {})
}

func repliedMentions(t *testing.T, settings []string) (send func(), directory string) {
	return notesTo(t, "echo", settings, func(replies chan struct{}) { await.Receive(t, replies, "the reply of the agent") })
}

func notesTo(t *testing.T, agent string, settings []string, ended func(chan struct{})) (send func(), directory string) {
	replies := make(chan struct{}, preparedMessages)
	community, err := load.NewCommunity("127.0.0.1:0", persons, func(load.Arrival) { replies <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(community.Close)
	directory = t.TempDir()
	handler := startAccepting(t, append(settings, "INBOX_DATA_DIR="+directory)...)
	return inTurn(t, signNotes(t, community, agent, preparedMessages), func(note signedNote) {
		note.deliver(t, handler)
		ended(replies)
	}), directory
}

func mails(t *testing.T, settings []string) (send func(), directory string) {
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	directory = t.TempDir()
	server := startAcceptingMail(t, names.Address(), append(settings, "INBOX_DATA_DIR="+directory)...)
	peer := newMailPeer(t, server.MailAddr())
	t.Cleanup(func() { _ = peer.Close() })
	return inTurn(t, signMails(t, names, preparedMessages), func(transaction string) { peer.bring(t, transaction) }), directory
}

func tasks(t *testing.T, settings []string) (send func(), directory string) {
	directory = t.TempDir()
	server := inboxtest.Start(t, append(settings, "INBOX_DATA_DIR="+directory)...)
	token, _, err := server.Operator().Tokens.Create(t.Context(), "bench", "")
	if err != nil {
		t.Fatal(err)
	}
	handler, sent := server.Handler(), int64(0)
	return func() { sent++; sendTask(t, handler, token, sent) }, directory
}
