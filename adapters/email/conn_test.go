package email

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"inbox/adapters/email/emailtest"
	"inbox/internal/await"
)

func TestPostmasterNeedsNoDomain(t *testing.T) {
	s, config := startSecure(t)
	greet := map[string]func() *wire{"plain": s.greet, "TLS": func() *wire { return s.greetSecure(config) }}
	for name, lines := range map[string]string{
		"alone":        "RCPT TO:<postmaster>\r\n",
		"in capitals":  "rcpt to: <PostMaster>\r\n",
		"with another": "RCPT TO:<postmaster>\r\nRCPT TO:<echo@inbox.test>\r\nRCPT TO:<Postmaster>\r\n",
	} {
		for kind, begin := range greet {
			for _, together := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, together %t", name, kind, together), func(t *testing.T) {
					w := begin()
					w.t = t
					mail := emailtest.Letter("x", "From: ann@plain.test", "To: postmaster@inbox.test", "Message-ID: <"+strings.ReplaceAll(name, " ", "-")+"@plain.test>")
					w.sayGroup(together, "MAIL FROM:<ann@plain.test>\r\n", lines)
					w.sayGroup(together, "DATA\r\n", mail+".\r\n")
				})
			}
		}
	}
	for _, begin := range greet {
		w := begin()
		w.say("MAIL FROM:<ann@plain.test>", "250")
		w.say("RCPT TO:<abuse>", "501")
		w.say("VRFY x", "252")
		w.say("RCPT TO:<postmaster@else.test>", "550 5.7.1")
		w.say("RCPT TO:<<postmaster>>", "501")
	}
}

// sayGroup brings two groups of lines, with or without waiting for the answers to the first (RFC 2920).
func (w *wire) sayGroup(together bool, first, second string) {
	w.t.Helper()
	if together {
		w.write(first + second)
		w.expectEach(first)
	} else {
		w.write(first)
		w.expectEach(first)
		w.write(second)
	}
	w.expectEach(second)
}

// expectEach reads a good answer to each command, and the one to a mail.
func (w *wire) expectEach(lines string) {
	w.t.Helper()
	if strings.HasSuffix(lines, "\r\n.\r\n") {
		w.expect("250")
		return
	}
	for line := range strings.Lines(lines) {
		w.expect(map[bool]string{true: "354", false: "250"}[strings.HasPrefix(line, "DATA")])
	}
}

