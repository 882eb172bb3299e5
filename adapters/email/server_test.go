package email

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/exchange"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/normalized"
)

//contract:shows message-9 message-10 message-42 message-51 message-53
func TestSignedMailBecomesAMessage(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	w.send("ann@sender.test", []string{"echo+ticket.7@inbox.test"}, emailtest.Signed(t, emailtest.Letter("Hello\nagent", "To: Echo <echo+ticket.7@inbox.test>, bob@other.test")), "250")
	in := s.engine.Only(t)
	m := in.Message
	if m.ID != "m1@sender.test" || m.ThreadID == m.ID || m.Recipient != "@echo@inbox.test" || m.ReceivedVia != "email" {
		t.Errorf("message %+v", m)
	}
	if m.Sender.Address.String() != "@ann@sender.test" || m.Sender.DisplayName != "Ann Sender" || !m.Sender.Verified || m.Sender.AuthMethod != normalized.AuthEmailDMARC {
		t.Errorf("sender %+v", m.Sender)
	}
	if len(m.Sender.Identities) != 1 || m.Sender.Identities[0].Subject != "mailto:ann@sender.test" || m.Sender.Identities[0].Issuer != "inbox.test" {
		t.Fatalf("evidence %+v", m.Sender.Identities)
	}
	for _, want := range []string{`"d":"sender.test"`, `"s":"s1"`, `"bits":2048`, `"result":"pass"`, `"policy":"reject"`, `"addressed":true`, `"ip":"127.0.0.1"`, `"helo":"client.sender.test"`} {
		if !strings.Contains(claimsOf(t, m.Sender.Identities[0]), want) {
			t.Errorf("claims miss %s: %s", want, claimsOf(t, m.Sender.Identities[0]))
		}
	}
	if len(m.Parts) != 1 || m.Parts[0].Content != "Subject: A question\n\nHello\nagent" {
		t.Errorf("parts %+v", m.Parts)
	}
	if in.NoReply != "" {
		t.Errorf("no reply because %q", in.NoReply)
	}
	notes, _ := readRoute(in.Route)
	if notes.Tag != "ticket.7" || len(notes.To) != 1 || notes.To[0].Address() != "bob@other.test" {
		t.Errorf("route %+v", notes)
	}
}

func TestRecipients(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnectionsPerIP = 100 })
	for address, want := range map[string]string{
		"echo@inbox.test": "250", "ECHO@INBOX.TEST": "250", "echo+x@inbox.test": "250", "echo@inbox.test.": "250",
		"postmaster@inbox.test": "250", "Abuse@inbox.test": "250",
		"nobody@inbox.test": "550 5.1.1", "echo@elsewhere.test": "550 5.7.1", "echo@[127.0.0.1]": "550 5.7.1", "echo@sub.inbox.test": "550 5.7.1",
		`"echo@x.test"@inbox.test`: "550 5.1.3", `"e cho"@inbox.test`: "550 5.1.3", "écho@inbox.test": "553 5.6.7", "v%x.test@inbox.test": "550 5.1.3",
		"@relay.test:echo@inbox.test": "250",
	} {
		t.Run(address, func(t *testing.T) {
			w := s.greet()
			w.say("MAIL FROM:<ann@sender.test>", "250")
			if got := w.say("RCPT TO:<"+address+">", ""); !strings.HasPrefix(got, want) {
				t.Errorf("answer %q; want %s", got, want)
			}
		})
	}
}

func TestSenderAddresses(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	for address, want := range map[string]string{
		"": "250", "ann@sender.test": "250", "ann+x@sender.test": "250", "ann@[127.0.0.1]": "553", `"a b"@sender.test`: "553", "änn@sender.test": "553 5.6.7",
	} {
		if got := w.say("MAIL FROM:<"+address+">", ""); !strings.HasPrefix(got, want) {
			t.Errorf("%q: answer %q; want %s", address, got, want)
		}
		w.say("RSET", "250")
	}
}

