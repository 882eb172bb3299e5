package store

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/migrations"
	"inbox/normalized"
)

// placeModel is what lists should have, beside a store whose worker runs when the test says so.
type placeModel struct {
	s    *Store
	rows []exchange.TurnRecord // in the order of their ids
	// loose: a node of the release before has opened a message that had a place, so that pages may be shorter.
	loose bool
}

func (m *placeModel) do(ctx context.Context, t failing, work func(tx *Tx) error) {
	t.Helper()
	if err := m.s.InTx(ctx, work); err != nil {
		t.Fatal(err)
	}
}

type failing interface {
	Helper()
	Fatal(arguments ...any)
	Fatalf(format string, arguments ...any)
}

// in returns the indexes of messages in states.
func (m *placeModel) in(states ...string) (found []int) {
	for i, row := range m.rows {
		if slices.Contains(states, row.State) {
			found = append(found, i)
		}
	}
	return found
}

func (m *placeModel) accept(ctx context.Context, t failing, turn exchange.TurnRecord) {
	t.Helper()
	m.do(ctx, t, func(tx *Tx) error {
		_, _, err := tx.InsertTurn(ctx, turn, pipeline.Original{Digest: turn.ID})
		return err
	})
	m.rows = append(m.rows, turn)
}

// end moves a message to an end without a reply.
func (m *placeModel) end(ctx context.Context, t failing, i int, state string) {
	t.Helper()
	m.do(ctx, t, func(tx *Tx) error {
		_, err := tx.MoveTurn(ctx, pipeline.Move{ID: m.rows[i].ID, From: []string{m.rows[i].State}, To: state, At: time.Now()})
		return err
	})
	m.rows[i].State = state
}

// reply ends a message with an answer.
func (m *placeModel) reply(ctx context.Context, t failing, i int) {
	t.Helper()
	turn := m.rows[i]
	reply := exchange.Reply{
		ID: newRowID(), TurnID: turn.ID, Agent: turn.Agent, CreatedAt: time.Now(),
		Response: normalized.Response{Parts: []normalized.Part{normalized.Text("answered")}},
	}
	m.do(ctx, t, func(tx *Tx) error {
		move := pipeline.Move{ID: turn.ID, From: []string{turn.State}, To: exchange.StateAnswered, At: time.Now()}
		_, err := tx.AnswerTurn(ctx, move, reply, "")
		return err
	})
	m.rows[i].State = exchange.StateAnswered
}

// reopen runs a failed message again, or lets an operator write a further answer.
func (m *placeModel) reopen(ctx context.Context, t failing, i int) {
	t.Helper()
	turn, err := m.s.Turn(ctx, m.rows[i].ID)
	if err != nil {
		t.Fatal(err)
	}
	m.do(ctx, t, func(tx *Tx) (err error) {
		var moved bool
		if turn.State == exchange.StateFailed {
			moved, err = tx.RepeatTurn(ctx, turn, "again", time.Now())
		} else {
			moved, err = tx.WriteAnswer(ctx, turn, exchange.WrittenAnswer{By: "operator", At: time.Now()})
		}
		if err == nil && !moved {
			err = errors.New("the message was not moved")
		}
		return err
	})
	m.rows[i].State = exchange.StateAccepted
}

// remove deletes a message, as retention does.
func (m *placeModel) remove(ctx context.Context, t failing, i int) {
	t.Helper()
	m.do(ctx, t, func(tx *Tx) error { return tx.erasure().removeTurn(ctx, m.rows[i].ID) })
	m.rows = slices.Delete(m.rows, i, i+1)
}

