package mailbox_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"inbox/engine/mailbox"
	"inbox/engine/store"
	"inbox/engine/store/storetest"
	"inbox/exchange"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/internal/queue"
	"inbox/normalized"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a mailbox over a real store.
type rig struct {
	*testing.T
	store   *store.Store
	blobs   *blob.Files
	service *mailbox.Service
	quota   exchange.MailQuota
	to      string
	asked   netip.Addr // whose networks were asked for last
}

func onBothDatabases(t *testing.T, test func(r *rig)) {
	for name, url := range map[string]func(testing.TB) string{
		"sqlite": func(testing.TB) string { return "sqlite" }, "postgres": storetest.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			directory := storetest.Directory(t, func(directory string) (io.Closer, error) {
				return store.Open(t.Context(), store.Options{DataDir: directory})
			})
			opened, err := store.Open(t.Context(), store.Options{DataDir: directory, URL: url(t)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := opened.Close(); err != nil {
					t.Error(err)
				}
			})
			blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
			if err != nil {
				t.Fatal(err)
			}

			r := &rig{T: t, store: opened, blobs: blobs, quota: exchange.MailQuota{
				SenderMessages: 2, SenderBytes: 1 << 20, DayMessages: 100, DayBytes: 1 << 30, AllMessages: 100, AllBytes: 1 << 30,
			}}
			r.service = mailbox.New(mailbox.Options{
				Store: opened, Blobs: blobs, Logger: slog.New(slog.DiscardHandler),
				Networks:  func(client netip.Addr) []string { r.asked = client; return []string{"net " + client.String()} },
				Quota:     func() exchange.MailQuota { return r.quota },
				ForwardTo: func() (string, int64) { return r.to, 10 },
			})
			test(r)
		})
	}
}

func letter(key, from, proof string, raw []byte) exchange.IncomingMail {
	return exchange.IncomingMail{Key: key, Raw: raw, Answers: true, Client: netip.MustParseAddr("192.0.2.1"), Mail: exchange.Mail{
		Kind: exchange.MailOrdinary, Mailbox: "abuse", From: from, To: []string{"abuse@inbox.test"}, Subject: "Hello", ReceivedAt: time.Now().UTC(), Proof: proof, Text: "the text",
	}}
}

func (r *rig) jobs() []store.JobRecord {
	r.Helper()
	jobs, err := r.store.Jobs(r.Context(), store.JobFilter{Kind: mailbox.ForwardKind, Limit: 10})
	if err != nil {
		r.Fatal(err)
	}
	return jobs
}

// TestWhoPays: senders without proof pay by network, others by the domain that can be registered.
func TestWhoPays(t *testing.T) {
	onBothDatabases(t, func(r *rig) {
		keep := func(key, from, proof string) error {
			return r.service.Keep(r.Context(), letter(key, from, proof, []byte("x\r\n")))
		}
		for n, c := range []struct {
			from, proof string
			refused     bool
		}{
			{"a@one.example", "none", false}, {"b@two.example", "none", false}, {"c@three.example", "none", true},
			{"a@one.example", "email-dmarc", false}, {"b@mail.one.example", "email-dkim", false}, {"c@one.example", "email-dmarc", true}, {"c@two.example", "email-dmarc", false},
		} {
			if err := keep(string(rune('a'+n)), c.from, c.proof); fault.Is(err, fault.RateLimited) != c.refused || !c.refused && err != nil {
				r.Errorf("mail %d: %v", n, err)
			}
		}
		if err := r.service.Keep(r.Context(), letter("large", "a@large.example", "email-dmarc", make([]byte, 1<<20+1))); !fault.Is(err, fault.TooLarge) {
			r.Errorf("a mail that never fits: %v", err)
		}
		if r.asked != netip.MustParseAddr("192.0.2.1") {
			r.Errorf("the networks of %s were asked for", r.asked)
		}
	})
}

