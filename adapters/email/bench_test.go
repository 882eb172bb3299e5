package email

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"inbox/adapters/email/emailtest"
	"inbox/normalized"
)

// tenKiB is a DKIM-signed mail of about 10 KiB.
func tenKiB(t testing.TB) string {
	line := "The quick brown fox jumps over the lazy dog and asks what the time is.\n"
	return emailtest.Signed(t, emailtest.Letter(strings.Repeat(line, 10<<10/len(line))))
}

// BenchmarkAccept is everything between the final dot and the hand-over to the pipeline: checks, SPF, DKIM, DMARC,
// MIME, normalization.
func BenchmarkAccept(b *testing.B) {
	s := start(b, nil)
	mail := []byte(tenKiB(b))
	to, refusal := s.adapter.recipients.find(b.Context(), "echo@inbox.test", false)
	if refusal != nil {
		b.Fatal(refusal)
	}
	env := envelope{ip: "127.0.0.1", helo: "client.sender.test", from: "ann@sender.test", recipients: []recipient{to}, received: time.Now()}
	b.SetBytes(int64(len(mail)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.adapter.inbox.accept(b.Context(), env, mail); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "mails/s")
}

// BenchmarkReceive is the same over a socket, one connection.
func BenchmarkReceive(b *testing.B) {
	s := start(b, nil)
	mail := strings.ReplaceAll(tenKiB(b), "\r\n.", "\r\n..")
	w := s.greet()
	b.SetBytes(int64(len(mail)))
	for b.Loop() {
		_ = w.conn.SetDeadline(time.Now().Add(time.Minute))
		w.say("MAIL FROM:<ann@sender.test>", "250")
		w.say("RCPT TO:<echo@inbox.test>", "250")
		w.say("DATA", "354")
		w.write(mail + ".\r\n")
		w.expect("250")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "mails/s")
}

// BenchmarkReply is rendering and signing a short answer; the RSA signature is nearly all of it.
func BenchmarkReply(b *testing.B) {
	s := start(b, nil)
	mail := []byte(tenKiB(b))
	to, _ := s.adapter.recipients.find(b.Context(), "echo@inbox.test", false)
	env := envelope{ip: "127.0.0.1", helo: "client.sender.test", from: "ann@sender.test", recipients: []recipient{to}, received: time.Now()}
	if _, err := s.adapter.inbox.accept(b.Context(), env, mail); err != nil {
		b.Fatal(err)
	}
	in := s.engine.Only(b)
	notes, _ := readRoute(in.Route)
	n := 0
	for b.Loop() {
		reply := replyTo(in, normalized.Markdown("An *answer* with some words."))
		reply.ID = fmt.Sprintf("reply-%d", n)
		n++
		body, err := s.adapter.outbox.renderer.render(b.Context(), reply, notes, s.adapter.outbox.audience(reply, notes))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.adapter.outbox.signer.Sign(body); err != nil {
			b.Fatal(err)
		}
	}
}