func TestRefusedRecipientsEndTheSession(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	w.say("MAIL FROM:<ann@sender.test>", "250")
	for range maxRefused - 1 {
		w.say("RCPT TO:<nobody@inbox.test>", "550 5.1.1")
	}
	w.say("RCPT TO:<nobody@inbox.test>", "421 4.7.0")
	if !w.closed() {
		t.Error("the connection stays open")
	}
}

func TestTooManyRecipients(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	w.say("MAIL FROM:<ann@sender.test>", "250")
	for range maxRecipients {
		w.say("RCPT TO:<echo@inbox.test>", "250")
	}
	w.say("RCPT TO:<echo@inbox.test>", "452 4.5.3")
}

func TestSizeIsExact(t *testing.T) {
	const limit = 4096
	s := start(t, func(o *Options) { o.MaxMessageBytes = limit })
	mail := emailtest.Letter("x", "From: ann@plain.test")
	pad := func(size int) string {
		filler := strings.Repeat("y", size-len(mail))
		var lines strings.Builder
		for i, c := range filler {
			if i%70 == 68 && i < len(filler)-2 {
				lines.WriteString("\r")
			} else if i%70 == 69 && i < len(filler)-1 {
				lines.WriteString("\n")
			} else {
				lines.WriteRune(c)
			}
		}
		return strings.TrimSuffix(mail, "\r\n") + lines.String() + "\r\n"
	}
	w := s.greet()
	w.say(fmt.Sprintf("MAIL FROM:<a@plain.test> SIZE=%d", limit+1), "552 5.3.4")
	exact := pad(limit)
	if len(exact) != limit {
		t.Fatalf("made %d bytes", len(exact))
	}
	w.send("a@plain.test", []string{"echo@inbox.test"}, exact, "250")
	w.send("a@plain.test", []string{"echo@inbox.test"}, pad(limit+1), "552 5.3.4")
	w.send("a@plain.test", []string{"echo@inbox.test"}, pad(limit+5000), "552 5.3.4")
	w.say("NOOP", "250")
	if n := len(s.engine.All()); n != 1 {
		t.Errorf("%d messages; want 1", n)
	}
}

func TestMalformedMailIsRefused(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnectionsPerIP = 100 })
	for name, mail := range map[string]string{
		"bare LF":             "From: a@plain.test\r\n\r\nx\ny\r\n",
		"bare CR":             "From: a@plain.test\r\n\r\nx\ry\r\n",
		"NUL":                 "From: a@plain.test\r\n\r\nx\x00y\r\n",
		"no From":             "To: echo@inbox.test\r\n\r\nx\r\n",
		"two From":            "From: a@plain.test\r\nfrom: b@plain.test\r\n\r\nx\r\n",
		"From with a space":   "From : a@plain.test\r\n\r\nx\r\n",
		"From disguised":      "From: a@plain.test\r\nFrom : b@plain.test\r\n\r\nx\r\n",
		"two addresses":       "From: a@plain.test, b@plain.test\r\n\r\nx\r\n",
		"group":               "From: Team: a@plain.test;\r\n\r\nx\r\n",
		"literal":             "From: a@[127.0.0.1]\r\n\r\nx\r\n",
		"IP":                  "From: a@127.0.0.1\r\n\r\nx\r\n",
		"quoted local part":   "From: \"a b\"@plain.test\r\n\r\nx\r\n",
		"single label":        "From: a@localhost\r\n\r\nx\r\n",
		"no field above From": "this is not a field\r\nFrom: a@plain.test\r\n\r\nx\r\n",
		"From below no field": "From: a@plain.test\r\nthis is not a field\r\nFrom: b@plain.test\r\n\r\nx\r\n",
		"nothing to say":      "From: a@plain.test\r\n\r\n \r\n",
		"deep":                "From: a@plain.test\r\n" + emailtest.Nested(25) + "\r\n",
		"header of 300 KiB":   "From: a@plain.test\r\n" + strings.Repeat("X-Filler: "+strings.Repeat("z", 900)+"\r\n", 320) + "\r\nx\r\n",
		"header of 1,100":     "From: a@plain.test\r\n" + strings.Repeat("X: y\r\n", 1100) + "\r\nx\r\n",
		"a line of 5000":      "From: a@plain.test\r\n\r\n" + strings.Repeat("z", 5000) + "\r\n",
		"fifty and one hops":  "From: a@plain.test\r\n" + strings.Repeat("Received: from x\r\n", 51) + "\r\nx\r\n",
		"continuation at top": " x\r\nFrom: a@plain.test\r\n\r\nx\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := s.greet()
			w.say("MAIL FROM:<a@plain.test>", "250")
			w.say("RCPT TO:<echo@inbox.test>", "250")
			w.say("DATA", "354")
			w.write(mail + ".\r\n")
			if got := w.reply(); !strings.HasPrefix(got, "554 5.") {
				t.Errorf("answer %q; want 554", got)
			}
		})
	}
	if n := len(s.engine.All()); n != 0 {
		t.Errorf("%d malformed mails were received", n)
	}
}

