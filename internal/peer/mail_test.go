package peer

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func startMail(t *testing.T, options MailOptions) *Mail {
	t.Helper()
	mail, err := NewMail(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := mail.Close(); err != nil {
			t.Error(err)
		}
	})
	return mail
}

// mailPair returns alice, and bob who answers her and is known in her DNS.
func mailPair(t *testing.T) (alice, bob *Mail) {
	t.Helper()
	alice = startMail(t, MailOptions{})
	bob = startMail(t, MailOptions{
		Domain: "hatter.example", User: "bob", Resolver: alice.Resolver(), Reply: upper, ReplyVia: alice.SMTPAddr(),
	})
	alice.Publish(bob.DKIMRecord())
	return alice, bob
}

func TestMailPeersTalk(t *testing.T) {
	t.Parallel()
	alice, bob := mailPair(t)
	text := "Grüße aus dem Wunderland,\nand one line that is rather long: " + strings.Repeat("very ", 40) + "long."
	got, err := alice.Ask(limited(t, 10*time.Second), bob.SMTPAddr(), "@"+bob.Address(), "Ein Gruß", text)
	if err != nil {
		t.Fatal(err)
	}
	if want := upper(text); got.Answer != want {
		t.Errorf("answer = %q, want %q", got.Answer, want)
	}
	if len(got.Evidence) < 3 || !strings.Contains(got.Evidence[0], "hatter.example") {
		t.Errorf("evidence = %q", got.Evidence)
	}
	if !strings.HasSuffix(got.MessageID, "@wonderland.example") {
		t.Errorf("message id = %q", got.MessageID)
	}
}

func TestMailRefusesUnprovenAnswers(t *testing.T) {
	t.Parallel()
	alice, bob := mailPair(t)
	mallory := startMail(t, MailOptions{Domain: "hatter.example", User: "bob"}) // the right name, the wrong key
	stranger := startMail(t, MailOptions{Domain: "unpublished.example"})
	message := letter{id: "1@hatter.example", to: alice.Address(), subject: "Re: hi", text: "hello", inReplyTo: "0@wonderland.example"}
	sign := func(m *Mail) []byte {
		signed, err := m.sign(m.compose(message))
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	crossSigned, err := bob.sign(alice.compose(message))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		raw  []byte
		want string // in the refusal; empty = accepted
	}{
		"right":          {sign(bob), ""},
		"unsigned":       {bob.compose(message), "no DKIM signature"},
		"changed body":   {bytes.Replace(sign(bob), []byte("hello"), []byte("hullo"), 1), "fails"},
		"changed author": {bytes.Replace(sign(bob), []byte("bob@hatter"), []byte("rob@hatter"), 1), "fails"},
		"wrong key":      {sign(mallory), "fails"},
		"no key":         {sign(stranger), "fails"},
		"foreign signer": {crossSigned, "is that of hatter.example"},
		"two authors":    {append([]byte("From: a@b.example, c@d.example\r\n"), sign(bob)...), "want one author"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := bob.submit(t.Context(), alice.SMTPAddr(), alice.Address(), test.raw)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
		})
	}
}

func TestMailJudgesAnswers(t *testing.T) {
	t.Parallel()
	alice := startMail(t, MailOptions{})
	right := received{
		from: []string{"bob@hatter.example"}, to: []string{"alice@wonderland.example"},
		inReplyTo: []string{"1@wonderland.example"}, references: []string{"0@x.example", "1@wonderland.example"},
		subject: "Re: hi", id: "2@hatter.example", text: "hello", autoSubmitted: "auto-replied",
	}
	tests := map[string]struct {
		change func(*received)
		want   string
	}{
		"right":             {func(*received) {}, ""},
		"broken thread":     {func(r *received) { r.references = r.references[:1] }, "no reference"},
		"other recipient":   {func(r *received) { r.to = []string{"carol@wonderland.example"} }, "addressed"},
		"other subject":     {func(r *received) { r.subject = "News" }, "subject"},
		"no robot":          {func(r *received) { r.autoSubmitted = "" }, "Auto-Submitted"},
		"without own id":    {func(r *received) { r.id = "" }, "Message-ID"},
		"without any words": {func(r *received) { r.text = "" }, "no text"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			arrived := right
			test.change(&arrived)
			got := alice.judge(arrived, "proof")
			if (got.err == nil) != (test.want == "") || got.err != nil && !strings.Contains(got.err.Error(), test.want) {
				t.Errorf("error = %v, want %q", got.err, test.want)
			}
		})
	}
}

func TestMailTellsWhyNoAnswerCame(t *testing.T) {
	t.Parallel()
	alice := startMail(t, MailOptions{})
	bob := startMail(t, MailOptions{Domain: "hatter.example", Resolver: alice.Resolver(), Reply: upper, ReplyVia: alice.SMTPAddr()})
	// bob's key is not in the DNS that alice asks
	_, err := alice.Ask(limited(t, 4*time.Second), bob.SMTPAddr(), bob.Address(), "hi", "hello")
	if err == nil || !strings.Contains(err.Error(), "DKIM signature of hatter.example fails") {
		t.Errorf("error = %v, want the reason of the refusal", err)
	}
}

func TestZone(t *testing.T) {
	t.Parallel()
	alice := startMail(t, MailOptions{})
	lookup := resolver(alice.Resolver())
	long := strings.Repeat("x", 700)
	alice.Publish(DNSRecord{Name: "Long.Wonderland.example", Value: long})
	texts, err := lookup.LookupTXT(t.Context(), "long.wonderland.EXAMPLE")
	if err != nil || len(texts) != 1 || texts[0] != long {
		t.Errorf("LookupTXT = %d texts, %v", len(texts), err)
	}
	exchangers, err := lookup.LookupMX(t.Context(), "wonderland.example")
	if err != nil || len(exchangers) != 1 || exchangers[0].Host != "wonderland.example." {
		t.Errorf("LookupMX = %v, %v", exchangers, err)
	}
	_, err = lookup.LookupTXT(t.Context(), "nobody.example")
	var missing *net.DNSError
	if !errors.As(err, &missing) || !missing.IsNotFound {
		t.Errorf("unknown name: %v, want not found", err)
	}
}

func TestZoneTruncatesOverUDPOnly(t *testing.T) {
	t.Parallel()
	alice := startMail(t, MailOptions{})
	alice.Publish(DNSRecord{Name: "long.example", Value: strings.Repeat("x", 2000)})
	query := new(dns.Msg).SetQuestion("long.example.", dns.TypeTXT)
	for network, truncated := range map[string]bool{"udp": true, "tcp": false} {
		client := dns.Client{Net: network}
		reply, _, err := client.ExchangeContext(context.Background(), query, alice.Resolver())
		if err != nil {
			t.Fatal(err)
		}
		if reply.Truncated != truncated {
			t.Errorf("%s: truncated = %v", network, reply.Truncated)
		}
	}
}

func FuzzReadMail(f *testing.F) {
	f.Add([]byte("From: a@b.example\r\nTo: c@d.example\r\nSubject: Re: x\r\nIn-Reply-To: <1@b>\r\n\r\nhello\r\n"))
	f.Add([]byte("Content-Type: multipart/alternative; boundary=x\r\n\r\n--x\r\n\r\nhello\r\n--x--\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) { _, _ = readMail(raw) })
}
