package store

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/internal/queue"
)

// onBothDatabases runs a test with an empty store of each.
func onBothDatabases(t *testing.T, test func(t *testing.T, s *Store)) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), Options{DataDir: migrated(t), URL: url(t)})
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

var ampleMail = exchange.MailQuota{SenderMessages: 1000, SenderBytes: 1 << 30, DayMessages: 1000, DayBytes: 1 << 30, AllMessages: 1000, AllBytes: 1 << 30, Kept: 25}

func keptMail(from, subject, text string) exchange.IncomingMail {
	id := newRowID()
	return exchange.IncomingMail{Key: id, Raw: []byte("Subject: " + subject + "\r\n\r\n" + text + "\r\n"), Mail: exchange.Mail{
		ID: id, Kind: exchange.MailOrdinary, Mailbox: "postmaster", From: from, To: []string{"postmaster@inbox.test"}, Subject: subject, Text: text,
		ReceivedAt: time.Now().UTC().Truncate(time.Microsecond), Proof: "none", Headers: []exchange.MailHeader{{Name: "Subject", Value: subject}},
		Files: []exchange.MailFile{{Name: "Rechnung_2026.pdf", MIME: "application/pdf", Size: 7}},
	}}
}

func keep(t *testing.T, s *Store, mail exchange.IncomingMail, charge exchange.MailCharge, jobs ...queue.NewJob) (exchange.KeptMail, error) {
	t.Helper()
	if charge.Quota == (exchange.MailQuota{}) {
		charge.Quota = ampleMail
	}
	if charge.Bytes == 0 {
		charge.Bytes = int64(len(mail.Raw))
	}
	return s.KeepMail(t.Context(), mail, charge, "", jobs...)
}

