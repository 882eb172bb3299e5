package email

import (
	"testing"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/outbound"
	"inbox/exchange"
	"inbox/normalized"
)

func TestIDsOfRelays(t *testing.T) {
	const ses = "010001936f2a0000-4c6a2f3e-1d7e-4b4e-9a3c-5f5d1c2b3a49-000000"
	for text, want := range map[string]string{
		"Ok " + ses: ses, "OK: " + ses: ses, "smarthost: Ok " + ses: ses, "2.0.0 Ok <" + ses + "@email.amazonses.com>": ses,
		"Ok queued as <202611211200.12345678@relay.test>": "202611211200.12345678", "Message accepted, id 4711-abcdefgh@relay.test.": "4711-abcdefgh", "Ok <12345678@relay.test> and more": "12345678",
		"2.0.0 Ok: queued as 4XyZ1q2w3e": "", "2.0.0 OK  1700000000 x-20020a05600c4f8600b0040a4c8d1f5esi123 - gsmtp": "", "Ok": "", "": "", "Great success": "", "Ok short": "", "Ok <a b@c>": "", "Ok <>": "", "Ok: queued": "",
	} {
		if got := relayedID(text); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}

func FuzzRelayedID(f *testing.F) {
	f.Add("Ok <a@b>")
	f.Fuzz(func(t *testing.T, text string) {
		if got := relayedID(text); got != "" && plainRelayed(got) != got {
			t.Errorf("%q: %q", text, got)
		}
	})
}

// TestAnswersToRelayedMailsFindTheirConversation: Amazon SES replaces the Message-ID, so the recipient's program knows another one.
func TestAnswersToRelayedMailsFindTheirConversation(t *testing.T) {
	const relay = "010001936f2a0000-4c6a2f3e-1d7e-4b4e-9a3c-5f5d1c2b3a49-000000"
	k := emailtest.StartSink(t, false, nil, "")
	k.Set(func(step, _ string) error {
		if step == "data" {
			return &smtp.SMTPError{Code: 250, EnhancedCode: smtp.NoEnhancedCode, Message: "Ok " + relay}
		}
		return nil
	})
	s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+k.Address })
	first := s.question(true)
	reply := replyTo(first, normalized.Text("an answer"))
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	s.engine.replies[reply.ID+"@inbox.test"] = 0

	w := s.greet()
	send := func(from string, lines ...string) normalized.Message {
		t.Helper()
		mail := emailtest.Letter("more", append(lines, "From: "+from, "Subject: Re: A question")...)
		if from == "ann@sender.test" {
			mail = emailtest.Signed(t, mail)
		}
		w.send(from, []string{"echo@inbox.test"}, mail, "250")
		all := s.engine.All()
		return all[len(all)-1].Message
	}
	for i, id := range []string{relay + "@email.amazonses.com", relay + "@eu-central-1.amazonses.com"} {
		got := send("ann@sender.test", "Message-ID: <again"+string(rune('0'+i))+"@sender.test>", "In-Reply-To: <"+id+">", "References: <"+id+">")
		if got.ThreadID != first.Message.ThreadID || got.InReplyTo != reply.ID+"@inbox.test" {
			t.Errorf("%s: thread %s, in reply to %s; want %s", id, got.ThreadID, got.InReplyTo, first.Message.ThreadID)
		}
	}
	if got := send("eve@plain.test", "Message-ID: <e@plain.test>", "In-Reply-To: <"+relay+"@email.amazonses.com>"); got.ThreadID == first.Message.ThreadID {
		t.Error("the id of a relay opens a conversation to a stranger")
	}
	if got := send("ann@sender.test", "Message-ID: <other@sender.test>", "In-Reply-To: <"+relay[1:]+"@email.amazonses.com>"); got.ThreadID == first.Message.ThreadID {
		t.Error("another id joins the conversation")
	}
}

// TestIDsOfRelaysStayWithTheirMail: any server that gets a mail may state the id of another one in its answer.
func TestIDsOfRelaysStayWithTheirMail(t *testing.T) {
	s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://127.0.0.1:1" })
	for _, id := range []string{"first@inbox.test", "second@inbox.test"} {
		s.adapter.outbox.rememberRelayed(t.Context(), exchange.Delivery{NativeID: id}, outbound.Outcome{Text: "Ok <12345678.abc@relay.test>"})
	}
	own, err := s.adapter.inbox.relayed(t.Context(), []string{"12345678.abc@relay.test"})
	if err != nil || len(own) != 1 || own[0] != "first@inbox.test" {
		t.Errorf("the id names %q, %v; want the first mail", own, err)
	}
}
