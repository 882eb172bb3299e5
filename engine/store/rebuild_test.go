package store

import (
	"slices"
	"testing"
	"time"

	"inbox/engine/store/database"
	"inbox/exchange"
	"inbox/normalized"
)

// TestIndexIsMadeAgainBesideChanges: while all turns are indexed again, the writer of messages inserts and removes no row for each of them. Turns that
// change, end or are removed meanwhile are found as they are.
func TestIndexIsMadeAgainBesideChanges(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		const many = 2*indexedAtOnce + 50
		var turns []exchange.TurnRecord
		for range many {
			turns = append(turns, came("echo", "email", "@ann@one.example", exchange.StateAccepted, "firstwording"))
			accept(t, s, turns[len(turns)-1])
		}
		index(t, s)
		change := func(work func(tx *Tx) error) {
			t.Helper()
			if err := s.InTx(ctx, work); err != nil {
				t.Fatal(err)
			}
		}
		loseWords(t, s, turns)
		change(func(tx *Tx) error { return tx.rebuild(ctx) })

		pass := func() (before string) {
			t.Helper()
			if err := s.indexSome(ctx); err != nil {
				t.Fatal(err)
			}
			var number, late int64
			if _, err := first(ctx, s.engine.Reader(), selectSearchState, nil, &number, &before, &late); err != nil {
				t.Fatal(err)
			}
			return before
		}
		if got, want := pass(), turns[many-indexedAtOnce].ID; got != want {
			t.Errorf("after one pass all turns before %s are to be indexed, want %s", got, want)
		}
		var oldest string
		if waits, err := first(ctx, s.engine.Reader(), selectOldestPending, nil, &oldest); waits || err != nil {
			t.Errorf("a row waits for the index: %s, %v", oldest, err)
		}

		for _, i := range []int{0, many - 1} { // one that was indexed again and one that was not
			edited := turns[i]
			change(func(tx *Tx) error {
				edited.Message.Parts = []normalized.Part{normalized.Text("secondwording")}
				return tx.AmendTurn(ctx, edited.ID, edited.Message, time.Now())
			})
			answer(t, s, turns[i], "laterwording")
			change(func(tx *Tx) error {
				_, err := tx.WithdrawTurn(ctx, turns[i+1-2*(i/(many-1))].ID, time.Now())
				return err
			})
		}
		late := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "thirdwording")
		accept(t, s, late)
		index(t, s)

		for word, want := range map[string][]string{
			"secondwording": {turns[many-1].ID, turns[0].ID}, "laterwording": {turns[many-1].ID, turns[0].ID}, "thirdwording": {late.ID},
		} {
			if got := pagesOf(ctx, t, s, exchange.ArrivalFilter{Text: word}); !slices.Equal(got, want) {
				t.Errorf("%s: found %v, want %v", word, got, want)
			}
		}
		if got := pagesOf(ctx, t, s, exchange.ArrivalFilter{Text: "firstwording"}); len(got) != many-4 {
			t.Errorf("found %d of %d turns that nothing changed", len(got), many-4)
		}
		if before := pass(); before != "" {
			t.Errorf("turns before %s still wait", before)
		}
	})
}

// loseWords removes the words of turns from the index, as a file that is made anew has none.
func loseWords(t *testing.T, s *Store, turns []exchange.TurnRecord) {
	t.Helper()
	ctx, rows := t.Context(), map[int64]searchWords{}
	for chunk := range slices.Chunk(turns, indexedAtOnce) {
		var ids []string
		for _, turn := range chunk {
			ids = append(ids, turn.ID)
		}
		numbers, err := numbersOfTurns(ctx, s.engine.Reader(), ids)
		if err != nil {
			t.Fatal(err)
		}
		for _, number := range numbers {
			rows[2*number] = searchWords{}
		}
	}
	err := s.words.Transact(ctx, func(index database.Session) error {
		return writeWords(ctx, index, s.dialect, turnTable, rows, s.tuning.windows)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDamagedMessageIsIndexedWithoutWords: a row that could not be read kept every later message out of the index, and an erasure waiting.
func TestDamagedMessageIsIndexedWithoutWords(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		damaged := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "damagedwording")
		whole := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "wholewording")
		accept(t, s, damaged)
		accept(t, s, whole)
		if err := s.Execute(ctx, `UPDATE turns SET message = '{"parts":' WHERE id = '`+damaged.ID+`'`); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			index(t, s)
			if got := pagesOf(ctx, t, s, exchange.ArrivalFilter{Text: "wholewording"}); !slices.Equal(got, []string{whole.ID}) {
				t.Errorf("found %v", got)
			}
			if err := s.forgetWords(ctx); err != nil {
				t.Error(err)
			}
			if err := s.InTx(ctx, func(tx *Tx) error { return tx.rebuild(ctx) }); err != nil {
				t.Fatal(err)
			}
		}
	})
}