func TestMailIsKeptFoundAndShown(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, s *Store) {
		first := keptMail("Ann@Mail.Example", "100% of the INVOICE", "Grüße aus Köln\x00")
		first.Raw = []byte("Subject: raw\r\n\r\n\xff\x00\r\n")
		second := keptMail("bob@example.org", "another", "a_b")
		second.Mailbox, second.Kind = "abuse", exchange.MailCaptured
		for _, mail := range []exchange.IncomingMail{first, second, first} {
			kept, err := keep(t, s, mail, exchange.MailCharge{})
			if err != nil || kept.Forwarded {
				t.Fatal(kept, err)
			}
		}
		if messages, size, err := s.MailUse(t.Context()); err != nil || messages != 2 || size != int64(len(first.Raw)+len(second.Raw)) {
			t.Errorf("%d mails of %d bytes, %v: a repeat must not count", messages, size, err)
		}

		index(t, s)
		for name, c := range map[string]struct {
			filter exchange.MailFilter
			want   []string
		}{
			"all":                      {exchange.MailFilter{}, []string{second.ID, first.ID}},
			"the second page":          {exchange.MailFilter{Before: second.ID}, []string{first.ID}},
			"a limit":                  {exchange.MailFilter{Limit: 1}, []string{second.ID}},
			"a kind":                   {exchange.MailFilter{Kind: exchange.MailCaptured}, []string{second.ID}},
			"a mailbox":                {exchange.MailFilter{Mailbox: "Abuse"}, []string{second.ID}},
			"an address":               {exchange.MailFilter{Sender: "ann@mail.EXAMPLE"}, []string{first.ID}},
			"a domain":                 {exchange.MailFilter{Sender: "mail.example"}, []string{first.ID}},
			"the domain above":         {exchange.MailFilter{Sender: "@example"}, []string{first.ID}},
			"half of a label":          {exchange.MailFilter{Sender: "ample"}, nil},
			"words in any order":       {exchange.MailFilter{Text: "köln invoice"}, []string{first.ID}},
			"one word that is missing": {exchange.MailFilter{Text: "invoice berlin"}, nil},
			"a percent sign":           {exchange.MailFilter{Text: "100%"}, []string{first.ID}},
			"a line below":             {exchange.MailFilter{Text: "a_b"}, []string{second.ID}},
			"a phrase":                 {exchange.MailFilter{Text: `"of the invoice"`}, []string{first.ID}},
			"the beginning of a word":  {exchange.MailFilter{Text: "invo* 2026"}, []string{first.ID}},
			"the name of a file":       {exchange.MailFilter{Text: "Rechnung_2026.PDF", Kind: exchange.MailOrdinary}, []string{first.ID}},
			"a page of a search":       {exchange.MailFilter{Text: "rechnung", Before: second.ID}, []string{first.ID}},
			"the first of a search":    {exchange.MailFilter{Text: "rechnung", Limit: 1}, []string{second.ID}},
			"a file":                   {exchange.MailFilter{Text: "rechnung_2026", Sender: "mail.example"}, []string{first.ID}},
			"later than everything":    {exchange.MailFilter{Since: time.Now().Add(time.Hour)}, nil},
			"from an hour ago":         {exchange.MailFilter{Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Hour)}, []string{second.ID, first.ID}},
			"until an hour ago":        {exchange.MailFilter{Until: time.Now().Add(-time.Hour)}, nil},
		} {
			found, err := s.Mails(t.Context(), c.filter)
			var ids []string
			for _, mail := range found {
				ids = append(ids, mail.ID)
				if mail.Text != "" || mail.Headers != nil {
					t.Errorf("%s: a list has the text", name)
				}
			}
			if err != nil || !slices.Equal(ids, c.want) {
				t.Errorf("%s: %q, %v; want %q", name, ids, err, c.want)
			}
		}

		shown, err := s.Mail(t.Context(), first.ID)
		if err != nil || shown.Text != "Grüße aus Köln\uFFFD" && shown.Text != "Grüße aus Köln\x00" || shown.Headers[0].Value != "100% of the INVOICE" || shown.From != "Ann@Mail.Example" || !shown.ReceivedAt.Equal(first.ReceivedAt) {
			t.Errorf("%+v, %v", shown, err)
		}
		if raw, digest, err := s.MailBytes(t.Context(), first.ID); err != nil || digest != "" || !bytes.Equal(raw, first.Raw) {
			t.Errorf("%q, %q, %v", raw, digest, err)
		}
		if _, err := s.Mail(t.Context(), "nothing"); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
		if _, _, err := s.MailBytes(t.Context(), "nothing"); !fault.Is(err, fault.NotFound) {
			t.Error(err)
		}
	})
}

