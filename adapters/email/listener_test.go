package email

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
)

func peerAt(address string) networks {
	return networksOf(&net.TCPAddr{IP: net.ParseIP(address), Port: 1})
}

func TestRatesCountAtThreeWidths(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for name, hosts := range map[string][3]string{
		"IPv4": {"192.0.2.1", "192.0.2.2", "192.0.3.1"},
		"IPv6": {"2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:2::1"},
	} {
		m := newRateLimiter(2, func() time.Time { return now })
		send := func(host string, times int) (passed int) {
			for range times {
				if m.allow(peerAt(host)) {
					passed++
				}
			}
			return passed
		}
		if got := send(hosts[0], 3); got != 2 {
			t.Errorf("%s: a host passed %d times; want 2", name, got)
		}
		if got := send(hosts[1], 5); got != 2 {
			t.Errorf("%s: its neighbour passed %d times; want 2", name, got)
		}
		if got := send(hosts[2], 2); got != 2 {
			t.Errorf("%s: the next network passed %d times; want 2", name, got)
		}
		now = now.Add(time.Minute)
		if got := send(hosts[0], 1); got != 1 {
			t.Errorf("%s: the minute did not end", name)
		}
	}
}

func TestManyNeighboursAreOneNetwork(t *testing.T) {
	m := newRateLimiter(2, time.Now)
	passed := 0
	for i := range 60 {
		if m.allow(peerAt(net.IPv4(192, 0, 2, byte(i)).String())) {
			passed++
		}
	}
	if passed != 6 {
		t.Errorf("%d of a /26 passed; want three times the limit of a host", passed)
	}
}

func TestMeterIsBounded(t *testing.T) {
	m := newRateLimiter(1, time.Now)
	for i := range 3 * maxNetworks {
		m.allow(peerAt(net.IPv4(byte(i>>16), byte(i>>8), byte(i), 1).String()))
	}
	if m.counts.Len() > maxNetworks {
		t.Errorf("%d networks are kept", m.counts.Len())
	}
}

// TestManyNetworksHideNoFlood: a peer that goes on is counted on, however many other networks come meanwhile.
func TestManyNetworksHideNoFlood(t *testing.T) {
	m, peer, events := newRateLimiter(1, time.Now), peerAt("192.0.2.1"), 0
	for i := range 3 * maxNetworks {
		m.allow(peerAt(net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)).String()))
		if i%1000 == 0 {
			m.allow(peer)
			events++
		}
	}
	if counted, _ := m.counts.Peek(peer[0]); counted.all != events {
		t.Errorf("%d of %d events are counted", counted.all, events)
	}
}

func TestEarlyTalkersAreRefused(t *testing.T) {
	s := start(t, func(o *Options) { o.GreetingDelay = patience })
	conn, err := net.Dial("tcp", s.adapter.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	w := &wire{t: t, conn: conn, in: &lineReader{conn: conn}}
	w.write("EHLO spam.test\r\n")
	w.expect("521 5.5.1")
	if !w.closed() {
		t.Error("the connection stays open")
	}
}

func TestPatientPeersAreGreeted(t *testing.T) {
	s := start(t, func(o *Options) { o.GreetingDelay = time.Millisecond })
	s.greet().send("a@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@plain.test"), "250")
}

func TestConnectionAndMailRates(t *testing.T) {
	now := time.Now() // it stands still: no machine is too slow for the minute
	s := start(t, func(o *Options) {
		o.ConnectionsPerMinute, o.MailsPerMinute, o.MailsPerConnection, o.Now = 2, 3, 2, func() time.Time { return now }
	})
	w := s.greet()
	w.say("MAIL FROM:<a@plain.test>", "250")
	w.say("RSET", "250")
	w.say("MAIL FROM:<a@plain.test>", "250")
	w.say("RSET", "250")
	w.say("MAIL FROM:<a@plain.test>", "421 4.7.0")
	w = s.greet()
	w.say("MAIL FROM:<a@plain.test>", "250")
	w.say("RSET", "250")
	w.say("MAIL FROM:<a@plain.test>", "452 4.7.0")
	conn, err := net.Dial("tcp", s.adapter.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	(&wire{t: t, conn: conn, in: &lineReader{conn: conn}}).expect("421 4.7.0")
}

func TestProvenMailsDoNotUseUpTheRates(t *testing.T) {
	now := time.Now()
	s := start(t, func(o *Options) {
		o.MailsPerMinute, o.MailsPerConnection, o.Now = 2, 2, func() time.Time { return now }
	})
	w := s.greet()
	for i := range 2 * maxCredit { // as many as the minute takes of proven ones
		w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("x", fmt.Sprintf("Message-ID: <p%d@sender.test>", i))), "250")
	}
	w.say("MAIL FROM:<ann@sender.test>", "452 4.7.0")
	if n := len(s.engine.All()); n != 2*maxCredit {
		t.Errorf("%d mails were received", n)
	}
}

func TestHarvestersCannotBeginAgain(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	for i := range maxRefused {
		w.say("EHLO client.sender.test", "250")
		w.say("MAIL FROM:<a@plain.test>", "250")
		want := "550 5.1.1"
		if i == maxRefused-1 {
			want = "421 4.7.0"
		}
		w.say("RCPT TO:<nobody@inbox.test>", want)
	}
}

func TestRefusalsAreSlow(t *testing.T) {
	s := start(t, func(o *Options) { o.RefusalDelay = time.Hour })
	w := s.greet()
	w.say("MAIL FROM:<a@plain.test>", "250")
	w.write("RCPT TO:<nobody@inbox.test>\r\n")
	s.adapter.server.listener.drain() // a stop does not wait for the hour
	if got := w.reply(); !strings.HasPrefix(got, "550 5.1.1") {
		t.Errorf("answer %q", got)
	}
}

