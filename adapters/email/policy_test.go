package email

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/identity"
	"inbox/normalized"
	"inbox/policypart"
)

func consent(change ...func(*policypart.Part)) normalized.Part {
	expires := identity.At(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC))
	part := policypart.Part{
		Kind: policypart.ConsentRequired, Title: "Please allow", Message: "I need <your> calendar.\nOnly once.",
		URL: "https://inbox.test/policy/id?a=1&b=2", ActionLabel: "Allow", ExpiresAt: &expires,
		MessageTranslations: map[string]policypart.Translation{"de": {Title: "Bitte erlauben", Message: "Ich brauche Ihren Kalender."}, "fr": {Message: "Il me faut votre agenda."}},
	}
	for _, apply := range change {
		apply(&part)
	}
	return normalized.Part{Kind: normalized.PartPolicy, Policy: &part}
}

// presented delivers a reply and returns the only mail of it.
func (s *setup) presented(reply exchange.Reply) []byte {
	s.t.Helper()
	before := len(s.captured())
	if _, err := s.deliver(reply); err != nil {
		s.t.Fatal(err)
	}
	mails := s.captured()
	if len(mails) != before+1 || len(mails[before].To) != 1 {
		s.t.Fatalf("%d mails more, want one to one recipient", len(mails)-before)
	}
	s.verifyOurs(mails[before].Data)
	return unsigned(mails[before].Data)
}

func TestPolicyMails(t *testing.T) {
	for name, c := range map[string]struct {
		question []string
		parts    []normalized.Part
	}{
		"translated":        {[]string{"Accept-Language: de-AT, en;q=0.5"}, []normalized.Part{consent()}},
		"translated partly": {[]string{"Content-Language: fr"}, []normalized.Part{consent()}},
		"after other parts": {[]string{"Accept-Language: ja"}, []normalized.Part{consent(), normalized.Markdown("Before *that*:"), normalized.Text("two things.")}},
		"foreign":           {nil, []normalized.Part{consent(func(p *policypart.Part) { p.URL, p.ExpiresAt = "https://evil.test/policy/id", nil })}},
		"one line each": {nil, []normalized.Part{normalized.Markdown("*x*"), consent(func(p *policypart.Part) {
			p.Title, p.ActionLabel, p.Message = "a\r\nb\u202e", "Yes\nhttps://evil.test", "<a href=\"https://evil.test\">x</a>"
		})}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			mail := s.presented(replyTo(s.question(true, c.question...), c.parts...))
			golden(t, filepath.Join("reply", "policy-"+strings.ReplaceAll(name, " ", "-")+".golden"), mail)
		})
	}
}

func TestSecretIsForTheAskerAlone(t *testing.T) {
	calls := 0
	s := start(t, func(o *Options) {
		o.AllowNewRecipients = true
		o.ReplyTo = func(string) string { return ReplyToSigned }
		o.Present = func(part policypart.Part) policypart.Part {
			calls++
			part.URL = "https://inbox.test/policy/secret"
			return part
		}
	})
	for name, c := range map[string]struct {
		lines  []string
		proven bool
		to     string
	}{
		"plain":                       {nil, true, "ann@sender.test"},
		"others in the conversation":  {[]string{"To: echo@inbox.test, bob@other.test", "Cc: carl@third.test"}, true, "ann@sender.test"},
		"signed Reply-To":             {[]string{"Reply-To: desk@far.test"}, true, "desk@far.test"},
		"Reply-To of the same domain": {[]string{"From: ann@plain.test", "Reply-To: eve@plain.test"}, false, "ann@plain.test"},
		"Reply-To elsewhere":          {[]string{"From: ann@plain.test", "Reply-To: eve@far.test"}, false, "ann@plain.test"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := append([]string{"Message-ID: <" + strings.ReplaceAll(name, " ", ".") + "@x.test>"}, c.lines...)
			reply := replyTo(s.question(c.proven, lines...), consent())
			reply.ID += strings.ReplaceAll(name, " ", "-")
			reply.Response.To, reply.Response.Cc = []string{"@bob@other.test", "@eve@plain.test"}, []string{"@carl@third.test"}
			calls = 0
			plan, err := s.adapter.Plan(t.Context(), reply)
			if err != nil || len(plan.Destinations) != 1 || plan.Destinations[0].Address != c.to || calls != 0 {
				t.Fatalf("plan %+v, %v, %d calls", plan, err, calls)
			}
			if _, err := s.deliver(reply); err != nil {
				t.Fatal(err)
			}
			for _, kept := range s.captured() {
				if kept.ReplyID != reply.ID {
					continue
				}
				fields, _, _ := message.Split(kept.Data)
				if to := fields.Addresses("To"); len(to) != 1 || to[0].Address() != c.to || fields.Has("Cc") || !bytes.Contains(kept.Data, []byte("/policy/secret")) {
					t.Errorf("to %v:\n%s", to, kept.Data)
				}
			}
		})
	}
}

// TestDemandAndAnswerAreOneThread: one question gets a demand and later its answer, and the sender may write under
// either of them.
func TestDemandAndAnswerAreOneThread(t *testing.T) {
	s := start(t, nil)
	in := s.question(true)
	demand, answer := replyTo(in, consent()), replyTo(in, normalized.Text("It is done."))
	demand.Notice, answer.ID = 1, "01936f2a-0000-7000-8000-000000000002"
	first, second := s.presented(demand), s.presented(answer)
	for _, mail := range [][]byte{first, second} {
		fields, _, _ := message.Split(mail)
		if fields.Get("In-Reply-To") != "<m1@sender.test>" || fields.Get("References") != "<m1@sender.test>" || fields.Get("Subject") != "Re: A question" {
			t.Errorf("thread:\n%s", mail)
		}
	}
	fields, _, _ := message.Split(first)
	ids := []string{message.ID(fields)}
	if fields, _, _ = message.Split(second); message.ID(fields) == ids[0] {
		t.Error("two mails with one Message-ID")
	}
	for i, id := range append(ids, message.ID(fields)) {
		s.engine.replies[id] = 0
		next := s.question(true, "Message-ID: <next"+string(rune('0'+i))+"@sender.test>", "In-Reply-To: <"+id+">", "References: <m1@sender.test> <"+id+">")
		if next.Message.ThreadID != in.Message.ThreadID {
			t.Errorf("under %s: thread %s", id, next.Message.ThreadID)
		}
	}
}