// TestMailIsBounded: each account pays for itself, wider ones later, all have a bound, and a quarter of it is for senders with proof.
func TestMailIsBounded(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, s *Store) {
		quota := exchange.MailQuota{SenderMessages: 2, SenderBytes: 100, DayMessages: 12, DayBytes: 1000, AllMessages: 16, AllBytes: 900, Kept: 25}
		try := func(what string, fits bool, charge exchange.MailCharge) {
			t.Helper()
			charge.Quota = quota
			before, _, err := s.MailUse(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			mail := keptMail("a@b.example", what, "x")
			kept, err := keep(t, s, mail, charge)
			after, _, _ := s.MailUse(t.Context())
			if fits != kept.New || !fits && !fault.Is(err, fault.RateLimited) || fits && err != nil || (after > before) != fits {
				t.Fatalf("%s: %+v, %v; %d mails, then %d; want %t", what, kept, err, before, after, fits)
			}
			if _, err := s.Mail(t.Context(), mail.ID); fits != (err == nil) {
				t.Fatalf("%s: %v", what, err)
			}
		}

		narrow := func(n int) exchange.MailCharge {
			return exchange.MailCharge{Accounts: []string{fmt.Sprint("net ", n), "wide"}, Bytes: 10}
		}
		try("a first", true, narrow(1))
		try("too many bytes of one network", false, exchange.MailCharge{Accounts: []string{"net 1", "wide"}, Bytes: 95})
		try("a second", true, narrow(1))
		try("a third of one network", false, narrow(1))
		try("a neighbour", true, narrow(2))
		try("a neighbour again", true, narrow(2))
		for n := 3; n < 7; n++ {
			try("further neighbours", true, narrow(n))
		}
		try("the ninth of the wide network", false, narrow(8))
		try("somebody else", true, exchange.MailCharge{Accounts: []string{"far"}, Bytes: 10})
		try("the tenth without proof today", false, exchange.MailCharge{Accounts: []string{"farther"}, Bytes: 10})
		try("with proof", true, exchange.MailCharge{Accounts: []string{"domain a.example"}, Bytes: 10, Proven: true})
		try("with proof", true, exchange.MailCharge{Accounts: []string{"domain b.example"}, Bytes: 10, Proven: true})
		try("with proof", true, exchange.MailCharge{Accounts: []string{"domain c.example"}, Bytes: 10, Proven: true})
		try("more than a day has", false, exchange.MailCharge{Accounts: []string{"domain d.example"}, Bytes: 10, Proven: true})

		quota.DayMessages = 1000
		try("with proof", true, exchange.MailCharge{Accounts: []string{"domain e.example"}, Bytes: 10, Proven: true})
		try("without proof, more than all may have", false, exchange.MailCharge{Accounts: []string{"f"}, Bytes: 10})
		for n := range 3 {
			try("with proof", true, exchange.MailCharge{Accounts: []string{fmt.Sprint("domain g.example ", n)}, Bytes: 10, Proven: true})
		}
		try("more than is kept", false, exchange.MailCharge{Accounts: []string{"domain h.example"}, Bytes: 10, Proven: true})

		if deleted, err := s.DeleteMailBefore(t.Context(), exchange.MailOrdinary, time.Now().Add(time.Hour)); err != nil || deleted != 16 {
			t.Fatal(deleted, err)
		}
		if messages, size, err := s.MailUse(t.Context()); err != nil || messages != 0 || size != 0 {
			t.Errorf("%d mails of %d bytes are left, %v", messages, size, err)
		}
	})
}

// TestMailOfManyAtOnce: what comes at once from many passes no bound, and a mail that comes twice at once is there once.
func TestMailOfManyAtOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, s *Store) {
		quota := ampleMail
		quota.AllMessages, quota.Kept = 10, 0
		var done sync.WaitGroup
		var fits, repeats sync.Map
		for n := range 30 {
			done.Go(func() {
				mail := keptMail("a@b.example", "x", "y")
				if n%2 == 1 {
					mail.Key = "the same"
				}
				kept, err := s.KeepMail(t.Context(), mail, exchange.MailCharge{Accounts: []string{fmt.Sprint("net ", n)}, Bytes: 1, Quota: quota}, "")
				switch {
				case err == nil && kept.New:
					fits.Store(n, mail.Key)
				case err == nil:
					repeats.Store(n, true)
				case !fault.Is(err, fault.RateLimited):
					t.Error(err)
				}
			})
		}
		done.Wait()

		counted, same := int64(0), 0
		fits.Range(func(_, key any) bool {
			counted++
			if key == "the same" {
				same++
			}
			return true
		})
		messages, _, err := s.MailUse(t.Context())
		if err != nil || counted != 10 || messages != 10 || same > 1 {
			t.Errorf("%d were kept, %d are counted, %d times the same, %v", counted, messages, same, err)
		}
	})
}

func TestMailIsSentOn(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, s *Store) {
		for n := range 3 {
			mail := keptMail("a@b.example", "x", "y")
			job := queue.NewJob{ID: newRowID(), Kind: "mail-forward", Payload: `{}`}
			for repeat := range 2 {
				kept, err := keep(t, s, mail, exchange.MailCharge{ForwardsPerDay: 2}, job)
				if err != nil || kept.New != (repeat == 0) || kept.Forwarded != (n < 2 && repeat == 0) {
					t.Errorf("mail %d: %+v, %v", n, kept, err)
				}
			}
		}
		if jobs, err := s.Jobs(t.Context(), JobFilter{Kind: "mail-forward", Limit: 10}); err != nil || len(jobs) != 2 {
			t.Errorf("%d jobs, %v", len(jobs), err)
		}
	})
}