// older does to a message what a node of the release before would have done.
func (m *placeModel) older(ctx context.Context, t failing, statements ...string) {
	t.Helper()
	m.do(ctx, t, func(tx *Tx) error {
		for _, statement := range statements {
			if err := tx.sql.Do(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// These statements are what a worker of the previous release does with the outbox. They leave out messages that have a place: decision 0174 describes
// what happens to those when a node of that release retries them.
const (
	olderNumbers = `INSERT INTO arrivals (number, turn_id) SELECT (SELECT number FROM search_state) + ROW_NUMBER() OVER (ORDER BY turn_id), turn_id
		FROM search_pending p WHERE answer = 0 AND NOT EXISTS (SELECT 1 FROM arrivals a WHERE a.turn_id = p.turn_id)`
	olderSettles = `DELETE FROM search_pending WHERE answer = 0 OR EXISTS (SELECT 1 FROM arrivals a WHERE a.turn_id = search_pending.turn_id AND a.place = '')`
	olderCounts  = `UPDATE search_state SET number = (SELECT COALESCE(MAX(number), 0) FROM arrivals)`
)

// dies does a pass of the worker up to the commit of the words; what follows is lost with the process.
func (m *placeModel) dies(ctx context.Context, t failing) {
	t.Helper()
	if m.s.words == m.s.engine {
		return // one transaction
	}
	err := m.s.words.Transact(ctx, func(index database.Session) error {
		work, err := gatherWords(ctx, m.s.engine.Reader())
		if err != nil {
			return err
		}
		return work.write(ctx, index, m.s.dialect, m.s.tuning.windows)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// check compares lists with the rows, page by page, and looks for messages that no arm of a list finds.
func (m *placeModel) check(ctx context.Context, t failing, filters ...exchange.ArrivalFilter) {
	t.Helper()
	for _, filter := range filters {
		want, got := []string{}, []string{}
		for _, row := range slices.Backward(m.rows) {
			if plainly(filter, row, "") {
				want = append(want, row.ID)
			}
		}
		for more := true; more; {
			page, err := m.s.Arrivals(ctx, filter)
			if err != nil {
				t.Fatal(err)
			}
			for _, turn := range page.Turns {
				got = append(got, turn.ID)
			}
			if more = page.Next != ""; more && !m.loose && len(page.Turns) != filter.Limit {
				t.Fatalf("%+v: a page of %d", filter, len(page.Turns))
			}
			filter.Before = page.Next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%+v (-want +got):\n%s", filter, diff)
		}
	}
	if lost := lostPlaces(ctx, t, m.s); lost != 0 {
		t.Fatalf("%d messages have another place than their state, and nothing says so", lost)
	}
}

// lostPlaces counts messages in a wrong place, or in none, that lists would not find by the outbox or as messages without a place.
func lostPlaces(ctx context.Context, t failing, s *Store) (count int) {
	t.Helper()
	_, err := first(ctx, s.engine.Reader(), `SELECT COUNT(*) FROM turns t LEFT JOIN arrivals a ON a.turn_id = t.id
		WHERE `+endedTurns+` AND (a.place IS NULL OR a.place <> '' AND a.place <> `+placeNow+`)
		AND NOT EXISTS (SELECT 1 FROM search_pending p WHERE p.turn_id = t.id)`, nil, &count)
	if err != nil {
		t.Fatal(err)
	}
	return count
}

func placeFilters(limit int) (filters []exchange.ArrivalFilter) {
	for _, one := range []exchange.ArrivalFilter{
		{}, {Agent: "echo"}, {Sender: "@ann@one.example"}, {Sender: "@one.example", States: []string{exchange.StateFailed, exchange.StateAnswered}},
		{Sender: "peer.example @bob@one.example"}, {States: []string{exchange.StateFailed}}, {States: []string{exchange.StateAnswered}, Channel: "email"},
		{States: []string{exchange.StateSilent, exchange.StateCancelled, exchange.StateAccepted}}, {States: []string{exchange.StateAccepted}},
	} {
		one.Limit = limit
		filters = append(filters, one)
	}
	return filters
}

// TestListsAreExactAtEachMoment: messages come, end with and without an answer, are run again, and are removed, while the worker of the search
// index runs, does not run, dies between its two files, or is one of the release before. After each step every list has what it should have, in
// full pages.
func TestListsAreExactAtEachMoment(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.tuning.unanswered = 0
		empty := func(r *rapid.T) {
			for _, table := range []string{"replies", "events", "turn_parties", "search_pending", "arrivals", "turns"} {
				if err := s.Execute(ctx, "DELETE FROM "+table); err != nil {
					r.Fatal(err)
				}
			}
		}
		rapid.Check(t, func(r *rapid.T) {
			empty(r)
			m := &placeModel{s: s}
			one := func(name string, rows []int) int {
				if len(rows) == 0 {
					r.Skip("no message for it")
				}
				return rapid.SampledFrom(rows).Draw(r, name)
			}
			open := func() int { return one("open", m.in(exchange.StateAccepted, exchange.StateRunning)) }
			r.Repeat(map[string]func(*rapid.T){
				"accept": func(r *rapid.T) {
					for range rapid.IntRange(1, 4).Draw(r, "messages") {
						state := rapid.SampledFrom([]string{exchange.StateAccepted, exchange.StateAccepted, exchange.StateHeld, exchange.StateSilent, exchange.StateRefused}).Draw(r, "state")
						m.accept(ctx, r, came(rapid.SampledFrom(someAgents[:2]).Draw(r, "agent"), rapid.SampledFrom(someChannels[:2]).Draw(r, "channel"),
							rapid.SampledFrom(someSenders[:3]).Draw(r, "sender"), state, "hello"))
					}
				},
				"answer": func(*rapid.T) { m.reply(ctx, r, open()) },
				"end": func(r *rapid.T) {
					m.end(ctx, r, open(), rapid.SampledFrom([]string{exchange.StateFailed, exchange.StateSilent, exchange.StateCancelled}).Draw(r, "state"))
				},
				"run":    func(*rapid.T) { m.end(ctx, r, one("accepted", m.in(exchange.StateAccepted)), exchange.StateRunning) },
				"reopen": func(*rapid.T) { m.reopen(ctx, r, one("ended", m.in(exchange.StateFailed, exchange.StateAnswered))) },
				"remove": func(*rapid.T) {
					m.remove(ctx, r, one("ended", m.in(exchange.StateFailed, exchange.StateAnswered, exchange.StateSilent)))
				},
				"index": func(r *rapid.T) {
					if err := s.indexSome(ctx); err != nil {
						r.Fatal(err)
					}
				},
				"number": func(r *rapid.T) {
					if err := s.enqueue(ctx); err != nil {
						r.Fatal(err)
					}
				},
				"die": func(*rapid.T) { m.dies(ctx, r) },
				"place": func(r *rapid.T) {
					if err := s.placeLeft(ctx); err != nil {
						r.Fatal(err)
					}
				},
				"restore": func(*rapid.T) { m.do(ctx, r, func(tx *Tx) error { return tx.rebuild(ctx) }) },
				"older worker": func(*rapid.T) {
					m.older(ctx, r, olderNumbers, olderCounts, olderSettles)
				},
				"older end": func(*rapid.T) {
					i := open()
					m.older(ctx, r, `UPDATE turns SET state = 'failed' WHERE id = '`+m.rows[i].ID+`'`)
					m.rows[i].State = exchange.StateFailed
				},
				"older retry": func(*rapid.T) {
					i := one("failed", m.in(exchange.StateFailed))
					m.older(ctx, r, `UPDATE turns SET state = 'accepted' WHERE id = '`+m.rows[i].ID+`'`,
						`INSERT INTO search_pending (id, turn_id, answer) VALUES ('`+newRowID()+`', '`+m.rows[i].ID+`', 1)`)
					m.rows[i].State, m.loose = exchange.StateAccepted, true
				},
				"": func(r *rapid.T) {
					filters := placeFilters(rapid.IntRange(1, 7).Draw(r, "limit"))
					m.check(ctx, r, rapid.Permutation(filters).Draw(r, "filters")[:3]...)
				},
			})
		})
	})
}

// TestListsWithoutTheWorker: a thousand messages wait for a worker that has stopped; lists have them all. When it runs again, the messages
// are in their places.
func TestListsWithoutTheWorker(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		m := &placeModel{s: s}
		for i := range 1_000 {
			m.accept(ctx, t, came(someAgents[i%2], someChannels[i%3], someSenders[i%4], exchange.StateAccepted, "hello"))
			if i == 400 {
				index(t, s)
			}
			if i%3 == 0 {
				m.reply(ctx, t, i)
			} else if i%7 == 0 {
				m.end(ctx, t, i, exchange.StateFailed)
			}
		}
		m.check(ctx, t, placeFilters(90)...)
		for _, i := range m.in(exchange.StateFailed)[:20] {
			m.reopen(ctx, t, i)
		}
		for _, i := range m.in(exchange.StateAccepted) {
			m.reply(ctx, t, i)
		}
		m.check(ctx, t, placeFilters(90)...)
		index(t, s)
		m.check(ctx, t, placeFilters(90)...)
		if left, err := s.upTo(ctx, &arrivalList{filter: exchange.ArrivalFilter{Agent: "echo"}}, 1_000); err != nil || len(left) != 500 {
			t.Errorf("%d, %v", len(left), err)
		}
		for name, statement := range map[string]string{"waiting": `SELECT COUNT(*) FROM search_pending`, "without a place": `SELECT COUNT(*) FROM arrivals WHERE place = ''`} {
			var left int
			if _, err := first(ctx, s.engine.Reader(), statement, nil, &left); err != nil || left != 0 {
				t.Errorf("%d are %s, %v", left, name, err)
			}
		}
	})
}

// TestPlacesUnderLoad: writers end messages and run them again while two workers place them. No moment has a message in a wrong place of
// which nothing says so, and at the end every list is exact.
func TestPlacesUnderLoad(t *testing.T) {
	const writers, each = 6, 30
	onBoth(t, func(t *testing.T, s *Store) {
		ctx, stop := context.WithCancel(t.Context())
		var working, writing sync.WaitGroup
		for range 2 {
			working.Go(func() {
				for ctx.Err() == nil {
					if err := s.indexSome(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		working.Go(func() {
			for ctx.Err() == nil {
				if lost := lostPlaces(t.Context(), t, s); lost != 0 {
					t.Errorf("%d messages are in a wrong place", lost)
					return
				}
			}
		})

		models := make([]*placeModel, writers)
		for w := range writers {
			models[w] = &placeModel{s: s}
			writing.Go(func() {
				for i := range each {
					m := models[w]
					m.accept(t.Context(), t, came(someAgents[i%2], someChannels[i%3], someSenders[i%4], exchange.StateAccepted, "hello"))
					switch i % 3 {
					case 0:
						m.reply(t.Context(), t, i)
					case 1:
						m.end(t.Context(), t, i, exchange.StateFailed)
						m.reopen(t.Context(), t, i)
						m.reply(t.Context(), t, i)
						m.reopen(t.Context(), t, i)
						m.end(t.Context(), t, i, exchange.StateFailed)
					}
				}
			})
		}
		writing.Wait()
		stop()
		working.Wait()

		all := &placeModel{s: s}
		for _, m := range models {
			all.rows = append(all.rows, m.rows...)
		}
		slices.SortFunc(all.rows, func(a, b exchange.TurnRecord) int { return strings.Compare(a.ID, b.ID) })
		all.check(t.Context(), t, placeFilters(40)...)
		index(t, s)
		all.check(t.Context(), t, placeFilters(40)...)
	})
}

// TestPlacesOfStoredMessages: the migration puts messages that have ended in their places.
func TestPlacesOfStoredMessages(t *testing.T) {
	var rows []string
	for i, state := range []string{"answered", "held", "failed", "accepted", "silent"} {
		id := "01900000-0000-7000-8000-00000000000" + strconv.Itoa(i)
		rows = append(rows, `INSERT INTO turns (id, agent, recipient, received_via, channel, principal, native_id, thread_id, reference, native_key, sender_key,
			thread_key, owner_key, reference_key, state, reason, attempt, reply_id, accepted_at, updated_at, original_digest, route, message, sender, sender_domain)
			VALUES ('`+id+`', 'echo', '@echo@x.example', 'email', 'email', 'peer.example `+strings.Repeat("x", 300)+`', '`+id+`', 'thread', '', 'nk `+id+`', 'sk', 'tk', 'ok', '', '`+state+
			`', '', 1, '', 1, 2, '', '{}', '{"sender":{"address":"@ann@one.example"}}', '@ann@one.example', 'one.example')`,
			`INSERT INTO arrivals (number, turn_id) VALUES (`+strconv.Itoa(i+1)+`, '`+id+`')`)
	}
	check := func(t *testing.T, options Options) {
		s, err := Open(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		for filter, want := range map[string]int{"@ann@one.example": 5, "@one.example": 5, "peer.example " + strings.Repeat("x", 300): 5, "peer.example " + strings.Repeat("x", 299): 0} {
			if got := pagesOf(t.Context(), t, s, exchange.ArrivalFilter{Sender: filter, Limit: 2}); len(got) != want {
				t.Errorf("%d messages of %s, want %d", len(got), filter, want)
			}
		}
		var places string
		if err := s.engine.Reader().Each(t.Context(), `SELECT place FROM arrivals ORDER BY number`, nil, func(r row) error {
			var place string
			err := r.Scan(&place)
			places += place + ", "
			return err
		}); err != nil || places != "echo email answered, , echo email failed, , echo email silent, " {
			t.Errorf("%q, %v", places, err)
		}
	}

	t.Run("sqlite", func(t *testing.T) {
		directory := t.TempDir()
		buildWith(t, "sqlite", sqliteURL(filepath.Join(directory, File)), database.SQLite, 53, rows)
		check(t, Options{DataDir: directory})
	})
	t.Run("postgres", func(t *testing.T) {
		url := storetest.EmptyPostgres(t)
		buildWith(t, "pgx", url, database.Postgres, 53, rows)
		check(t, Options{URL: url, Connections: 2})
	})
}

// TestInterruptedPlacesMigration: on PostgreSQL the migration is no transaction, so it runs again after any of its statements.
func TestInterruptedPlacesMigration(t *testing.T) {
	text, err := fs.ReadFile(migrations.For(migrations.Postgres), "00058_placed_arrivals.sql")
	if err != nil {
		t.Fatal(err)
	}
	statements := strings.SplitAfter(regexp.MustCompile(`(?m)^--.*\n`).ReplaceAllString(string(text), ""), ";")
	url := storetest.EmptyPostgres(t)
	buildWith(t, "pgx", url, database.Postgres, 53, statements[:len(statements)-2]) // killed before the last one
	s, err := Open(t.Context(), Options{URL: url, Connections: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	m := &placeModel{s: s}
	m.accept(t.Context(), t, came("echo", "email", "@ann@one.example", exchange.StateAccepted, "hello"))
	m.reply(t.Context(), t, 0)
	index(t, s)
	m.check(t.Context(), t, placeFilters(2)...)
}
