package email

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/emailtest"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

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

func TestDeadKeptSessionIsReplaced(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+k.Address })
	reply := replyTo(s.question(true), normalized.Text("x"))
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	pool := &s.adapter.sender.(*smarthost).pool
	pool.mu.Lock()
	_ = pool.idle[0].conn.Close()
	pool.mu.Unlock()
	if _, err := s.deliver(reply); err != nil {
		t.Errorf("%v", err)
	}
}

func TestSmarthostTLSAndLogin(t *testing.T) {
	certificate, pool := emailtest.SelfSigned(t)
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	for name, c := range map[string]struct {
		implicit bool
		config   *tls.Config
		login    string
		relaxed  bool
		trusted  bool
		want     string // part of the error, empty = delivered
	}{
		"starttls with login":              {config: config, login: "user%40x.test:pw@", trusted: true},
		"implicit with login":              {implicit: true, config: config, login: "user%40x.test:pw@", trusted: true},
		"starttls without login":           {config: config, trusted: true},
		"wrong password":                   {config: config, login: "user%40x.test:no@", trusted: true, want: "refused the login"},
		"unknown certificate":              {config: config, login: "user%40x.test:pw@", want: "certificate"},
		"unknown certificate, development": {config: config, relaxed: true},
		"unknown certificate and a login":  {config: config, relaxed: true, login: "user%40x.test:pw@", want: "certificate"},
		"password in the clear":            {login: "user%40x.test:pw@", want: "must not travel in the clear"},
		"password in the clear, allowed":   {login: "user%40x.test:pw@", relaxed: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := emailtest.StartSink(t, c.implicit, c.config, "pw")
			s := start(t, func(o *Options) {
				scheme := "smtp://"
				if c.implicit {
					scheme = "smtps://"
				}
				o.Mode, o.Smarthost, o.AllowPrivate = ModeSmarthost, scheme+c.login+k.Address, c.relaxed
				if c.trusted {
					o.SmarthostTLS = &tls.Config{RootCAs: pool}
				}
			})
			_, err := s.deliver(replyTo(s.question(true), normalized.Text("x")))
			_, logins, mails := k.Counts()
			if c.want == "" {
				if err != nil || mails != 1 || (c.login != "") != (logins == 1) {
					t.Errorf("%v, %d mails, %d logins", err, mails, logins)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || fault.Of(err).Permanent || strings.Contains(err.Error(), "pw") {
				t.Errorf("error %v; want %q, to be repeated", err, c.want)
			}
		})
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

func TestCancelledDeliveryEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			accepted <- conn // and never a greeting
		}
	}()
	s := start(t, func(o *Options) { o.Mode, o.Smarthost = ModeSmarthost, "smtp://"+listener.Addr().String() })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.adapter.sender.send(ctx, outgoing{recipients: []string{"a@b.test"}})
		ended <- err
	}()
	conn := await.Receive(t, accepted, "the connection to the smarthost")
	cancel()
	if err := await.Receive(t, ended, "the end of the delivery"); err == nil || fault.Of(err).Permanent {
		t.Errorf("error %v", err)
	}
	_ = conn.Close()
}

func TestEarlyBytesBeforeTLSAreRefused(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		buffer := make([]byte, 512)
		_, _ = theirs.Write([]byte("220 x ESMTP\r\n"))
		_, _ = theirs.Read(buffer)
		_, _ = theirs.Write([]byte("250-x\r\n250 STARTTLS\r\n"))
		_, _ = theirs.Read(buffer)
		_, _ = theirs.Write([]byte("220 go\r\n250 injected\r\n"))
		_ = theirs.Close()
	}()
	if _, err := startTLS(ours, "mx.inbox.test"); err == nil || !strings.Contains(err.Error(), "before TLS") {
		t.Errorf("error %v", err)
	}
	_ = ours.Close()
}

func TestSmarthostURL(t *testing.T) {
	for text, want := range map[string]string{
		"smtp://mail.test": "mail.test:587", "smtps://u:p@mail.test": "mail.test:465", "smtp://mail.test:25/": "mail.test:25", "smtp://[::1]:2525": "[::1]:2525",
		"http://mail.test": "", "mail.test:25": "", "": "", "smtp://": "", "smtp://mail.test/x": "",
	} {
		got, err := SmarthostAddress(text)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Error("the error shows the password")
		}
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
