package email

import (
	"bytes"
	"strings"
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/normalized"
)

// TestInternationalSenders: a sender with an address in another script could not write at all.
func TestInternationalSenders(t *testing.T) {
	s := start(t, nil)
	s.names.Text("_dmarc.xn--bcher-kva.test", "v=DMARC1; p=reject; adkim=s")
	_, record := DNSRecord("x.test", "s1", emailtest.SenderKey())
	s.names.Text("s1._domainkey.xn--bcher-kva.test", record)
	w := s.dial()
	for line := w.say("EHLO client.test", ""); !strings.Contains(line, "SMTPUTF8"); line = w.reply() {
		if !strings.Contains(line, "-") {
			t.Fatal("SMTPUTF8 is not announced")
		}
	}
	w = s.greet()
	w.say("MAIL FROM:<änn@bücher.test>", "553 5.6.7")
	w.say("MAIL FROM:<änn@bücher.test> BODY=8BITMIME SMTPUTF8", "250")
	w.say("RCPT TO:<ëcho@inbox.test>", "550 5.1.3")
	w.say("RCPT TO:<echo+t1@inbox.test>", "250")
	w.say("DATA", "354")
	mail := emailtest.SignedAs(t, emailtest.Letter("Grüße", "From: Änn <änn@bücher.test>", "To: echo+t1@inbox.test, ünal@other.test", "Subject: Bücher", "Message-ID: <m1@bücher.test>"), "bücher.test", "s1", emailtest.SenderKey())
	w.write(mail + ".\r\n")
	w.expect("250")

	in := s.engine.only(t)
	sender := in.Message.Sender
	if sender.Address != "@änn@xn--bcher-kva.test" || !sender.Verified || sender.AuthMethod != normalized.AuthEmailDMARC || in.Message.Surface.Subject != "Bücher" || len(in.Message.Surface.To) != 2 {
		t.Errorf("sender %+v, surface %+v", sender, in.Message.Surface)
	}
	if err := normalized.Validate(in.Message, normalized.DefaultLimits()); err != nil {
		t.Error(err)
	}
	if !bytes.Contains(in.Original, []byte("with UTF8SMTP id")) || !bytes.Contains(in.Original, []byte("Return-Path: <änn@xn--bcher-kva.test>")) {
		t.Errorf("original:\n%s", in.Original)
	}

	reply := replyTo(in, normalized.Text("an answer"))
	plan, err := s.adapter.Plan(t.Context(), reply)
	if err != nil || len(plan.Destinations) != 1 || plan.Destinations[0].Key != "xn--bcher-kva.test" || plan.Destinations[0].Address != "änn@xn--bcher-kva.test" {
		t.Errorf("plan %+v, %v", plan, err)
	}
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	fields, _, err := message.Split(s.captured()[0].Data)
	if to := fields.Addresses("To"); err != nil || len(to) != 1 || to[0].Key() != "änn@xn--bcher-kva.test" || to[0].Name != "Änn" {
		t.Errorf("To %+v, %v", to, err)
	}
}

// TestOurDomainInItsOwnScript: an address is the same whichever form of the domain a program writes.
func TestOurDomainInItsOwnScript(t *testing.T) {
	s := start(t, func(o *Options) { o.Domain = "bücher.example" })
	w := s.greet()
	w.say("MAIL FROM:<ann@plain.test> SMTPUTF8", "250")
	w.say("RCPT TO:<echo@BÜCHER.example>", "250")
	w.say("RSET", "250")
	w.say("MAIL FROM:<ann@plain.test>", "250")
	w.say("RCPT TO:<echo@bücher.example>", "553 5.6.7")
	w.say("RCPT TO:<echo@xn--bcher-kva.example>", "250")
}

// TestOneLetterTwoWays: a letter with its mark apart is the same letter.
func TestOneLetterTwoWays(t *testing.T) {
	one, other := message.Mailbox{Local: "\u00e4nn", Domain: "x.test"}, message.Mailbox{Local: "a\u0308NN", Domain: "x.test"}
	if one.Key() != other.Key() {
		t.Errorf("%q and %q", one.Key(), other.Key())
	}
}
