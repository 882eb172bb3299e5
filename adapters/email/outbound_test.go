package email

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/emailtest"
	"inbox/exchange"
	"inbox/internal/fault"
	"inbox/normalized"
)

// dialerTo connects to one server, whatever the address.
type dialerTo string

func (d dialerTo) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, string(d))
}

func TestDirectDelivery(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s := start(t, func(o *Options) { o.Mode, o.Dialer = ModeMX, dialerTo(k.Address) })
	s.names.Host("sender.test", "192.0.2.1")
	receipts, err := s.deliver(replyTo(s.question(true), normalized.Text("x")))
	if err != nil || len(receipts) != 1 || !strings.HasPrefix(receipts[0].Detail, "sender.test[192.0.2.1] without TLS: 2.0.0 OK") {
		t.Fatalf("%+v, %v", receipts, err)
	}
	s.verifyOurs([]byte(k.Mails[0]))
}

func TestEachRecipientHasAnOwnResult(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s := start(t, func(o *Options) { o.Mode, o.Dialer = ModeMX, dialerTo(k.Address) })
	s.names.Host("sender.test", "192.0.2.1")
	in := s.question(true, "Cc: two@sender.test, three@sender.test", "Message-ID: <m2@sender.test>")
	var offered [][]string
	var current []string
	k.Set(func(step, argument string) error {
		switch step {
		case "mail":
			current = nil
		case "rcpt":
			current = append(current, argument)
			if argument == "two@sender.test" {
				return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "nobody"}
			}
			if argument == "three@sender.test" && len(offered) == 0 {
				return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "greylisted"}
			}
		case "data":
			offered = append(offered, current)
		}
		return nil
	})
	reply := replyTo(in, normalized.Text("x"))
	reply.Response.Cc = []string{"@two@sender.test", "@three@sender.test"}
	plan, err := s.adapter.Plan(t.Context(), reply)
	if err != nil {
		t.Fatal(err)
	}
	id := "01936f2a-0000-7000-8000-0000000000aa"
	for attempt := 1; attempt <= 2; attempt++ {
		receipt, err := s.adapter.Deliver(t.Context(), exchange.Delivery{ID: id, Attempt: attempt, Reply: reply, NativeID: plan.NativeID, Destination: plan.Destinations[0]})
		if attempt == 1 && (err == nil || fault.Of(err).Permanent || !strings.Contains(fault.Of(err).Public, "taken for 2 of 3")) {
			t.Fatalf("%+v, %v", receipt, err)
		}
		if attempt == 2 && err != nil {
			t.Fatal(err)
		}
	}
	if len(offered) != 2 || len(offered[1]) != 1 || offered[1][0] != "three@sender.test" {
		t.Errorf("offered %v", offered)
	}
	if k.Mails[0] != k.Mails[1] {
		t.Error("the repeat has other bytes")
	}
}

func TestSmarthostDeliversOverOneSession(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+k.Address })
	reply := replyTo(s.question(true), normalized.Text("over the smarthost\n.\nend"))
	for range 3 {
		receipts, err := s.deliver(reply)
		if err != nil || receipts[0].Detail != "2.0.0 OK: queued" {
			t.Fatalf("%+v, %v", receipts, err)
		}
	}
	sessions, _, mails := k.Counts()
	if sessions != 1 || mails != 3 {
		t.Errorf("%d sessions, %d mails", sessions, mails)
	}
	s.verifyOurs([]byte(k.Mails[0]))
	if len(s.captured()) != 0 {
		t.Error("mails were captured")
	}
	k.Stop(t) // the kept session is dead now
	if _, err := s.deliver(reply); err == nil || fault.Of(err).Permanent {
		t.Errorf("a dead smarthost: %v", err)
	}
}

func TestSmarthostAnswersAreClassed(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+k.Address })
	in := s.question(true, "Cc: two@sender.test")
	reply := replyTo(in, normalized.Text("x"))
	refuse := func(at, who string, code int) func(string, string) error {
		return func(step, argument string) error {
			if step == at && (who == "" || who == argument) {
				return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 1, 1}, Message: "no\tway"}
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		refuse    func(string, string) error
		permanent bool
		retry     bool
	}{
		"unknown recipient":        {refuse("rcpt", "", 550), true, false},
		"greylisted":               {refuse("rcpt", "", 451), false, true},
		"too many recipients":      {refuse("rcpt", "", 552), false, true},
		"refused content":          {refuse("data", "", 554), true, false},
		"busy after the final dot": {refuse("data", "", 451), false, true},
		"refused sender":           {refuse("mail", "", 550), true, false},
		"login wanted":             {refuse("mail", "", 530), false, true},
		"closing":                  {refuse("mail", "", 421), false, true},
		"fine":                     {nil, false, false},
	} {
		k.Set(c.refuse)
		_, err := s.deliver(reply)
		if (err != nil) != (c.permanent || c.retry) || fault.Of(err).Permanent != c.permanent && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && c.permanent && !strings.Contains(fault.Of(err).Public, "no way") {
			t.Errorf("%s: the operator reads %q", name, fault.Of(err).Public)
		}
	}

	both := reply
	both.Response.Cc = []string{"@two@sender.test"}
	_, _, before := k.Counts()
	k.Set(refuse("rcpt", "two@sender.test", 550))
	receipts, err := s.deliver(both)
	if err != nil || !strings.Contains(receipts[0].Detail, "refused: two@sender.test (no way)") {
		t.Errorf("%+v, %v", receipts, err)
	}
	k.Set(refuse("rcpt", "two@sender.test", 450))
	if _, err := s.deliver(both); err == nil || fault.Of(err).Permanent || !strings.Contains(fault.Of(err).Public, "taken for 1 of 2") {
		t.Errorf("one of two later: %v", err)
	}
	if _, _, after := k.Counts(); after != before+2 {
		t.Errorf("%d mails; who can have the mail gets it", after-before)
	}
	k.Set(nil)
	large := replyTo(in, file("big.bin", "application/octet-stream", make([]byte, 1<<20)))
	if _, err := s.deliver(large); !fault.Of(err).Permanent {
		t.Errorf("too large: %v", err)
	}
}

// TestInternationalAddresses has one in Cc: who else gets the mail gets its header too.
func TestInternationalAddresses(t *testing.T) {
	for offered, want := range map[bool]string{true: "[true true]", false: "[false]"} {
		k := emailtest.StartSinkWith(t, false, nil, "", func(server *smtp.Server) { server.EnableSMTPUTF8 = offered })
		s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+k.Address })
		reply := replyTo(s.question(true, "Cc: josé@other.test"), normalized.Text("to both"))
		reply.Response.Cc = []string{"josé@other.test"}
		_, err := s.deliver(reply)
		if offered != (err == nil) || !offered && !strings.Contains(err.Error(), "5.6.7") {
			t.Errorf("offered %t: %v", offered, err)
		}
		k.Mu.Lock()
		got := fmt.Sprint(k.UTF8)
		k.Mu.Unlock()
		if got != want {
			t.Errorf("offered %t: SMTPUTF8 %s; want %s", offered, got, want)
		}
	}
}