// TestIdleSessionsHearOfAStop: they heard that they were idle for too long.
func TestIdleSessionsHearOfAStop(t *testing.T) {
	s := start(t, nil)
	idle, busy := s.greet(), s.greet()
	busy.say("MAIL FROM:<a@plain.test>", "250")
	s.adapter.server.listener.drain()
	if got := idle.reply(); !strings.HasPrefix(got, "421 4.3.2 ") || !strings.Contains(got, "shutting down") {
		t.Errorf("an idle session hears %q", got)
	}
	busy.say("RCPT TO:<echo@inbox.test>", "250") // its mail may end
	busy.say("RSET", "250")
	if got := busy.reply(); !strings.HasPrefix(got, "421 4.3.2 ") {
		t.Errorf("after its mail a session hears %q", got)
	}
}

// TestTricklingPeersAreCut measures in a clock of its own: a byte every two minutes is within every other deadline.
func TestTricklingPeersAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer func() { _ = theirs.Close() }()
		l := newLimitedListener(nil, "inbox.test", Options{MaxConnections: 1, MaxConnectionsPerIP: 1, ConnectionsPerMinute: 1, Now: time.Now})
		conn, _ := l.admit(ours)
		defer func() { _ = conn.Close() }()
		began := time.Now()
		conn.beginMail()
		conn.beginTransfer()
		var peer sync.WaitGroup
		peer.Go(func() {
			for {
				if _, err := theirs.Write([]byte("x")); err != nil {
					return
				}
				<-time.After(10 * time.Second)
			}
		})
		for {
			if _, err := conn.Read(make([]byte, 100)); err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("read: %v", err)
				}
				break
			}
		}
		if took := time.Since(began); took > transferGrace+time.Second {
			t.Errorf("it took %s", took)
		}
		_ = theirs.Close()
		peer.Wait()
	})
}

// A fast peer is not cut by the rate, however long it sends.
func TestSteadyPeersAreNotCut(t *testing.T) {
	c := &peerConn{}
	c.beginTransfer()
	c.taken = 1 << 20
	if left := time.Until(c.rateDeadline()); left < 30*time.Minute {
		t.Errorf("%s are left for a mail of 1 MiB", left)
	}
}

// TestStalledMailsOfOneAddress: who sends large mails and stops before their end takes its own share of the room, and leaves that
// of others, be it a stranger or the operator's own relay.
func TestStalledMailsOfOneAddress(t *testing.T) {
	const largest = 25 << 20
	options := Options{MaxMessageBytes: largest, MaxBufferedBytes: 256 << 20}
	server := &smtpServer{site: &site{options: options, log: slog.New(slog.DiscardHandler)}, buffered: memoryLimiter(options)}
	read := func(ip string, size int) (taken int64, err error) {
		here, there := net.Pipe()
		t.Cleanup(func() { _, _ = here.Close(), there.Close() })
		s := &session{server: server, peer: &peerConn{Conn: here}}
		_, taken, err = s.read(strings.NewReader(strings.Repeat("x", size)), envelope{ip: ip})
		return taken, err // as if the end did not come: nothing is given back
	}
	var held int64
	for range 10 {
		taken, _ := read("203.0.113.7", 17_000_000)
		held += taken
	}
	if most := int64(256 << 20 / 8); held > most {
		t.Errorf("one address holds %d bytes, want at most %d", held, most)
	}
	for _, ip := range []string{"198.51.100.7", "10.0.0.7"} {
		if taken, err := read(ip, largest); err != nil || taken > largest+1 {
			t.Errorf("the largest mail of %s takes %d bytes: %v", ip, taken, err)
		}
	}
	if _, err := read("192.0.2.7", largest+1); err == nil {
		t.Error("a mail over the limit is read")
	}
}

func TestFloodCostsBoundedMemory(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxBufferedBytes = 4 * readChunk; o.MaxMessageBytes = 1 << 20 })
	var open []*wire
	refused := 0
	for range 8 {
		w := s.greet()
		w.say("MAIL FROM:<a@plain.test>", "250")
		w.say("RCPT TO:<echo@inbox.test>", "250")
		w.say("DATA", "354")
		open = append(open, w)
	}
	mail := emailtest.Letter(strings.Repeat(strings.Repeat("y", 70)+"\n", 3*readChunk/71), "From: a@plain.test")
	for _, w := range open {
		w.write(mail) // without its end: the bytes stay in memory
	}
	for _, w := range open {
		w.write(".\r\n")
		if strings.HasPrefix(w.reply(), "452 4.3.1") {
			refused++
		}
		if used := s.adapter.server.buffered.Used(); used > 4*readChunk {
			t.Errorf("%d bytes are in memory", used)
		}
	}
	if refused == 0 {
		t.Error("nothing was put off")
	}
	if used := s.adapter.server.buffered.Used(); used != 0 {
		t.Errorf("%d bytes are not given back", used)
	}
}

// TestNestedPartsCostLittle sends what took another parser 41 seconds.
func TestNestedPartsCostLittle(t *testing.T) {
	s := start(t, nil)
	var mail strings.Builder
	mail.WriteString("From: a@plain.test\r\n")
	for range 20_000 {
		mail.WriteString("Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n")
	}
	began := time.Now()
	s.greet().send("a@plain.test", []string{"echo@inbox.test"}, mail.String()+"\r\n", "554 5.6.0")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	allocated := testing.AllocsPerRun(1, func() {
		walk := &message.Parser{}
		fields, body, _ := message.Split([]byte(mail.String()))
		_, _ = walk.Parse(fields, body, 0)
	})
	if allocated > 200_000 {
		t.Errorf("%.0f allocations for a mail that is refused", allocated)
	}
}
