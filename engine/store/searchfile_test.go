package store

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inbox/engine/store/database"
	"inbox/exchange"
)

// TestSearchFileIsWrittenAgain: messages and mail are found again after the file of the index was lost, damaged, or replaced by that of another server.
func TestSearchFileIsWrittenAgain(t *testing.T) {
	openIn := func(directory string) *Store {
		t.Helper()
		s, err := Open(t.Context(), Options{DataDir: directory})
		if err != nil {
			t.Fatal(err)
		}
		s.tuning.few = 0
		return s
	}
	fill := func(s *Store, word string) string {
		t.Helper()
		turn := came("echo", "email", "@ann@one.example", exchange.StateAccepted, word)
		accept(t, s, turn)
		answer(t, s, turn, "the answer to "+word)
		if _, err := keep(t, s, keptMail("a@b.example", "x", word), exchange.MailCharge{}); err != nil {
			t.Fatal(err)
		}
		index(t, s)
		return turn.ID
	}

	other := t.TempDir()
	s := openIn(other)
	fill(s, "foreignword")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(filepath.Join(other, database.WordsFile))
	if err != nil || !strings.Contains(string(foreign), "foreignword") {
		t.Fatalf("the file has no words: %v", err)
	}

	for name, spoil := range map[string]func(path string) error{
		"lost": os.Remove,
		"damaged": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600)
		},
		"another":  func(path string) error { return os.WriteFile(path, foreign, 0o600) },
		"as it is": func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			s := openIn(directory)
			id := fill(s, "ownword")
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := spoil(filepath.Join(directory, database.WordsFile)); err != nil {
				t.Fatal(err)
			}

			s = openIn(directory)
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}()
			index(t, s)
			for _, text := range []string{"ownword", `"answer to ownword"`} {
				if got := pagesOf(t.Context(), t, s, exchange.ArrivalFilter{Text: text}); !slices.Equal(got, []string{id}) {
					t.Errorf("%s: found %v, want %s", text, got, id)
				}
			}
			if mails, err := s.Mails(t.Context(), exchange.MailFilter{Text: "ownword"}); err != nil || len(mails) != 1 {
				t.Errorf("found %d mails, %v", len(mails), err)
			}
			if _, err := s.words.ForgetFree(t.Context()); err != nil {
				t.Fatal(err)
			}
			if found := filesWith(s, "foreignword"); len(found) > 0 {
				t.Errorf("%v have words of the other server", found)
			}
		})
	}
}

// TestTurnIsIndexedWithItsAnswer: the words of a turn are written when it is answered, and only after a minute without an answer.
func TestTurnIsIndexedWithItsAnswer(t *testing.T) {
	onBoth(t, func(t *testing.T, s *Store) {
		rows := func() (count int64) {
			t.Helper()
			if _, err := first(t.Context(), s.words.Reader(), `SELECT COUNT(*) FROM search_words`, nil, &count); err != nil {
				t.Fatal(err)
			}
			return count
		}
		one, two := came("echo", "email", "@ann@one.example", exchange.StateAccepted, "first"), came("echo", "email", "@ann@one.example", exchange.StateAccepted, "second")
		accept(t, s, one)
		accept(t, s, two)
		if err := s.indexAll(t.Context()); err != nil || rows() != 0 {
			t.Errorf("%d rows before an answer, %v", rows(), err)
		}
		if last, err := s.LastArrival(t.Context()); err != nil || last != 2 {
			t.Errorf("the last number is %d, %v: a message has its number at once", last, err)
		}

		answer(t, s, one, "an answer")
		if err := s.indexAll(t.Context()); err != nil || rows() != 2 {
			t.Errorf("%d rows after an answer, %v", rows(), err)
		}
		index(t, s) // a minute later
		if rows() != 3 {
			t.Errorf("%d rows after a minute", rows())
		}
		answer(t, s, two, "another answer")
		index(t, s)
		if rows() != 4 {
			t.Errorf("%d rows at the end", rows())
		}
	})
}
