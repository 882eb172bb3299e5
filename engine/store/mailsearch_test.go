package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"inbox/exchange"
)

// TestMailSearchIsAPlainFilter compares every combination of a filter with a filter in Go over the same mails, page by page.
func TestMailSearchIsAPlainFilter(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, s *Store) {
		small := windowSizes{4, 16, 64}
		s.tuning.windows = small
		var mails []exchange.IncomingMail
		for i := range 150 {
			mail := keptMail(fmt.Sprintf("user%d@host%d.example", i%7, i%3), someWords[i%5]+" again", fmt.Sprintf("%s %s number%d", someWords[i%3], someWords[i*7%5], i))
			mail.Mailbox = []string{"postmaster", "abuse"}[i/2%2]
			if _, err := keep(t, s, mail, exchange.MailCharge{}); err != nil {
				t.Fatal(err)
			}
			mails = append(mails, mail)
		}
		index(t, s)

		for name, tuning := range map[string]searchTuning{
			"by the index":     {hits: maxHits, windows: small},
			"by a part of it":  {hits: 7, windows: small},
			"by the mails":     {few: fewTurns, hits: 7, windows: small},
			"by what is first": {few: 20, hits: maxHits, probe: probeTime, windows: small},
		} {
			t.Run(name, func(t *testing.T) {
				s.tuning = tuning
				rapid.Check(t, func(r *rapid.T) {
					filter := exchange.MailFilter{
						Mailbox: rapid.SampledFrom([]string{"", "postmaster", "abuse", "none"}).Draw(r, "mailbox"),
						Sender:  rapid.SampledFrom([]string{"", "", "host1.example", "user3@host0.example"}).Draw(r, "sender"),
						Text:    rapid.SampledFrom([]string{"invoice", "invoice again", "\"hello number\"", "refund numb*", "number1*", "rechnung_2026.pdf", "host2", "nothing"}).Draw(r, "text"),
						Limit:   rapid.IntRange(1, 60).Draw(r, "limit"),
					}
					if from := rapid.IntRange(-100, len(mails)-1).Draw(r, "since"); from >= 0 {
						filter.Since = timeOf(mails[from].ID)
					}

					want, got := []string{}, []string{}
					query, err := parseText(filter.Text)
					if err != nil {
						r.Fatal(err)
					}
					for _, mail := range slices.Backward(mails) {
						host := mail.From[strings.Index(mail.From, "@")+1:]
						if (filter.Mailbox == "" || filter.Mailbox == mail.Mailbox) && (filter.Sender == "" || filter.Sender == host || filter.Sender == mail.From) &&
							(filter.Since.IsZero() || !timeOf(mail.ID).Before(filter.Since)) && query.within(wordsOfMail(mail.Mail)) {
							want = append(want, mail.ID)
						}
					}
					for {
						page, err := s.Mails(t.Context(), filter)
						if err != nil {
							r.Fatal(err)
						}
						for _, mail := range page {
							got = append(got, mail.ID)
						}
						if len(page) < filter.Limit {
							break
						}
						filter.Before = page[len(page)-1].ID
					}
					if diff := cmp.Diff(want, got); diff != "" {
						r.Fatalf("%+v (-want +got):\n%s", filter, diff)
					}
				})
			})
		}
	})
}

// TestWordsOfMailLeaveTheIndex: what a mail said is not in the index after it was deleted, and after an erasure; a mail that is deleted before
// it was indexed never enters it, and a restored database indexes what is there.
func TestWordsOfMailLeaveTheIndex(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		finds := func(word string, want bool) {
			t.Helper()
			if got, err := s.Mails(ctx, exchange.MailFilter{Text: word}); err != nil || (len(got) == 1) != want {
				t.Errorf("%s: %d, %v; want %v", word, len(got), err, want)
			}
		}

		stays, erased, early := keptMail("a@stays.example", "x", "stayingwords"), keptMail("b@erased.example", "x", "erasedwords"), keptMail("c@early.example", "x", "earlywords")
		for _, mail := range []exchange.IncomingMail{stays, erased} {
			if _, err := keep(t, s, mail, exchange.MailCharge{}); err != nil {
				t.Fatal(err)
			}
		}
		index(t, s)
		finds("stayingwords", true)
		finds("erasedwords", true)

		if _, err := keep(t, s, early, exchange.MailCharge{}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{erased.ID, early.ID} {
			err := s.InTx(ctx, func(tx *Tx) error {
				deleted, err := mailTx{tx.transaction}.deleteFound(ctx, selectOneMail, id)
				if err == nil && deleted != 1 {
					err = fmt.Errorf("%d deleted", deleted)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		finds("erasedwords", false)
		index(t, s)
		remains(t, s, mailTable, []string{"erasedwords", "earlywords"})

		if err := s.InTx(ctx, func(tx *Tx) error { return tx.rebuild(ctx) }); err != nil {
			t.Fatal(err)
		}
		finds("stayingwords", false)
		index(t, s)
		finds("stayingwords", true)

		for { // as retention does
			deleted, err := s.DeleteMailBefore(ctx, exchange.MailOrdinary, time.Now().Add(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			if deleted == 0 {
				break
			}
		}
		index(t, s)
		remains(t, s, mailTable, []string{"stayingwords"})
	})
}