func TestOurTroubleIsNeverFinal(t *testing.T) {
	s := start(t, nil)
	s.engine.Refuse = unavailable
	w := s.greet()
	got := w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@plain.test"), "451 4.3.0")
	if strings.Contains(got, "disk") {
		t.Errorf("internals leave the server: %s", got)
	}
	s.engine.Refuse = func(exchange.Inbound) error { return errors.New("bug") }
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@plain.test"), "451 4.3.0")
	s.engine.Refuse = nil
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@plain.test"), "250")
}

func TestFaultsBecomeCodes(t *testing.T) {
	for kind, want := range map[fault.Kind]string{
		fault.Malformed: "554 5.6.0", fault.TooLarge: "552 5.3.4", fault.NotFound: "550 5.1.1", fault.Gone: "550 5.1.1", fault.Forbidden: "550 5.7.1",
		fault.Unauthenticated: "550 5.7.1", fault.RateLimited: "452 4.7.0", fault.Unavailable: "451 4.3.0", fault.Internal: "451 4.3.0",
		fault.Conflict: "554 5.6.0", fault.Unsupported: "554 5.6.0",
	} {
		if got := replyLine(smtpError(fault.New(kind, "text\r\n250 forged"))); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("%s: %q; want %s", kind, got, want)
		}
	}
}

//contract:shows message-4
func TestSeveralAgentsInOneMail(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	both := []string{"echo@inbox.test", "helper@inbox.test", "echo+again@inbox.test", "postmaster@inbox.test"}
	mail := emailtest.Letter("x", "From: a@plain.test", "To: echo@inbox.test, helper@inbox.test")

	s.engine.Refuse = func(in exchange.Inbound) error {
		if in.Message.Recipient == "@helper@inbox.test" {
			return unavailable(in)
		}
		return nil
	}
	w.send("a@plain.test", both, mail, "451 4.3.0")
	s.engine.Refuse = nil
	w.send("a@plain.test", both, mail, "250")
	if n := len(s.engine.All()); n != 2 {
		t.Errorf("%d messages; want one per agent", n)
	}
	operator := s.mailbox.All("")
	if len(operator) != 1 || operator[0].To[0] != "postmaster@inbox.test" || !strings.Contains(string(operator[0].Raw), "\r\n\r\nx\r\n") {
		t.Errorf("operator mail %+v", operator)
	}

	s.engine.Refuse = func(in exchange.Inbound) error {
		if in.Message.Recipient == "@helper@inbox.test" {
			return fault.New(fault.Forbidden, "blocked")
		}
		return nil
	}
	w.send("a@plain.test", both[:2], emailtest.Letter("x", "From: a@plain.test", "Message-ID: <m2@plain.test>"),
		"550 5.7.1 Delivered to echo@inbox.test, do not send it there again; Refused for helper@inbox.test: blocked")
	if n := len(s.engine.All()); n != 3 {
		t.Errorf("%d messages; want that of the agent that takes the mail, too", n)
	}
	w.send("a@plain.test", both[1:2], emailtest.Letter("x", "From: a@plain.test", "Message-ID: <m3@plain.test>"), "550 5.7.1")
}

