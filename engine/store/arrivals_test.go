package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"inbox/engine/pipeline"
	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(t *testing.T, s *Store)) {
	t.Helper()
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), Options{DataDir: migrated(t), URL: url(t), Connections: 6})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			test(t, s)
		})
	}
}

// came is a turn as tests of lists make it.
func came(agent, channel, sender, state, text string) exchange.TurnRecord {
	id := newRowID()
	return exchange.TurnRecord{
		ID: id, Agent: agent, Channel: channel, Principal: "peer.example " + sender, ThreadID: "thread " + id, State: state,
		AcceptedAt: time.Now(),
		Message: normalized.Message{
			ID: id, ThreadID: "thread " + id, Recipient: "@" + agent + "@inbox.example", ReceivedVia: normalized.ViaEmail,
			Sender: normalized.Sender{Address: identity.Stated(sender), DisplayName: "Ann Äpfel"}, Parts: []normalized.Part{normalized.Text(text)},
			Surface: &normalized.Surface{Channel: "email", Subject: "about lunch"},
		},
	}
}

func accept(t testing.TB, s *Store, turn exchange.TurnRecord) {
	t.Helper()
	err := s.InTx(t.Context(), func(tx *Tx) error {
		_, _, err := tx.InsertTurn(t.Context(), turn, pipeline.Original{Digest: turn.ID})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func answer(t testing.TB, s *Store, turn exchange.TurnRecord, text string) exchange.Reply {
	t.Helper()
	reply := exchange.Reply{ID: newRowID(), TurnID: turn.ID, Agent: turn.Agent, CreatedAt: time.Now(), Response: normalized.Response{Parts: []normalized.Part{normalized.Text(text)}}}
	err := s.InTx(t.Context(), func(tx *Tx) error {
		move := pipeline.Move{ID: turn.ID, From: []string{exchange.StateAccepted, exchange.StateRunning}, To: exchange.StateAnswered, At: time.Now()}
		_, err := tx.AnswerTurn(t.Context(), move, reply, "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func index(t testing.TB, s *Store) {
	t.Helper()
	s.tuning.unanswered = 0
	if err := s.indexAll(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// listed are the ids of all pages.
func pagesOf(ctx context.Context, t interface {
	Helper()
	Fatal(arguments ...any)
}, s *Store, filter exchange.ArrivalFilter,
) []string {
	t.Helper()
	ids := []string{}
	for range 2_000 {
		page, err := s.Arrivals(ctx, filter)
		if err != nil {
			t.Fatal(err)
		}
		for _, turn := range page.Turns {
			ids = append(ids, turn.ID)
		}
		if page.Next == "" {
			return ids
		}
		if page.Next == filter.Before {
			t.Fatal("the cursor does not move")
		}
		filter.Before = page.Next
	}
	t.Fatal("no end of pages")
	return nil
}

var (
	someAgents   = []string{"echo", "helper", "helper2"}
	someChannels = []string{"email", "activitypub", "chat"}
	someSenders  = []string{"@ann@one.example", "@bob@one.example", "@Carl@two.example", "@dan@sub.two.example"}
	someWords    = []string{"invoice", "refund", "hello", "tomorrow", "straße", "äpfel", "東京", "x1"}
)

// TestArrivalsAreThoseOfAPlainFilter holds every combination of a filter against a filter in Go over the same rows, page by page.
func TestArrivalsAreThoseOfAPlainFilter(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		small := windowSizes{4, 16, 64}
		s.tuning.windows = small
		var rows []exchange.TurnRecord
		answers := map[string]string{}
		for i := range 240 {
			text := someWords[i%len(someWords)] + " " + someWords[i*7%5] + " number" + fmt.Sprint(i)
			turn := came(someAgents[i*i%3], someChannels[i/3%3], someSenders[i/5%4], turnStates[i*5%len(turnStates)], text)
			accept(t, s, turn)
			rows = append(rows, turn)
		}
		for i, turn := range rows {
			if turn.State == exchange.StateAccepted && i%2 == 0 {
				answer(t, s, turn, "the answer is refund"+fmt.Sprint(i))
				rows[i].State, answers[turn.ID] = exchange.StateAnswered, "the answer is refund"+fmt.Sprint(i)
			}
		}
		index(t, s)

		for name, tuning := range map[string]searchTuning{
			"by the index":       {hits: maxHits, time: searchTime, windows: small},
			"by a part of it":    {hits: 7, time: searchTime, windows: small},
			"in short pages":     {hits: maxHits, windows: small},
			"by the rows":        {few: fewTurns, hits: 7, windows: small},
			"first by the index": {few: 100, hits: 20, probe: probeTime, time: searchTime, windows: small},
		} {
			t.Run(name, func(t *testing.T) {
				s.tuning = tuning
				rapid.Check(t, func(r *rapid.T) {
					filter := exchange.ArrivalFilter{
						Agent:   rapid.SampledFrom(append(someAgents, "", "", "nobody")).Draw(r, "agent"),
						Channel: rapid.SampledFrom(append(someChannels, "", "", "mailx")).Draw(r, "channel"),
						Sender: rapid.SampledFrom(append([]string{"", "", "", "@one.example", "@two.example", "@TWO.example", "carl@two.example", "peer.example @ann@one.example", "@no@one.example"},
							someSenders...)).Draw(r, "sender"),
						States: rapid.SliceOfN(rapid.SampledFrom(turnStates), 0, 3).Draw(r, "states"),
						Text:   rapid.SampledFrom([]string{"", "", "", "invoice", "refund", "re*", "ref*", "refun*", "number1*", "hello numb*", "\"hello numbe*\"", "\"the answer is re*\"", "東*", "\"invoice hello\"", "strasse", "STRASSE", "apfel", "東京", "京東", "lunch", "ann", "one example", "answer is", "nothing"}).Draw(r, "text"),
						Limit:  rapid.IntRange(1, 60).Draw(r, "limit"),
					}
					if from := rapid.IntRange(-200, len(rows)-1).Draw(r, "since"); from >= 0 {
						filter.Since = timeOf(rows[from].ID)
					}
					if to := rapid.IntRange(-200, len(rows)-1).Draw(r, "until"); to >= 0 {
						filter.Until = timeOf(rows[to].ID)
					}

					want := []string{}
					for _, row := range slices.Backward(rows) {
						if plainly(filter, row, answers[row.ID]) {
							want = append(want, row.ID)
						}
					}
					if diff := cmp.Diff(want, pagesOf(t.Context(), r, s, filter)); diff != "" {
						r.Fatalf("%+v (-want +got):\n%s", filter, diff)
					}
				})
			})
		}
	})
}

func timeOf(id string) time.Time {
	seconds, nanos := uuid.MustParse(id).Time().UnixTime()
	return time.Unix(seconds, nanos).Truncate(time.Millisecond)
}

// plainly is the filter once more, as simple as it can be.
func plainly(f exchange.ArrivalFilter, row exchange.TurnRecord, answered string) bool {
	address := strings.ToLower(row.Message.Sender.Address.String())
	sender := map[string]bool{
		"": true, row.Principal: true, address: true, address[1:]: true, "@" + address[strings.LastIndex(address, "@")+1:]: true,
	}
	at := timeOf(row.ID)
	return (f.Agent == "" || f.Agent == row.Agent) && (f.Channel == "" || f.Channel == row.Channel) &&
		(sender[f.Sender] || sender[strings.ToLower(f.Sender)]) && (len(f.States) == 0 || slices.Contains(f.States, row.State)) &&
		(f.Since.IsZero() || !at.Before(f.Since)) && (f.Until.IsZero() || at.Before(f.Until)) &&
		(f.Text == "" || says(f.Text, normalized.PlainText(row.Message.Parts)+row.Message.Surface.Subject, row) || answered != "" && says(f.Text, answered, row))
}

func says(text, said string, row exchange.TurnRecord) bool {
	all := " " + strings.NewReplacer("ß", "ss", "ä", "a", "Ä", "A", "@", " ", ".", " ").Replace(said+"  about lunch  "+row.Message.Sender.Address.String()+" Ann Äpfel") + " "
	all = strings.ToLower(all)
	switch text {
	case "strasse", "STRASSE":
		return false // ß has no decomposition
	case "one example", "answer is":
		return strings.Contains(all, " "+strings.Fields(text)[0]+" ") && strings.Contains(all, " "+strings.Fields(text)[1]+" ")
	case "hello numb*":
		return strings.Contains(all, " hello ") && strings.Contains(all, " numb")
	}
	if begins, is := strings.CutSuffix(strings.Trim(text, `"`), "*"); is {
		return strings.Contains(all, " "+begins)
	}
	return strings.Contains(all, " "+strings.Trim(text, `"`)+" ")
}

// TestNamesOfFilesAreFound: a message is found by the name of a file in it, and by a part of the name, and so is its answer.
func TestNamesOfFilesAreFound(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		asked := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "see the file")
		asked.Message.Parts = append(asked.Message.Parts, normalized.Part{
			Kind: normalized.PartFile, Name: "Jahresabschluß_2026-final.pdf", MIME: "application/pdf", Size: 7,
			BytesRef: &normalized.BytesRef{Kind: normalized.BytesInline, DataBase64: "YQ=="},
		})
		accept(t, s, asked)
		index(t, s)

		for _, few := range []int{0, fewTurns} {
			s.tuning.few, s.tuning.probe = few, 0
			for text, want := range map[string]int{
				"Jahresabschluß_2026-final.pdf": 1, "jahresa*": 1, "2026": 1, `"2026 final"`: 1, "final pdf": 1, "final.docx": 0, `"final 2026"`: 0,
			} {
				if got := pagesOf(t.Context(), t, s, exchange.ArrivalFilter{Text: text, Agent: "echo"}); len(got) != want {
					t.Errorf("%s, few %d: found %d, want %d", text, few, len(got), want)
				}
			}
		}
	})
}

// arrivalPlans are the texts of every combination of filters, with the index that has to serve each.
func arrivalPlans(t *testing.T) (all []listed) {
	add := func(name, index string, text func() (string, []any)) {
		query, arguments := text()
		all = append(all, listed{name, query, index, arguments})
	}
	for sender, index := range map[string]string{
		"": "arrivals_place", "@ann@one.example": "arrivals_sender", "@one.example": "arrivals_domain", "peer.example ann": "arrivals_principal",
		"peer.example " + strings.Repeat("long", 60): "arrivals_principal",
	} {
		for _, agent := range []string{"", "echo"} {
			for _, channel := range []string{"", "email"} {
				for _, states := range [][]string{nil, {exchange.StateAnswered}, {exchange.StateHeld, exchange.StateFailed}} {
					for _, since := range []time.Time{{}, time.Now()} {
						filter := exchange.ArrivalFilter{Agent: agent, Sender: sender, Channel: channel, States: states, Since: since, Until: since}
						list, err := selectArrivals(filter, "0198c0f0-0000-7000-8000-000000000000")
						if err != nil {
							t.Fatal(err)
						}

						name := fmt.Sprintf("arrivals %q %q %q %v %v", sender, agent, channel, states, !since.IsZero())
						if list.unrestricted() {
							add(name, "turns", func() (string, []any) { return list.all(51) })
							continue
						}
						if len(states) != 1 {
							add(name+", open", "turns_open", func() (string, []any) { return list.open(51) })
						}
						add(name+", waiting", "search_pending", func() (string, []any) { return list.waiting(51) })
						add(name+", unplaced", "arrivals_unplaced", func() (string, []any) { return list.unplaced(51) })
						add(name+", places", index, list.places)
						for _, arms := range []int{1, maxArms} {
							add(name+", ends", index, func() (string, []any) { return list.at(slices.Repeat([]string{noPlace}, arms), 51) })
						}
					}
				}
			}
		}
	}
	add("turns to place", "arrivals_unplaced", func() (string, []any) { return selectUnplaced, []any{int64(50)} })
	add("reopened turns", "turns_open", func() (string, []any) { return selectReopened, []any{int64(50)} })
	add("arrivals by number", "arrivals", func() (string, []any) { return selectArrived, []any{int64(1), int64(50)} })
	add("loaded arrivals", "turns", func() (string, []any) { return selectLoaded, padded([]string{"a"}, loadedAtOnce) })
	return all
}

// TestWrongArrivalFilters: what cannot be is refused with what may be.
func TestWrongArrivalFilters(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		for name, filter := range map[string]exchange.ArrivalFilter{
			"state": {States: []string{"lost"}}, "no word": {Text: `"*" - !`}, "one letter": {Text: "a*"}, "cursor of a search": {Text: "a", Before: "x"},
			"cursor": {Before: strings.Repeat("x", 65)}, "long": {Text: strings.Repeat("word ", 300)}, "many": {Text: strings.Repeat("a ", 40)}, "nul": {Agent: "a\x00"},
		} {
			if _, err := s.Arrivals(t.Context(), filter); !fault.Is(err, fault.Malformed) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestWordsLeaveTheIndex: what was said before an edit, a deletion or an erasure is not found after the commit, and not added again.
func TestWordsLeaveTheIndex(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.tuning.few = 0
		finds := func(word string, want bool) {
			t.Helper()
			if got := pagesOf(ctx, t, s, exchange.ArrivalFilter{Text: word}); (len(got) == 1) != want {
				t.Errorf("%s: %v, want %v", word, got, want)
			}
		}
		change := func(work func(tx *Tx) error) {
			t.Helper()
			if err := s.InTx(ctx, work); err != nil {
				t.Fatal(err)
			}
		}

		edited := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "firstwording")
		deleted := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "deletedwording")
		forgotten := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "forgottenwording")
		for _, turn := range []exchange.TurnRecord{edited, deleted, forgotten} {
			accept(t, s, turn)
		}
		reply := answer(t, s, edited, "firstanswer")
		answer(t, s, forgotten, "forgottenanswer")
		index(t, s)
		for _, word := range []string{"firstwording", "firstanswer", "deletedwording", "forgottenwording", "forgottenanswer"} {
			finds(word, true)
		}

		change(func(tx *Tx) error {
			edited.Message.Parts = []normalized.Part{normalized.Text("secondwording")}
			return tx.AmendTurn(ctx, edited.ID, edited.Message, time.Now())
		})
		finds("firstwording", false)
		change(func(tx *Tx) error {
			reply.Revision, reply.EditedAt = 1, time.Now()
			reply.Response.Parts = []normalized.Part{normalized.Text("secondanswer")}
			_, err := tx.ReviseReply(ctx, reply, 0, exchange.Event{Kind: exchange.EventReplyEdited, At: time.Now()})
			return err
		})
		finds("firstanswer", false)
		change(func(tx *Tx) error {
			_, err := tx.WithdrawTurn(ctx, deleted.ID, time.Now())
			return err
		})
		finds("deletedwording", false)
		if _, err := s.ForgetThread(ctx, forgotten.Agent, forgotten.ThreadID); err != nil {
			t.Fatal(err)
		}
		finds("forgottenwording", false)
		finds("forgottenanswer", false)

		for range 2 {
			index(t, s)
			for word, want := range map[string]bool{
				"firstwording": false, "firstanswer": false, "secondwording": true, "secondanswer": true,
				"deletedwording": false, "forgottenwording": false, "forgottenanswer": false,
			} {
				finds(word, want)
			}
			if err := s.InTx(ctx, func(tx *Tx) error { return tx.rebuild(ctx) }); err != nil { // as after a restore
				t.Fatal(err)
			}
		}
		index(t, s)
		remains(t, s, turnTable, []string{"firstwording", "firstanswer", "deletedwording", "forgottenwording", "forgottenanswer"})

		change(func(tx *Tx) error {
			if err := tx.search().changed(ctx, deleted.ID); err != nil {
				return err
			}
			return tx.sql.Do(ctx, `DELETE FROM turns WHERE id = $1`, deleted.ID)
		})
		index(t, s)
		var left int
		if _, err := first(ctx, s.engine.Reader(), `SELECT COUNT(*) FROM arrivals WHERE turn_id = $1`, []any{deleted.ID}, &left); err != nil || left != 0 {
			t.Errorf("%d rows of a turn that is gone, %v", left, err)
		}
	})
}