func TestMailEnds(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, s *Store) {
		digest := strings.Repeat("ab", 32)
		mail := keptMail("a@b.example", "x", "y")
		mail.Raw = nil
		if _, err := s.KeepMail(t.Context(), mail, exchange.MailCharge{Bytes: 5, Quota: ampleMail}, digest); err != nil {
			t.Fatal(err)
		}
		if needed, err := s.BlobNeeded(t.Context(), digest); !needed || err != nil {
			t.Errorf("needed %t, %v", needed, err)
		}
		for range mailPortion + 2 {
			captured := keptMail("a@b.example", "x", "y")
			captured.Kind = exchange.MailCaptured
			if _, err := s.KeepMail(t.Context(), captured, exchange.MailCharge{}, ""); err != nil {
				t.Fatal(err)
			}
		}

		if deleted, err := s.TrimMail(t.Context(), exchange.MailCaptured, 1); err != nil || deleted != mailPortion+1 {
			t.Errorf("%d deleted, %v", deleted, err)
		}
		if deleted, err := s.DeleteMailBefore(t.Context(), exchange.MailOrdinary, mail.ReceivedAt.Add(-time.Second)); err != nil || deleted != 0 {
			t.Errorf("%d deleted, %v", deleted, err)
		}
		mailAge := DefaultCeilings()[RetainOperatorMail]
		if err := mailStore(s.sweeper).sweepMail(t.Context(), DefaultCeilings(), time.Now().Add(mailAge-time.Hour)); err != nil {
			t.Fatal(err)
		}
		if found, err := s.Mails(t.Context(), exchange.MailFilter{}); err != nil || len(found) != 1 || found[0].ID != mail.ID {
			t.Errorf("%+v, %v; the captured one has ended, the other has not", found, err)
		}
		if err := mailStore(s.sweeper).sweepMail(t.Context(), DefaultCeilings(), time.Now().Add(mailAge+time.Hour)); err != nil {
			t.Fatal(err)
		}
		if garbage, err := s.Garbage(t.Context(), "", 10); err != nil || len(garbage) != 1 || garbage[0].Digest != digest {
			t.Errorf("%v, %v", garbage, err)
		}
		for _, table := range []string{"mails", "mail_originals"} {
			var rows int64
			if _, err := first(t.Context(), s.engine.Reader(), "SELECT COUNT(*) FROM "+table, nil, &rows); err != nil || rows != 0 {
				t.Errorf("%d rows of %s are left, %v", rows, table, err)
			}
		}
	})
}

func TestReportsAreCountedOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, s *Store) {
		day := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
		report := func(from, proof, id string, rows ...exchange.MailReportRow) exchange.IncomingMail {
			mail := keptMail(from, "Report", "")
			mail.Kind, mail.Proof = exchange.MailDMARC, proof
			mail.Report = &exchange.MailReport{Kind: exchange.MailDMARC, Organization: "Reporter", ReportID: id, Domain: "inbox.test", Policy: "reject", Begins: day, Ends: day.Add(24 * time.Hour), Rows: rows}
			if _, err := keep(t, s, mail, exchange.MailCharge{}); err != nil {
				t.Fatal(err)
			}
			return mail
		}
		pass := exchange.MailReportRow{Source: "192.0.2.1", Count: 5, Disposition: "none", DKIM: "pass", SPF: "pass", Result: "pass"}
		fail := exchange.MailReportRow{Source: "203.0.113.9", Count: 7, Disposition: "reject", DKIM: "fail", SPF: "fail", Result: "fail", Detail: "spf x.example fail"}

		forged := report("dmarc@big.example", "none", "1", exchange.MailReportRow{Source: "192.0.2.1", Count: 1_000_000, Result: "fail"})
		proven := report("dmarc@big.example", "email-dmarc", "1", pass, fail)
		report("dmarc@big.example", "email-dmarc", "1", pass, fail) // another mail with the same report
		report("dmarc@other.example", "email-dmarc", "1", pass)

		rows, err := s.Reports(t.Context(), exchange.ReportFilter{})
		if err != nil || len(rows) != 3 || rows[2].MailID != proven.ID || rows[1].Detail != "spf x.example fail" || rows[1].Policy != "reject" || !rows[1].Proven || !rows[1].Ends.Equal(day.Add(24*time.Hour)) || rows[0].Reporter != "other.example" {
			t.Errorf("%+v, %v", rows, err)
		}
		for name, c := range map[string]struct {
			filter exchange.ReportFilter
			want   int
		}{
			"with those without proof": {exchange.ReportFilter{Unproven: true}, 4},
			"a result":                 {exchange.ReportFilter{Result: "fail"}, 1},
			"a source":                 {exchange.ReportFilter{Source: "192.0.2.1"}, 2},
			"the other kind":           {exchange.ReportFilter{Kind: exchange.MailTLS}, 0},
			"later":                    {exchange.ReportFilter{Since: day.Add(24 * time.Hour)}, 0},
			"the second page":          {exchange.ReportFilter{Before: rows[1].ID}, 1},
		} {
			if found, err := s.Reports(t.Context(), c.filter); err != nil || len(found) != c.want {
				t.Errorf("%s: %d, %v; want %d", name, len(found), err, c.want)
			}
		}

		sums, err := s.SumReports(t.Context(), exchange.ReportFilter{})
		if err != nil || len(sums) != 2 || sums[0].Count != 10 || sums[0].Reports != 2 || sums[0].Result != "pass" || sums[1].Count != 7 || sums[1].Source != "203.0.113.9" || !sums[1].Begins.Equal(day) {
			t.Errorf("%+v, %v", sums, err)
		}
		if _, err := s.Mail(t.Context(), forged.ID); err != nil {
			t.Error("a mail with a report that does not count is kept:", err)
		}

		if deleted, err := s.DeleteReportsBefore(t.Context(), time.Now().Add(time.Hour)); err != nil || deleted != 4 {
			t.Errorf("%d deleted, %v", deleted, err)
		}
	})
}

// BenchmarkMails lists and searches among as many mails as INBOX_BENCH_ROWS says, 100,000 by default, with a kilobyte of text each. It fills a
// database first: go test -run '^$' -bench Mails -benchtime 5x ./engine/store
func BenchmarkMails(b *testing.B) {
	rows := 100_000
	if text := os.Getenv(benchRowsVariable); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("sqlite", func(b *testing.B) { benchMails(b, Options{DataDir: b.TempDir()}, rows) })
	b.Run("postgres", func(b *testing.B) { benchMails(b, Options{URL: storetest.Postgres(b), Connections: 2}, rows) })
}

func benchMails(b *testing.B, options Options, rows int) {
	s, err := Open(b.Context(), options)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()

	text := strings.Repeat("Your server sent us this mail that nobody asked for. ", 20)
	for at := 0; at < rows; at += 500 {
		err := s.InTx(b.Context(), func(tx *Tx) error {
			for n := at; n < min(at+500, rows); n++ {
				mail := keptMail(fmt.Sprintf("sender%d@host%d.example", n, n%1000), fmt.Sprint("subject ", n), text+fmt.Sprint("number", n, " "))
				row, err := mailRow(mail, exchange.MailCharge{}, "")
				if err != nil {
					return err
				}
				if err := tx.sql.Do(b.Context(), insertMail, row...); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}

	if err := s.indexAll(b.Context()); err != nil {
		b.Fatal(err)
	}
	for name, filter := range map[string]exchange.MailFilter{
		"newest": {Limit: 50}, "sender": {Sender: "host7.example", Limit: 50}, "kind": {Kind: exchange.MailDMARC, Limit: 50},
		"word of all": {Text: "nobody", Limit: 50}, "word of one": {Text: "number77 ", Limit: 50}, "word of none": {Text: "zeppelin", Limit: 50},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Mails(b.Context(), filter); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