func TestBrokenTransferIsDropped(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	w.say("MAIL FROM:<a@plain.test>", "250")
	w.say("RCPT TO:<echo@inbox.test>", "250")
	w.say("DATA", "354")
	w.write("From: a@plain.test\r\n\r\nhalf")
	_ = w.conn.(*net.TCPConn).CloseWrite()
	w.expect("421")
	if !w.closed() {
		t.Error("the connection stays open")
	}
	if n := len(s.engine.All()); n != 0 {
		t.Errorf("%d messages from half a mail", n)
	}
}

func TestChunkedTransfer(t *testing.T) {
	s := start(t, nil)
	mail := emailtest.Letter("chunked", "From: a@plain.test")
	w := s.greet()
	w.say("MAIL FROM:<a@plain.test>", "250")
	w.say("RCPT TO:<echo@inbox.test>", "250")
	w.write(fmt.Sprintf("BDAT %d\r\n%s", 20, mail[:20]))
	w.expect("250")
	w.write(fmt.Sprintf("BDAT %d LAST\r\n%s", len(mail)-20, mail[20:]))
	w.expect("250")
	if s.engine.Only(t).Message.Parts[0].Content != "Subject: A question\n\nchunked" {
		t.Errorf("parts %+v", s.engine.Only(t).Message.Parts)
	}
	torn := s.greet()
	torn.say("MAIL FROM:<a@plain.test>", "250")
	torn.say("RCPT TO:<echo@inbox.test>", "250")
	torn.write(fmt.Sprintf("BDAT %d LAST\r\n%s", len(mail)+500, strings.Replace(mail, "m1@", "m2@", 1)))
	_ = torn.conn.(*net.TCPConn).CloseWrite()
	for !torn.closed() {
	}
	if n := len(s.engine.All()); n != 1 {
		t.Errorf("a torn chunk was taken for a whole mail: %d messages", n)
	}
	given := s.greet()
	given.say("MAIL FROM:<a@plain.test>", "250")
	given.say("RCPT TO:<echo@inbox.test>", "250")
	given.write("BDAT 5\r\nFrom:")
	given.expect("250")
	given.say("RSET", "250")
	given.say("NOOP", "250")
}

func TestConnectionLimits(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnectionsPerIP = 2 })
	first, _ := s.greet(), s.greet()
	conn, err := net.Dial("tcp", s.adapter.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "421 4.7.0") {
		t.Fatalf("third connection heard %q, %v", line, err)
	}
	first.say("QUIT", "221")
	if !first.closed() {
		t.Error("QUIT left the connection open")
	}
	s.greet() // the place is free again
}

func TestDevelopmentDoesNotLimitLoopback(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnectionsPerIP, o.MaxConnections, o.AllowPrivate = 1, 1, true })
	s.greet()
	s.greet()
}

func TestMemoryIsBounded(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxBufferedBytes = 100 << 10; o.MaxMessageBytes = 1 << 20 })
	w := s.greet()
	big := emailtest.Letter(strings.Repeat(strings.Repeat("z", 70)+"\n", 4000), "From: a@plain.test")
	w.send("a@plain.test", []string{"echo@inbox.test"}, big, "452 4.3.1")
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("small", "From: a@plain.test"), "250")
	if left := s.adapter.server.buffered.Used(); left != 0 {
		t.Errorf("%d bytes are never given back", left)
	}
}