// TestBodiesAreNotQualified brings the line as a part of mails, in packets of its own.
func TestBodiesAreNotQualified(t *testing.T) {
	s, config := startSecure(t)
	const line = "RCPT TO:<postmaster>\r\n"
	head := emailtest.Letter("first", "From: ann@plain.test")
	for name, script := range map[string][]string{
		"data":                  {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\n", "250", "DATA\r\n", "354", head, "", line, "", ".\r\n", "250"},
		"data with RCPT":        {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\nDATA\r\n", "250 354", head, "", line, "", ".\r\n", "250"},
		"data, all at once":     {"MAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n", "250 250 354", head, "", line, "", ".\r\n", "250"},
		"chunks":                {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\n", "250", fmt.Sprintf("BDAT %d\r\n%s", len(head), head), "250", fmt.Sprintf("BDAT %d LAST\r\n", len(line)), "", line, "250"},
		"chunks with RCPT":      {"MAIL FROM:<ann@plain.test>\r\n", "250", fmt.Sprintf("RCPT TO:<echo@inbox.test>\r\nBDAT %d\r\n%s", len(head), head), "250 250", fmt.Sprintf("BDAT %d LAST\r\n%s", len(line), line), "250"},
		"chunks, all at once":   {fmt.Sprintf("MAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nBDAT %d LAST\r\n", len(head)+len(line)), "250 250", head, "", line, "250"},
		"greeting and all":      {"EHLO x.test\r\nMAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n" + head + line + ".\r\n", "250 250 250 354 250"},
		"a second mail":         {"MAIL FROM:<ann@plain.test>\r\nRSET\r\nMAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n" + head, "250 250 250 250 354", line, "", ".\r\n", "250"},
		"a chunk after a reset": {"MAIL FROM:<ann@plain.test>\r\n", "250", "RSET\r\nMAIL FROM:<ann@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nBDAT " + fmt.Sprint(len(head)+len(line)) + " LAST\r\n" + head, "250 250 250", line, "250"},
		"a command in two cuts": {"MAIL FROM:<ann@plain.test>\r\n", "250", "RCPT TO:<echo@inbox.test>\r\nBD", "250", fmt.Sprintf("AT %d LAST\r\n", len(head)+len(line)), "", head, "", line, "250"},
	} {
		for kind, begin := range map[string]func() *wire{"plain": s.dial, "TLS": func() *wire { return s.greetSecure(config) }} {
			t.Run(name+", "+kind, func(t *testing.T) {
				w := begin()
				w.t = t
				if kind == "plain" {
					w.say("EHLO client.sender.test", "250")
				}
				s.bodyStays(t, w, script, line)
			})
		}
	}
}

// bodyStays plays a script of what is sent and what is answered, and demands that one mail came of it that ends as it was sent.
func (s *setup) bodyStays(t *testing.T, w *wire, script []string, line string) {
	t.Helper()
	before := len(s.engine.All())
	for i := 0; i < len(script); i += 2 {
		w.write(strings.ReplaceAll(script[i], "m1@sender.test", fmt.Sprintf("%02d@sender.test", before)))
		for want := range strings.FieldsSeq(script[i+1]) {
			w.expect(want)
		}
	}
	w.say("NOOP", "250")
	all := s.engine.All()
	if len(all) != before+1 || !strings.HasSuffix(string(all[before].Original), "first\r\n"+line) {
		t.Errorf("%d mails, the last one %q", len(all)-before, all[len(all)-1].Original)
	}
}

func TestAddressesOfReceived(t *testing.T) {
	for ip, want := range map[string]string{"192.0.2.1": "[192.0.2.1]", "2001:db8::1": "[IPv6:2001:db8::1]"} {
		if got := addressLiteral(ip); got != want {
			t.Errorf("%s: %s", ip, got)
		}
	}
}

// startSecure runs an adapter that offers TLS.
func startSecure(t *testing.T) (*setup, *tls.Config) {
	t.Helper()
	certificate, pool := emailtest.SelfSigned(t)
	s := start(t, func(o *Options) {
		o.TLSConfig, o.MaxConnectionsPerIP = &tls.Config{Certificates: []tls.Certificate{certificate}}, 100
	})
	return s, &tls.Config{RootCAs: pool, ServerName: "mx.inbox.test"}
}

// secure begins with TLS after STARTTLS was answered.
func (w *wire) secure(config *tls.Config) *wire {
	secured := tls.Client(w.conn, config)
	w.conn, w.in = secured, &lineReader{conn: secured}
	return w
}

// greetSecure says EHLO, STARTTLS and EHLO again.
func (s *setup) greetSecure(config *tls.Config) *wire {
	w := s.greet()
	w.say("STARTTLS", "220 2.0.0")
	w.secure(config)
	w.say("EHLO client.sender.test", "250")
	return w
}

func TestBeginOfTLSForgetsWhatWasSaid(t *testing.T) {
	s, config := startSecure(t)
	w := s.greet()
	w.say("MAIL FROM:<a@plain.test>", "250")
	w.say("STARTTLS", "503 5.5.1")
	w.say("RSET", "250")
	w.say("STARTTLS", "220")
	w.secure(config)
	w.say("MAIL FROM:<a@plain.test>", "503 5.5.1")
	w.say("RCPT TO:<echo@inbox.test>", "503 5.5.1")
	if hello := w.say("EHLO again.test", "250"); strings.Contains(hello, "STARTTLS") || strings.Contains(hello, "AUTH") || !strings.Contains(hello, "PIPELINING") {
		t.Errorf("under TLS it offers %s", hello)
	}
	w.say("STARTTLS", "503 5.5.1")
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@plain.test"), "250")
	if original := string(s.engine.Only(t).Original); !strings.Contains(original, "from again.test ") {
		t.Errorf("trace %s", original)
	}
}

// TestNothingIsInjectedBeforeTLS brings commands in the clear that must not be heard under TLS, in one packet with STARTTLS and
// behind it (RFC 3207, section 6).
func TestNothingIsInjectedBeforeTLS(t *testing.T) {
	s, _ := startSecure(t)
	for name, lines := range map[string]string{
		"behind it":            "STARTTLS\r\nEHLO evil.test\r\nMAIL FROM:<evil@plain.test>\r\n",
		"behind it, in a half": "STARTTLS\r\nNOO",
		"behind another":       "NOOP\r\nSTARTTLS\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			w := s.greet()
			w.write(lines)
			if strings.HasPrefix(lines, "NOOP") {
				w.expect("250")
			}
			w.expect("503 5.5.1 Nothing may follow STARTTLS")
		})
	}
	w := s.greet()
	w.write("STAR")
	w.write("TTLS\r\n")
	w.expect("220")
}

// A peer that speaks in the clear where TLS begins is not understood, and nothing of it is a command.
func TestBrokenHandshakeEndsTheConnection(t *testing.T) {
	s, _ := startSecure(t)
	w := s.greet()
	w.say("STARTTLS", "220")
	w.write("EHLO evil.test\r\nMAIL FROM:<evil@plain.test>\r\n")
	for {
		line, err := w.in.line()
		if err != nil {
			break
		}
		if strings.HasPrefix(line, "2") {
			t.Fatalf("it answers %q", line)
		}
	}
	w = s.greet() // it gave its place back
	w.say("STARTTLS", "220")
	_ = w.conn.(*net.TCPConn).CloseWrite()
	if !w.closed() {
		t.Error("the connection stays open")
	}
}

// A stop does not wait for peers that began with TLS and say nothing.
func TestStopInsideOfAHandshake(t *testing.T) {
	s, config := startSecure(t)
	idle, silent := s.greetSecure(config), s.greet()
	silent.say("STARTTLS", "220")
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.stop() }()
	idle.expect("421")
	if !silent.closed() {
		t.Error("the handshake goes on")
	}
	await.Receive(t, stopped, "the end of the adapter")
}

