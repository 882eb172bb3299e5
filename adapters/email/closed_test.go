package email

import (
	"strings"
	"sync/atomic"
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/exchange"
)

// TestClosedMailboxes: each reason has its code at RCPT; what closes after that is refused before the mail is read.
func TestClosedMailboxes(t *testing.T) {
	var reason atomic.Value
	reason.Store(exchange.Closure(""))
	s := start(t, func(o *Options) {
		o.Closed = func(agent string) exchange.Closure {
			closed := reason.Load().(exchange.Closure)
			if agent == "" && closed != exchange.ClosedDisk {
				return ""
			}
			return closed
		}
	})
	for closed, want := range map[exchange.Closure][2]string{
		exchange.ClosedPaused:  {"550 5.2.1 ", "250"},
		exchange.ClosedBacklog: {"452 4.2.2 ", "250"},
		exchange.ClosedDisk:    {"452 4.3.1 ", "452 4.3.1 "},
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
	// A full mailbox is nobody's guess: ten of them do not end the connection.
	w := s.greet()
	reason.Store(exchange.ClosedBacklog)
	w.say("MAIL FROM:<ann@sender.test>", "250")
	for range 10 {
		if got := w.say("RCPT TO:<echo@inbox.test>", "452 4.2.2"); strings.HasPrefix(got, "421") {
			t.Fatal(got)
		}
	}
}