func TestGracefulStop(t *testing.T) {
	s := start(t, nil)
	idle := s.greet()
	busy := s.greet()
	busy.say("MAIL FROM:<a@plain.test>", "250")
	busy.say("RCPT TO:<echo@inbox.test>", "250")
	busy.say("DATA", "354")
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.stop() }()
	idle.expect("421")
	busy.write(emailtest.Letter("last words", "From: a@plain.test") + ".\r\n")
	busy.expect("250")
	busy.expect("421")
	await.Receive(t, stopped, "the end of the adapter")
	s.engine.Only(t)
}

func TestPortInUseIsOneSentence(t *testing.T) {
	s := start(t, nil)
	options := s.adapter.options
	options.Listen = s.adapter.Addr().String()
	other, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	err = other.Listen()
	if err == nil || !strings.HasPrefix(err.Error(), "smtp.listen: cannot listen on 127.0.0.1:") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v", err)
	}
}

func TestWrongModes(t *testing.T) {
	s := start(t, nil)
	for mode, want := range map[string]string{"pigeon": "unknown", "smarthost": "mail.smarthost"} {
		options := s.adapter.options
		options.Mode = mode
		if _, err := New(options); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}

func TestStartTLS(t *testing.T) {
	certificate, pool := emailtest.SelfSigned(t)
	s := start(t, func(o *Options) { o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}} })
	w := s.dial()
	if hello := w.say("EHLO client.sender.test", "250"); !strings.Contains(hello, "STARTTLS") {
		t.Fatalf("no STARTTLS in %s", hello)
	}
	w.say("STARTTLS", "220")
	secured := tls.Client(w.conn, &tls.Config{RootCAs: pool, ServerName: "mx.inbox.test"})
	w.conn, w.in = secured, &lineReader{conn: secured}
	w.say("EHLO client.sender.test", "250")
	w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("secret")), "250")
	if claims := claimsOf(t, s.engine.Only(t).Message.Sender.Identities[0]); !strings.Contains(claims, `"tls":"TLS 1.3"`) {
		t.Errorf("claims %s", claims)
	}
	if original := string(s.engine.Only(t).Original); !strings.Contains(original, "with ESMTPS id ") {
		t.Errorf("trace %s", original)
	}
}

func TestNestedMailIsRefused(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	w.say("MAIL FROM:<a@plain.test>", "250")
	w.say("RCPT TO:<echo@inbox.test>", "250")
	w.say("MAIL FROM:<b@plain.test>", "503 5.5.1")
	w.say("EHLO again.test", "250")
	w.say("DATA", "503 5.5.1")
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@plain.test"), "250")
	s.engine.Only(t)
}

func TestPipelinedMails(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	one := func(id string) string {
		return "MAIL FROM:<a@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n" + emailtest.Letter("x", "From: a@plain.test", "Message-ID: <"+id+"@plain.test>") + ".\r\n"
	}
	w.write(one("1") + one("2") + "QUIT\r\n")
	for _, want := range []string{"250", "250", "354", "250", "250", "250", "354", "250", "221"} {
		w.expect(want)
	}
	if n := len(s.engine.All()); n != 2 {
		t.Errorf("%d messages; want 2", n)
	}
}

// TestForgedMailMayBeSmallOnly: what nothing proves is refused at its size, before anything of it is stored; the same mail
// with a signature is taken.
func TestForgedMailMayBeSmallOnly(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxMessageBytes, o.MaxUnprovenBytes = 1<<20, 4096 })
	large := emailtest.Signed(t, emailtest.Letter("large", "From: ann@sender.test")+strings.Repeat("many words\r\n", 1000))
	w := s.greet()
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("forged", "From: ann@plain.test")+strings.Repeat("many words\r\n", 1000), "552 5.3.4")
	if n := len(s.engine.All()); n != 0 {
		t.Fatalf("%d messages; want none", n)
	}
	w.send("ann@sender.test", []string{"echo@inbox.test"}, large, "250")
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("small", "From: ann@plain.test"), "250")
	if n := len(s.engine.All()); n != 2 {
		t.Errorf("%d messages; want the signed and the small one", n)
	}
}