func TestWithoutACertificateThereIsNoTLS(t *testing.T) {
	s := start(t, nil)
	w := s.dial()
	if hello := w.say("EHLO x.test", "250"); strings.Contains(hello, "STARTTLS") {
		t.Errorf("it offers %s", hello)
	}
	w.say("STARTTLS", "502 5.5.1")
}

// TestAnnouncedSizeIsTheLimit takes what it announces and not a byte more (RFC 1870, section 3).
func TestAnnouncedSizeIsTheLimit(t *testing.T) {
	const limit = 3000
	s := start(t, func(o *Options) { o.MaxMessageBytes = limit })
	w := s.dial()
	if hello := w.say("EHLO x.test", "250"); !strings.Contains(hello, "250-SIZE 3000\n") {
		t.Errorf("it announces %s", hello)
	}
	w.say("MAIL FROM:<a@plain.test> SIZE=3001", "552 5.3.4")
	mail := emailtest.Letter("x", "From: a@plain.test")
	mail += strings.Repeat("0123456789012345678901234567\r\n", (limit-len(mail))/30)
	mail += strings.Repeat("y", limit-len(mail)-2) + "\r\n"
	w.say("MAIL FROM:<a@plain.test> SIZE=3000", "250")
	w.say("RCPT TO:<echo@inbox.test>", "250")
	w.say("DATA", "354")
	w.write(mail + ".\r\n")
	w.expect("250")
	for _, size := range []int{limit, limit + 1} {
		w.say("MAIL FROM:<a@plain.test>", "250")
		w.say("RCPT TO:<echo@inbox.test>", "250")
		w.write(fmt.Sprintf("BDAT %d LAST\r\n%s", size, strings.Replace(mail, "m1@", "m2@", 1)+"\n"[:size-limit]))
		w.expect(map[int]string{limit: "250", limit + 1: "552 5.3.4"}[size])
	}
}

