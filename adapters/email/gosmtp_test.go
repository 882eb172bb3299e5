package email

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"inbox/adapters/email/emailtest"
)

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
	if n := len(s.engine.all()); n != 0 {
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
		if _, refusal := s.adapter.recipients.find(unrouted(address), false); refusal != nil && !strings.HasPrefix(replyLine(refusal), want) || refusal == nil && want != "250" {
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
	if n := len(s.engine.all()); n != 0 {
		t.Errorf("%d messages", n)
	}
}

func TestLibrary10TheAnswerWaitsForTheStoreOnly(t *testing.T) {
	s := start(t, nil)
	s.engine.fail = unavailable
	w := s.greet()
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@plain.test"), "451 4.3.0")
	s.engine.fail = nil
	w.send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@plain.test"), "250")
	s.engine.only(t)
}

func TestLibrary12AllRecipientsOrNone(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	w.send("a@plain.test", []string{"echo@inbox.test", "helper@inbox.test"}, emailtest.Letter("x", "From: a@plain.test", "To: echo@inbox.test, helper@inbox.test"), "250")
	if n := len(s.engine.all()); n != 2 {
		t.Errorf("%d messages; want one per agent", n)
	}
}