// TestClosedMailboxes: each reason has its code at RCPT; what closes after that is refused before the mail is read.
func TestClosedMailboxes(t *testing.T) {
	var reason atomic.Value
	reason.Store(exchange.Closure(""))
	s := start(t, func(o *Options) {
		o.Closed = func(agent string) exchange.Closure {
			closed := reason.Load().(exchange.Closure)
			if agent == "" && closed != exchange.ClosedDisk && closed != exchange.ClosedClock {
				return ""
			}
			return closed
		}
	})
	for closed, want := range map[exchange.Closure][2]string{
		exchange.ClosedPaused:  {"550 5.2.1 ", "250"},
		exchange.ClosedBacklog: {"452 4.2.2 ", "250"},
		exchange.ClosedDisk:    {"452 4.3.1 ", "452 4.3.1 "},
		exchange.ClosedClock:   {"451 4.3.0 ", "451 4.3.0 "},
	} {
		w := s.greet()
		reason.Store(closed)
		w.say("MAIL FROM:<ann@sender.test>", "250")
		w.say("RCPT TO:<echo@inbox.test>", want[0])
		w.say("RCPT TO:<postmaster@inbox.test>", want[1])
		w.say("RSET", "250")
		reason.Store(exchange.Closure(""))
		w.say("MAIL FROM:<ann@sender.test>", "250")
		w.say("RCPT TO:<echo@inbox.test>", "250")
		reason.Store(closed)
		w.say("DATA", "354")
		w.write(emailtest.Signed(t, emailtest.Letter("hello")) + ".\r\n")
		w.expect(want[0])
		w.say("NOOP", "250")
		reason.Store(exchange.Closure(""))
		w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("hello", "Message-ID: <"+string(closed)+"@sender.test>")), "250")
	}
	// A full mailbox is no guess: ten of them do not end the connection.
	w := s.greet()
	reason.Store(exchange.ClosedBacklog)
	w.say("MAIL FROM:<ann@sender.test>", "250")
	for range 10 {
		if got := w.say("RCPT TO:<echo@inbox.test>", "452 4.2.2"); strings.HasPrefix(got, "421") {
			t.Fatal(got)
		}
	}
}

// TestHugeForgeryIsRefusedEarly: whether a mail can still be proven is known from its header, so that the rest of a forgery costs
// no room and no hashing.
func TestHugeForgeryIsRefusedEarly(t *testing.T) {
	s := start(t, nil)
	s.names.Text("friend.test", "v=spf1 ip4:127.0.0.1 -all")
	s.names.Text("_dmarc.friend.test", "v=DMARC1; p=none")
	s.names.Break("_dmarc.broken.test")
	header := emailtest.Signed(t, emailtest.Letter("a body that has just begun", "From: ann@sender.test"))
	for name, c := range map[string]struct {
		sender, mail string
		want         bool
	}{
		"nothing":             {"a@plain.test", emailtest.Letter("x", "From: ann@plain.test"), false},
		"signature":           {"ann@sender.test", header + "another end", true},
		"damaged signature":   {"ann@sender.test", strings.Replace(header, "Subject: ", "Subject: z", 1), false},
		"SPF":                 {"ann@friend.test", emailtest.Letter("x", "From: ann@friend.test"), true},
		"SPF of another":      {"ann@friend.test", emailtest.Letter("x", "From: ann@plain.test"), false},
		"DNS trouble":         {"a@broken.test", emailtest.Letter("x", "From: ann@broken.test"), true},
		"no From":             {"ann@friend.test", "Subject: x\r\n\r\nx", false},
		"no header that ends": {"ann@friend.test", strings.Repeat("x", 300_000), false},
	} {
		env := envelope{ip: "127.0.0.1", helo: "client.sender.test", from: c.sender}
		if got := s.adapter.inbox.verifier.mayBeProven(t.Context(), env, []byte(c.mail)); got != c.want {
			t.Errorf("%s: may be proven = %t, want %t", name, got, c.want)
		}
	}
}