// TestAnswersToWhatIsOutOfOrder has the codes of RFC 5321, sections 4.1.4 and 4.1.1.11.
func TestAnswersToWhatIsOutOfOrder(t *testing.T) {
	s := start(t, nil)
	w := s.dial()
	for _, line := range []string{"MAIL FROM:<a@plain.test>", "RCPT TO:<echo@inbox.test>", "DATA", "BDAT 0 LAST"} {
		w.say(line, "503 5.5.1")
	}
	w.say("EHLO x.test", "250")
	for _, line := range []string{"RCPT TO:<echo@inbox.test>", "DATA", "BDAT 0 LAST"} {
		w.say(line, "503 5.5.1")
	}
	w.say("AUTH PLAIN AHgAeQ==", "502 5.5.1")
	w.say("MAIL FROM:<a@plain.test> FOO=bar", "555 5.5.4")
	w.say("MAIL FROM:<a@plain.test> RET=HDRS", "555 5.5.4")
	w.say("MAIL FROM:<a@plain.test> ENVID=x", "555 5.5.4")
	w.say("MAIL FROM:<a@plain.test> BODY=8BITMIME", "250")
	w.say("DATA", "503 5.5.1")
	w.say("RCPT TO:<echo@inbox.test> FOO=bar", "555 5.5.4")
	w.say("RCPT TO:<echo@inbox.test> NOTIFY=NEVER", "555 5.5.4")
	w.say("RCPT TO:<echo@inbox.test>", "250")
	w.say("HELP", "214")
	w.say("VRFY echo", "252")
	w.say("EXPN all", "502 5.5.1")
	w.write("BDAT 2\r\nx\n")
	w.expect("250")
	for _, line := range []string{"MAIL FROM:<a@plain.test>", "RCPT TO:<echo@inbox.test>", "DATA"} {
		w.say(line, "503 5.5.1")
	}
	w.say("RSET", "250")
	for _, line := range []string{"FOO", "HELLO", "XYZZY now"} {
		w.say(line, "500 5.5.2")
	}
	w.say("EXAMPLE", "500 5.5.2")
	w.expect("421 4.7.0")
	if !w.closed() {
		t.Error("the connection stays open")
	}
}

// A peer that says everything and closes its side hears all answers.
func TestHalfClosedPeersHearTheirAnswers(t *testing.T) {
	s := start(t, nil)
	w := s.dial()
	w.write("EHLO x.test\r\nMAIL FROM:<a@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n" + emailtest.Letter("x", "From: a@plain.test") + ".\r\nQUIT\r\n")
	_ = w.conn.(*net.TCPConn).CloseWrite()
	for _, want := range []string{"250", "250", "250", "354", "250", "221"} {
		w.expect(want)
	}
	s.engine.Only(t)
}

// TestNamesOfPeersForgeNoAnswer sends what the server says itself as the name of the peer.
func TestNamesOfPeersForgeNoAnswer(t *testing.T) {
	s, _ := startSecure(t)
	w := s.dial()
	w.say("HELO 502 5.5.1 TLS not supported", "250 mx.inbox.test Hello 502")
	if hello := w.say("EHLO a\rb\x00c\x1b", "250-mx.inbox.test Hello "); strings.ContainsAny(hello, "\r\x00\x1b") {
		t.Errorf("it repeats control characters: %q", hello)
	}
	for _, length := range []int{100, 3900, 3990} {
		if hello := w.say("EHLO "+strings.Repeat("x", length), "250-mx.inbox.test Hello xxx"); len(hello) > 512 {
			t.Errorf("a name of %d bytes makes an answer of %d", length, len(hello))
		}
		w.say("NOOP", "250")
	}
}