// remains looks into the tables of the index itself: no row of it has a word that has left.
func remains(t *testing.T, s *Store, table string, words []string) {
	t.Helper()
	queries := []string{`SELECT CAST(words AS TEXT) FROM ` + table}
	if s.dialect == sqliteDialect {
		queries = []string{`SELECT CAST(block AS TEXT) FROM ` + table + `_data`, `SELECT c0 || c1 || c2 FROM ` + table + `_content`, `SELECT CAST(term AS TEXT) FROM ` + table + `_idx`}
	}
	for _, query := range queries {
		err := s.words.Reader().Each(t.Context(), query, nil, func(r row) error {
			var text []byte
			err := r.Scan(&text)
			for _, word := range words {
				if strings.Contains(string(text), word) || strings.Contains(string(text), word[3:]) {
					t.Errorf("%s is in the index: %s", word, query)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestIndexAfterACrash: what a process had written into the index when it died is written again by the next one, and found once.
func TestIndexAfterACrash(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		turn := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "crashed")
		accept(t, s, turn)
		s.tuning.few, s.tuning.unanswered = 0, 0
		for range 2 {
			if err := s.enqueue(ctx); err != nil {
				t.Fatal(err)
			}
		}

		killed := errors.New("killed")
		err := s.words.Transact(ctx, func(index database.Session) error {
			work, err := gatherWords(ctx, s.engine.Reader())
			if err != nil {
				return err
			}
			if err := work.write(ctx, index, s.dialect, defaultWindows); err != nil || s.words != s.engine {
				return err // the file has them, the other does not know it yet
			}
			return killed
		})
		if err != nil && !errors.Is(err, killed) {
			t.Fatal(err)
		}
		index(t, s)
		index(t, s)
		if got := pagesOf(ctx, t, s, exchange.ArrivalFilter{Text: "crashed"}); !slices.Equal(got, []string{turn.ID}) {
			t.Errorf("found %v", got)
		}
	})
}

// TestFollowLosesNothing: readers that go on by their cursor get each message once, in one order, while several writers commit and
// two workers index.
func TestFollowLosesNothing(t *testing.T) {
	const writers, each = 6, 40
	onBoth(t, func(t *testing.T, s *Store) {
		ctx, cancel := context.WithCancel(t.Context())
		var workers, writing, readers sync.WaitGroup
		for range 2 {
			workers.Go(func() { _ = s.IndexWords(ctx) })
		}
		defer workers.Wait()
		defer cancel()

		read := make([][]string, 2)
		for i := range read {
			readers.Go(func() {
				after := int64(0)
				for len(read[i]) < writers*each && ctx.Err() == nil {
					page, next, err := s.ArrivalsAfter(ctx, exchange.ArrivalFilter{Agent: "echo"}, after, 7)
					if err != nil {
						t.Error(err)
						return
					}
					for _, turn := range page {
						read[i] = append(read[i], turn.ID)
					}
					after = next
				}
			})
		}
		for range writers {
			writing.Go(func() {
				for i := range each {
					turn := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "hello")
					accept(t, s, turn)
					if i%3 == 0 {
						answer(t, s, turn, "hi")
					}
				}
			})
		}
		writing.Wait()
		await.Done(t, readers.Wait, "every message")

		once := map[string]bool{}
		for _, id := range read[0] {
			once[id] = true
		}
		if len(once) != writers*each || !slices.Equal(read[0], read[1]) {
			t.Errorf("%d different of %d, the same for both readers: %v", len(once), len(read[0]), slices.Equal(read[0], read[1]))
		}
	})
}

// FuzzSearch: whatever is looked for, it is found or not, or refused as malformed; the database never sees a sign with a meaning.
func FuzzSearch(f *testing.F) {
	for _, seed := range []string{
		`hello`, `"`, `""`, `a*`, `ab*`, `NEAR(a b, 5)`, `said:hello`, `a AND b OR NOT c`, `^hello`, `{said subject}: x`, `' | !x & <-> :*`, `\`, "\x00", "東京*", `"a" * "b"`, `-x +y`,
		`ﷺ`, "ʼn", "e\u0301", strings.Repeat("x", 999), "'); DROP TABLE turns; --", "$1 ?",
	} {
		f.Add(seed)
	}

	stores := map[string]*Store{}
	for name, options := range map[string]Options{"sqlite": {DataDir: f.TempDir()}, "postgres": {URL: storetest.Postgres(f), Connections: 2}} {
		s, err := Open(f.Context(), options)
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = s.Close() })
		s.tuning.few = 0
		accept(f, s, came("echo", "email", "@ann@one.example", exchange.StateAccepted, "hello"))
		index(f, s)
		stores[name] = s
	}

	f.Fuzz(func(t *testing.T, text string) {
		for name, s := range stores {
			if text == "" {
				continue
			}
			page, err := s.Arrivals(t.Context(), exchange.ArrivalFilter{Text: text})
			if err != nil && !fault.Is(err, fault.Malformed) {
				t.Fatalf("%s: %q: %v", name, text, err)
			}
			turn := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "hello")
			if query, _ := parseText(text); err == nil && query.matches(&turn) != (len(page.Turns) == 1) {
				t.Fatalf("%s: %q found %d", name, text, len(page.Turns))
			}
		}
	})
}

// FuzzIndexedText: whatever a message says, both databases take it, and find it by its own first word.
func FuzzIndexedText(f *testing.F) {
	for _, seed := range []string{"hello", "'quoted' \\ : , 1", "\u0000", "ﬁne ﬃ", "e\u0301\u0301", "١٢٣", "👍🏽", strings.Repeat("x", 5000), "İstanbul", "ไทย", "a\u200db"} {
		f.Add(seed)
	}
	stores := map[string]*Store{}
	for name, options := range map[string]Options{"sqlite": {DataDir: f.TempDir()}, "postgres": {URL: storetest.Postgres(f), Connections: 2}} {
		s, err := Open(f.Context(), options)
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = s.Close() })
		s.tuning.few = 0
		stores[name] = s
	}
	f.Fuzz(func(t *testing.T, text string) {
		words := wordsOf(cleaned(text), maxSearchedWords)
		for name, s := range stores {
			turn := came("echo", "email", "@ann@one.example", exchange.StateAccepted, cleaned(text))
			accept(t, s, turn)
			index(t, s)
			if len(words) == 0 {
				continue
			}
			page, err := s.Arrivals(t.Context(), exchange.ArrivalFilter{Text: words[0], Limit: 1})
			if err != nil || len(page.Turns) != 1 || page.Turns[0].ID != turn.ID {
				t.Fatalf("%s: %q: %q finds %d, %v", name, text, words[0], len(page.Turns), err)
			}
		}
	})
}