func TestLargeAndSmallMailsComeBack(t *testing.T) {
	onBothDatabases(t, func(r *rig) {
		for name, raw := range map[string][]byte{"small": []byte("From: a\r\n\r\nx\r\n"), "large": bytes.Repeat([]byte("0123456789abcdef"), 8<<10)} {
			mail := letter(name, "a@b.example", "email-dmarc", raw)
			if err := r.service.Keep(r.Context(), mail); err != nil {
				r.Fatal(err)
			}
			found, err := r.store.Mails(r.Context(), exchange.MailFilter{Limit: 1})
			if err != nil || len(found) != 1 || found[0].Size != int64(len(raw)) {
				r.Fatalf("%+v, %v", found, err)
			}

			shown, text, file, err := r.service.Forwarded(r.Context(), found[0].ID)
			if err != nil || shown.Subject != "Hello" || file.MIME != "message/rfc822" || !strings.Contains(text, "the text") || !strings.Contains(text, "email-dmarc") {
				r.Fatalf("%+v, %q, %+v, %v", shown, text, file, err)
			}
			var back []byte
			switch file.BytesRef.Kind {
			case normalized.BytesInline:
				back, err = base64.StdEncoding.DecodeString(file.BytesRef.DataBase64)
			default:
				from, openErr := r.blobs.Open(r.Context(), file.BytesRef.Digest)
				if openErr != nil {
					r.Fatal(openErr)
				}
				back, err = io.ReadAll(from)
				_ = from.Close()
			}
			if err != nil || !bytes.Equal(back, raw) || (file.BytesRef.Kind == normalized.BytesInline) != (name == "small") {
				r.Errorf("%s: %d bytes in %s, %v", name, len(back), file.BytesRef.Kind, err)
			}
		}
		if _, _, _, err := r.service.Forwarded(r.Context(), "nothing"); !fault.Is(err, fault.NotFound) {
			r.Error(err)
		}
	})
}

// TestWhatIsSentOn: a mail and the job that sends it on are kept together, and only for mail that may leave.
func TestWhatIsSentOn(t *testing.T) {
	onBothDatabases(t, func(r *rig) {
		keep := func(key string, change func(*exchange.IncomingMail)) {
			mail := letter(key, key+"@"+key+".example", "email-dmarc", []byte("x\r\n"))
			change(&mail)
			if err := r.service.Keep(r.Context(), mail); err != nil {
				r.Fatal(err)
			}
		}
		keep("nowhere", func(*exchange.IncomingMail) {})
		r.to = "me@far.example"
		keep("program", func(m *exchange.IncomingMail) { m.Answers = false })
		keep("report", func(m *exchange.IncomingMail) { m.Kind = exchange.MailDMARC })
		keep("captured", func(m *exchange.IncomingMail) { m.Kind = exchange.MailCaptured })
		keep("back", func(m *exchange.IncomingMail) { m.From = "Me@Far.example" })
		if jobs := r.jobs(); len(jobs) != 0 {
			r.Fatalf("%d mails are sent on", len(jobs))
		}

		keep("letter", func(*exchange.IncomingMail) {})
		keep("letter", func(*exchange.IncomingMail) {})
		jobs := r.jobs()
		if len(jobs) != 1 {
			r.Fatalf("%d mails are sent on; want 1", len(jobs))
		}
		forward, err := mailbox.ForwardOf(queue.Job{Payload: jobs[0].Payload})
		if err != nil || forward.To != "me@far.example" || forward.ID == "" {
			r.Errorf("%+v, %v", forward, err)
		}
		if mail, err := r.store.Mail(r.Context(), forward.MailID); err != nil || mail.From != "letter@letter.example" {
			r.Errorf("%+v, %v", mail, err)
		}
		if _, err := mailbox.ForwardOf(queue.Job{Payload: "x"}); err == nil {
			r.Error("an unreadable job is read")
		}
	})
}

// TestRefusedMailLeavesNothing: the bytes of a large mail without room are never written, and a repeat of one that is there is taken.
func TestRefusedMailLeavesNothing(t *testing.T) {
	onBothDatabases(t, func(r *rig) {
		large := func(n byte) []byte { return bytes.Repeat([]byte{'a' + n}, 100<<10) }
		for n := range byte(4) {
			for range 2 {
				err := r.service.Keep(r.Context(), letter(string('a'+rune(n)), "a@b.example", "email-dmarc", large(n)))
				if (n < 2) != (err == nil) || err != nil && !fault.Is(err, fault.RateLimited) {
					r.Errorf("mail %d: %v", n, err)
				}
			}
			_, err := r.blobs.Open(r.Context(), normalized.Digest(large(n)))
			if (n < 2) != (err == nil) {
				r.Errorf("bytes of mail %d: %v", n, err)
			}
		}
	})
}

// TestCapturedMailPaysNothing: answers that were captured are no one's quota, and the newest stay.
func TestCapturedMailPaysNothing(t *testing.T) {
	onBothDatabases(t, func(r *rig) {
		r.quota = exchange.MailQuota{}
		mail := letter("one", "echo@inbox.test", "none", []byte("x\r\n"))
		mail.Kind = exchange.MailCaptured
		for range 2 {
			if err := r.service.Keep(r.Context(), mail); err != nil {
				r.Fatal(err)
			}
		}
		if found, err := r.store.Mails(r.Context(), exchange.MailFilter{}); err != nil || len(found) != 1 {
			r.Errorf("%+v, %v", found, err)
		}
	})
}