// TestLoneCRsUnderTLS has the byte behind a dot, where the library would swallow both.
func TestLoneCRsUnderTLS(t *testing.T) {
	s, config := startSecure(t)
	mail := emailtest.Letter("one", "From: a@plain.test")
	for name, say := range map[string]func(*wire, string){
		"line by line": func(w *wire, body string) {
			w.say("MAIL FROM:<a@plain.test>", "250")
			w.say("RCPT TO:<echo@inbox.test>", "250")
			w.say("DATA", "354")
			w.write(body)
		},
		"at once": func(w *wire, body string) {
			w.write("MAIL FROM:<a@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n" + body)
			w.expect("250")
			w.expect("250")
			w.expect("354")
		},
	} {
		for kind, w := range map[string]*wire{"plain": s.greet(), "TLS": s.greetSecure(config)} {
			t.Run(name+", "+kind, func(t *testing.T) {
				w.t = t
				say(w, mail+".\rx\r\n.\r\n")
				w.expect("554 5.6.0")
				before := len(s.engine.All())
				say(w, strings.Replace(mail, "m1@", fmt.Sprintf("n%d@", before), 1)+".\r\n")
				w.expect("250")
				if n := len(s.engine.All()); n != before+1 {
					t.Errorf("%d mails after a good one; want %d", n, before+1)
				}
			})
		}
	}
}

// TestSlowLines brings commands byte by byte.
func TestSlowLines(t *testing.T) {
	s, config := startSecure(t)
	for kind, w := range map[string]*wire{"plain": s.greet(), "TLS": s.greetSecure(config)} {
		for _, line := range []string{"NOOP", "MAIL FROM:<a@plain.test>", "RCPT TO:<echo@inbox.test>", "RSET"} {
			for i := range len(line) {
				w.write(line[i : i+1])
			}
			w.write("\r")
			w.write("\n")
			if got := w.reply(); !strings.HasPrefix(got, "250") {
				t.Errorf("%s: %s: %q", kind, line, got)
			}
		}
	}
}

func TestTLSConnectionsAreCutToo(t *testing.T) {
	s, config := startSecure(t)
	w := s.greetSecure(config)
	w.say("MAIL FROM:<a@plain.test>", "250")
	s.adapter.server.listener.cut()
	_ = w.conn.SetReadDeadline(time.Now().Add(patience))
	if !w.closed() {
		t.Error("it stays open")
	}
}

// The tests of this file are named after what the SMTP library does not do, or does in a way that surprises.

func TestLibrary1LimitsHoldBeforeTheGreetingOfThePeer(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnections = 1 })
	first := s.dial() // says nothing
	conn := s.dialAny()
	conn.expect("421 4.7.0")
	first.say("QUIT", "221")
}

func TestLibrary2ABodyMayTakeLongerThanACommand(t *testing.T) {
	c := &peerConn{}
	_ = c.SetReadDeadline(time.Now().Add(idleTimeout))
	c.beginMail()
	c.beginTransfer()
	c.taken = 10 << 20
	if left := time.Until(c.deadline); left < transferTimeout-time.Minute {
		t.Errorf("a transfer has %s", left)
	}
}

func TestLibrary3ABodyIsNeverReadAsCommands(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	w.say("MAIL FROM:<a@plain.test>", "250")
	w.say("RCPT TO:<echo@inbox.test>", "250")
	w.say("DATA", "354")
	w.write("From: a@plain.test\r\n\r\n" + strings.Repeat("z", 5000) + "\r\nMAIL FROM:<smuggled@plain.test>\r\nRCPT TO:<helper@inbox.test>\r\n.\r\n")
	w.expect("554 5.6.0")
	_, _ = w.conn.Write([]byte("QUIT\r\n")) // the connection may be closed already
	for {
		line, err := w.in.line()
		if err != nil || strings.HasPrefix(line, "221") {
			break
		}
		if strings.HasPrefix(line, "250") {
			t.Fatalf("a line of the body was a command: %q", line)
		}
	}
}

