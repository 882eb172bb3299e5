package email

import (
	"fmt"
	"strings"
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/identity"
	"inbox/normalized"
)

// withAliases gives the agent echo a mailbox elsewhere and one here.
func withAliases(o *Options) {
	o.AliasOf = func(address string) string {
		return map[string]string{"support@they.test": "echo", "sales@inbox.test": "echo", "hilfe@xn--bcher-kva.test": "echo", "desk@they.test": "helper"}[address]
	}
}

// TestForwardedMailIsAnswered: a mailbox that people know stands in front of the agent and forwards its mail.
func TestForwardedMailIsAnswered(t *testing.T) {
	s := start(t, withAliases)
	w := s.greet()
	for i, row := range []struct {
		name    string
		lines   []string
		answers bool
	}{
		{"to the alias", []string{"To: support@they.test", "X-Forwarded-To: echo@inbox.test", "X-Forwarded-For: support@they.test echo@inbox.test", "Delivered-To: support@they.test"}, true},
		{"copied to the alias", []string{"To: bo@other.test", "Cc: Support <Support@THEY.test>"}, true},
		{"with a tag", []string{"To: support+order-4711@they.test"}, true},
		{"a domain in its own script", []string{"To: hilfe@xn--bcher-kva.test"}, true},
		{"to another mailbox of the forwarder", []string{"To: boss@they.test", "X-Forwarded-To: echo@inbox.test", "Delivered-To: support@they.test"}, false},
		{"to the alias of another agent", []string{"To: desk@they.test", "X-Forwarded-To: echo@inbox.test"}, false},
		{"only the forwarder names the alias", []string{"To: bo@other.test", "X-Original-To: support@they.test", "Delivered-To: support@they.test", "X-Forwarded-For: support@they.test"}, false},
	} {
		mail := emailtest.Signed(t, emailtest.Letter("Where is my lamp?", append(row.lines, fmt.Sprintf("Message-ID: <f%d@sender.test>", i))...))
		w.send("support+caf_=echo=inbox.test@they.test", []string{"echo@inbox.test"}, mail, "250")
		all := s.engine.All()
		in := all[len(all)-1]
		if in.Message.Sender.Verified != row.answers || (in.NoReply == "") != row.answers {
			t.Errorf("%s: verified %t, not answered because %q", row.name, in.Message.Sender.Verified, in.NoReply)
		}
		if row.answers && !strings.Contains(fmt.Sprint(in.Message.Sender.Identities), identity.AddressedRecipient) {
			t.Errorf("%s: %+v", row.name, in.Message.Sender.Identities)
		}
	}

	// What was written to no one here, and is sent on by someone who has it, stays unproven when its author did not name the alias.
	w.send("eve@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: eve@plain.test", "To: support@they.test", "Message-ID: <unproven@plain.test>"), "250")
	all := s.engine.All()
	if last := all[len(all)-1]; last.Message.Sender.Verified {
		t.Error("an alias proves a sender")
	}
}

// TestAnswersNeverGoToAliases: the mailbox in front would forward them to the agent.
func TestAnswersNeverGoToAliases(t *testing.T) {
	s := start(t, func(o *Options) {
		withAliases(o)
		o.RepliesToAll = func(string) bool { return true }
	})
	reply := replyTo(s.question(true, "To: support@they.test, bo@other.test", "Cc: desk@they.test", "Reply-To: support@they.test"), normalized.Text("x"))
	reply.Response.Cc = []string{"@support+x@they.test"}
	plan, err := s.adapter.Plan(t.Context(), reply)
	var got []string
	for _, one := range plan.Destinations {
		got = append(got, one.Address)
	}
	if strings.Join(got, " ") != "ann@sender.test bo@other.test" || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := s.adapter.Open(t.Context(), "echo", "support@they.test", ""); err == nil {
		t.Error("a conversation begins with an alias")
	}
}

// TestAliasesAndTheCatchAll: mail that comes straight to another address than the agent's own.
func TestAliasesAndTheCatchAll(t *testing.T) {
	for _, row := range []struct {
		recipient, catchAll string
		want                string // the agent, or the code of the refusal
		tag                 string
	}{
		{"sales@inbox.test", "", "echo", ""}, {"Sales+a1@inbox.test", "", "echo", "a1"}, {"support@they.test", "", "echo", ""}, {"desk@they.test", "", "helper", ""},
		{"boss@they.test", "", "550 5.7.1", ""}, {"boss@they.test", "echo", "550 5.7.1", ""}, {"nobody@inbox.test", "", "550 5.1.1", ""}, {"nobody@inbox.test", "helper", "helper", ""},
		{"nobody+a1@inbox.test", "helper", "helper", "a1"}, {"sales@inbox.test", "helper", "echo", ""}, {"echo@inbox.test", "helper", "echo", ""}, {"postmaster@inbox.test", "helper", "", ""},
		{"hostmaster@inbox.test", "helper", "", ""}, {"nobody@inbox.test", "gone", "550 5.1.1", ""},
	} {
		s := start(t, func(o *Options) { withAliases(o); o.CatchAll = row.catchAll })
		w := s.greet()
		w.say("MAIL FROM:<ann@sender.test>", "250")
		if row.want != "" && row.want[0] == '5' {
			w.say("RCPT TO:<"+row.recipient+">", row.want)
			continue
		}
		w.say("RSET", "250")
		w.send("ann@sender.test", []string{row.recipient}, emailtest.Signed(t, emailtest.Letter("x", "To: "+row.recipient)), "250")
		all := s.engine.All()
		if row.want == "" {
			if len(all) != 0 {
				t.Errorf("%s: an agent has the operator's mail", row.recipient)
			}
			continue
		}
		if in := all[0]; in.Message.Recipient != "@"+row.want+"@inbox.test" || in.NoReply != "" || !in.Message.Sender.Verified || in.Message.Surface.Tag != row.tag {
			t.Errorf("%s: for %s, tag %q, verified %t, not answered because %q", row.recipient, in.Message.Recipient, in.Message.Surface.Tag, in.Message.Sender.Verified, in.NoReply)
		}
	}
}

// TestMailFromAnAliasIsNotAnswered: the mailbox in front would forward the answer to the agent.
func TestMailFromAnAliasIsNotAnswered(t *testing.T) {
	s := start(t, func(o *Options) {
		o.AliasOf = func(address string) string { return map[string]string{"support@sender.test": "echo"}[address] }
	})
	w := s.greet()
	for i, from := range []string{"support@sender.test", "Support+7@sender.test", "ann@sender.test"} {
		w.send(from, []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("x", "From: "+from, fmt.Sprintf("Message-ID: <a%d@sender.test>", i))), "250")
		in := s.engine.All()[i]
		if reason := in.NoReply; strings.Contains(reason, "alias") != (i < 2) || in.Doubted {
			t.Errorf("%s: not answered because %q, doubted %t", from, reason, in.Doubted)
		}
	}
}
