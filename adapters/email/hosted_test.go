package email

import (
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/exchange/exchangetest"
)

// startHosted runs an adapter of inbox.test that takes the mail of other.test as well.
func startHosted(t *testing.T) (top, other *setup) {
	t.Helper()
	agents := exchangetest.Agents{{Name: "echo", Address: "@echo@other.test"}, {Name: "single", Address: "@single@other.test"}}
	other = start(t, func(o *Options) { o.Domain, o.Listen, o.Agents = "other.test", "", agents })
	return startWith(t, nil, func(a *Adapter) { a.Host(other.adapter) }), other
}

func signedTo(t *testing.T, address string) string {
	t.Helper()
	return emailtest.Signed(t, emailtest.Letter("Hello", "To: "+address))
}

func TestHostedDomainGetsItsMail(t *testing.T) {
	top, other := startHosted(t)
	if top.adapter.Addr().String() != other.adapter.Addr().String() {
		t.Errorf("the hosted domain says that it listens at %s", other.adapter.Addr())
	}

	w := top.greet()
	w.send("ann@sender.test", []string{"echo@other.test"}, signedTo(t, "echo@other.test"), "250")
	w.send("ann@sender.test", []string{"echo@inbox.test"}, signedTo(t, "echo@inbox.test"), "250")
	for address, one := range map[string]*setup{"@echo@inbox.test": top, "@echo@other.test": other} {
		message := one.engine.Only(t).Message
		evidence := message.Sender.Identities[0]
		if message.Recipient != address || "@echo@"+evidence.Issuer != address {
			t.Errorf("%s got a message for %s with evidence of %s", address, message.Recipient, evidence.Issuer)
		}
	}

	w.say("MAIL FROM:<ann@sender.test>", "250")
	w.say("RCPT TO:<single@inbox.test>", "550 5.1.1") // an agent of the other domain alone
	w.say("RCPT TO:<single@other.test>", "250")
	w.say("RSET", "250")
	w.say("MAIL FROM:<ann@sender.test>", "250")
	w.say("RCPT TO:<ann@third.test>", "550 5.7.1")
}

// TestMailIsForOneDomain: what is stored with one domain cannot be undone when the other fails, so each mail is for one of them.
func TestMailIsForOneDomain(t *testing.T) {
	top, other := startHosted(t)
	w := top.greet()
	w.say("MAIL FROM:<ann@sender.test>", "250")
	w.say("RCPT TO:<echo@other.test>", "250")
	w.say("RCPT TO:<echo@inbox.test>", "452 4.5.3")
	w.say("RCPT TO:<nobody@inbox.test>", "550 5.1.1") // who does not exist is not put off
	w.say("RCPT TO:<single@other.test>", "250")
	w.say("DATA", "354")
	w.write(signedTo(t, "echo@other.test, single@other.test") + ".\r\n")
	w.expect("250")
	if len(top.engine.All()) != 0 || len(other.engine.All()) != 2 {
		t.Errorf("%d messages at inbox.test, %d at other.test", len(top.engine.All()), len(other.engine.All()))
	}

	w.say("MAIL FROM:<ann@sender.test>", "250")
	w.say("RCPT TO:<echo@inbox.test>", "250") // the next mail is for whom it names
	w.say("RCPT TO:<single@OTHER.test>", "452 4.5.3")
}