func TestLibrary4OtherEndsSmuggleNothing(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnectionsPerIP = 100 })
	for name, end := range map[string]string{
		"LF.LF": "\n.\n", "LF.CRLF": "\n.\r\n", "CRLF.LF": "\r\n.\n", "CR.CR": "\r.\r", "CRLF.CR": "\r\n.\r", "CR.CRLF": "\r.\r\n", "CRLF.NUL": "\r\n.\x00\r\n", "LF.CR": "\n.\r",
	} {
		t.Run(name, func(t *testing.T) {
			w := s.greet()
			w.say("MAIL FROM:<a@plain.test>", "250")
			w.say("RCPT TO:<echo@inbox.test>", "250")
			w.say("DATA", "354")
			w.write(emailtest.Letter("one", "From: a@plain.test") + "x" + end + "MAIL FROM:<evil@plain.test>\r\nRCPT TO:<echo@inbox.test>\r\nDATA\r\n" + emailtest.Letter("two", "From: evil@plain.test") + "\r\n.\r\n")
			w.expect("554 5.6.0")
			w.say("NOOP", "250")
		})
	}
	if n := len(s.engine.All()); n != 0 {
		t.Errorf("%d messages", n)
	}
}

func TestLibrary5CommandsMayEndInLF(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	w.write("NOOP\n")
	w.expect("250")
}

func TestLibrary6AddressesAreReadStrictly(t *testing.T) {
	s := start(t, nil)
	for address, want := range map[string]string{
		`"echo@inbox.test"@other.test`: "550 5.7.1", `"v@p.test"@inbox.test`: "550 5.1.3", "@r:echo@inbox.test": "250", "ëcho@inbox.test": "553 5.6.7", "echo@ïnbox.test": "553 5.6.7",
	} {
		if _, refusal := s.adapter.recipients.find(t.Context(), unrouted(address), false); refusal != nil && !strings.HasPrefix(replyLine(refusal), want) || refusal == nil && want != "250" {
			t.Errorf("%s: %v; want %s", address, refusal, want)
		}
	}
}

// unrouted does what the library does with quotes and routes.
func unrouted(address string) string {
	if strings.HasPrefix(address, "@") {
		address = address[strings.IndexByte(address, ':')+1:]
	}
	return strings.ReplaceAll(address, `"`, "")
}

func TestLibrary7RefusalsAreCounted(t *testing.T) { TestHarvestersCannotBeginAgain(t) }

func TestLibrary8AnnouncedSizesAreChecked(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxMessageBytes = 1000 })
	w := s.greet()
	w.say("MAIL FROM:<a@plain.test> SIZE=1001", "552 5.3.4")
	w.say("MAIL FROM:<a@plain.test> SIZE=99999999999", "501")
	w.say("MAIL FROM:<a@plain.test> SIZE=1000", "250")
}

func TestLibrary9AGivenUpChunkIsNotDelivered(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	w.say("MAIL FROM:<a@plain.test>", "250")
	w.say("RCPT TO:<echo@inbox.test>", "250")
	mail := emailtest.Letter("x", "From: a@plain.test")
	w.write(fmt.Sprintf("BDAT %d\r\n%s", len(mail), mail))
	w.expect("250")
	w.say("RSET", "250")
	w.say("NOOP", "250")
	if n := len(s.engine.All()); n != 0 {
		t.Errorf("%d messages", n)
	}
}

func TestLibrary10TheAnswerWaitsForTheStoreOnly(t *testing.T) {
	s := start(t, nil)
	s.engine.Refuse = unavailable
	w := s.greet()
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@plain.test"), "451 4.3.0")
	s.engine.Refuse = nil
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@plain.test"), "250")
	s.engine.Only(t)
}

func TestLibrary12AllRecipientsOrNone(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	w.send("a@plain.test", []string{"echo@inbox.test", "helper@inbox.test"}, emailtest.Letter("x", "From: a@plain.test", "To: echo@inbox.test, helper@inbox.test"), "250")
	if n := len(s.engine.All()); n != 2 {
		t.Errorf("%d messages; want one per agent", n)
	}
}
