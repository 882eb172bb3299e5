package outbound

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/emailtest"
	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/internal/await"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
)

// policyDesk plays the web servers of other domains.
type policyDesk struct {
	mu      sync.Mutex
	texts   map[string]string
	fetches int
}

func (p *policyDesk) FetchPolicy(_ context.Context, domain string, _ int64) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetches++
	text, found := p.texts[domain]
	if !found {
		return nil, errors.New("no such file")
	}
	return []byte(text), nil
}

func (p *policyDesk) publish(domain, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.texts[domain] = text
}

// portMap dials names of the test network: address:port of a mail server to where it really listens.
type portMap struct {
	mu     sync.Mutex
	real   map[string]string
	dialed []string
}

func (m *portMap) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	m.mu.Lock()
	m.dialed = append(m.dialed, address)
	listener, found := m.real[address]
	m.mu.Unlock()
	if !found {
		return nil, fmt.Errorf("nobody listens at %s", address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, listener)
}

func (m *portMap) calls() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.dialed)
}

// world is a transport with a network of its own.
type world struct {
	*Direct
	t     *testing.T
	names *emailtest.NameServer
	net   *portMap
	desk  *policyDesk
}

func newWorld(t *testing.T, change func(*DirectOptions)) *world {
	t.Helper()
	w := &world{t: t, names: emailtest.StartNames(t), net: &portMap{real: map[string]string{}}, desk: &policyDesk{texts: map[string]string{}}}
	o := DirectOptions{
		Domain: "inbox.test", Hostname: "mx.inbox.test", Port: 25, Dialer: w.net, Resolver: dns.New(safehttp.NewResolver(w.names.Address)),
		Policies: w.desk, State: exchangetest.NewDocuments(), Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	transport, err := NewDirect(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(transport.Close)
	w.Direct = transport
	return w
}

// host makes a name with an address, behind which the sink listens.
func (w *world) host(name, ip string, k *emailtest.Sink) {
	w.names.Host(name, ip)
	if k != nil {
		w.net.mu.Lock()
		defer w.net.mu.Unlock()
		w.net.real[net.JoinHostPort(ip, "25")] = k.Address
	}
}

// try offers one mail to ann@sender.test and returns what the operator reads.
func (w *world) try() (string, error) {
	w.t.Helper()
	result, err := w.Send(w.t.Context(), letterTo("ann@sender.test"))
	return result.Detail(), err
}

// letterTo returns a finished mail.
func letterTo(address string) Mail {
	_, domain, _ := strings.Cut(address, "@")
	return Mail{From: "echo@inbox.test", Recipients: []string{address}, Domain: domain, Data: []byte("From: echo@inbox.test\r\nSubject: x\r\n\r\nText\r\n")}
}

func TestMXDelivers(t *testing.T) {
	certificate, _ := emailtest.SelfSigned(t)
	w := newWorld(t, nil)
	k := emailtest.StartSink(t, false, &tls.Config{Certificates: []tls.Certificate{certificate}}, "")
	w.names.MX("sender.test", "10 mail.sender.test")
	w.host("mail.sender.test", "192.0.2.10", k)
	for range maxPerMX + 1 {
		detail, err := w.try()
		if err != nil || !strings.HasPrefix(detail, "mail.sender.test[192.0.2.10] TLS 1.3: 2.0.0 OK") {
			t.Fatalf("%q, %v", detail, err)
		}
	}
	sessions, _, mails := k.Counts()
	if mails != maxPerMX+1 || sessions < 2 || len(w.net.calls()) != 2 {
		t.Errorf("%d mails over %d sessions and %d connections; want a connection to be used %d times", mails, sessions, len(w.net.calls()), maxPerMX)
	}
}

func TestMXRules(t *testing.T) {
	for name, c := range map[string]struct {
		records   func(w *world, up, down *emailtest.Sink)
		want      string // part of the receipt or of the reason
		permanent bool
		retry     bool
	}{
		"lowest preference first": {func(w *world, up, down *emailtest.Sink) {
			w.names.MX("sender.test", "20 b.test", "10 a.test")
			w.host("a.test", "192.0.2.1", up)
			w.host("b.test", "192.0.2.2", down)
		}, "a.test[192.0.2.1]", false, false},
		"the next one when the first is down": {func(w *world, up, _ *emailtest.Sink) {
			w.names.MX("sender.test", "10 a.test", "20 b.test")
			w.host("a.test", "192.0.2.1", nil)
			w.host("b.test", "192.0.2.2", up)
		}, "b.test[192.0.2.2]", false, false},
		"the next one when the first says 421": {func(w *world, up, down *emailtest.Sink) {
			down.Set(func(step, _ string) error {
				if step == "mail" {
					return &smtp.SMTPError{Code: 421, EnhancedCode: smtp.EnhancedCode{4, 3, 2}, Message: "closing"}
				}
				return nil
			})
			w.names.MX("sender.test", "10 a.test", "20 b.test")
			w.host("a.test", "192.0.2.1", down)
			w.host("b.test", "192.0.2.2", up)
		}, "b.test[192.0.2.2]", false, false},
		"no MX: the domain itself": {func(w *world, up, _ *emailtest.Sink) { w.host("sender.test", "192.0.2.1", up) }, "sender.test[192.0.2.1]", false, false},
		"null MX":                  {func(w *world, _, _ *emailtest.Sink) { w.names.MX("sender.test", "0 .") }, "5.1.10", true, false},
		"no such domain":           {func(*world, *emailtest.Sink, *emailtest.Sink) {}, "5.1.2", true, false},
		"DNS is broken":            {func(w *world, _, _ *emailtest.Sink) { w.names.BreakMX("sender.test") }, "4.4.3", false, true},
		"hosts without addresses":  {func(w *world, _, _ *emailtest.Sink) { w.names.MX("sender.test", "10 a.test") }, "4.4.4", false, true},
		"we are the MX":            {func(w *world, _, _ *emailtest.Sink) { w.names.MX("sender.test", "10 mx.inbox.test") }, "5.4.6", true, false},
		"what stands behind us is left out": {func(w *world, up, down *emailtest.Sink) {
			w.names.MX("sender.test", "5 a.test", "10 mx.inbox.test", "10 b.test", "20 c.test")
			w.host("a.test", "192.0.2.1", nil)
			w.host("b.test", "192.0.2.2", up)
			w.host("c.test", "192.0.2.3", down)
		}, "nobody listens at 192.0.2.1:25", false, true},
		"addresses as MX are no names": {func(w *world, up, _ *emailtest.Sink) {
			w.names.MX("sender.test", "5 192.0.2.9", "10 a.test")
			w.host("a.test", "192.0.2.1", up)
		}, "a.test[192.0.2.1]", false, false},
		"SERVFAIL for one host, another works": {func(w *world, up, _ *emailtest.Sink) {
			w.names.MX("sender.test", "5 broken.test", "10 a.test")
			w.names.Break("broken.test")
			w.host("a.test", "192.0.2.1", up)
		}, "a.test[192.0.2.1]", false, false},
		"a refusal is told once": {func(w *world, up, _ *emailtest.Sink) {
			up.Set(func(step, _ string) error {
				if step == "rcpt" {
					return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "Access denied"}
				}
				return nil
			})
			w.names.MX("sender.test", "10 a.test")
			w.host("a.test", "192.0.2.1", up)
		}, "sender.test: 554 5.7.1 Access denied", true, false},
		"everybody is down": {func(w *world, _, _ *emailtest.Sink) {
			w.names.MX("sender.test", "5 a.test")
			w.host("a.test", "192.0.2.1", nil)
		}, "connect to a.test[192.0.2.1]", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c.records(w, emailtest.StartSink(t, false, nil, ""), emailtest.StartSink(t, false, nil, ""))
			detail, err := w.try()
			text := detail
			if err != nil {
				if text = fault.Of(err).Public; err.Error() != text { // which the operator reads
					t.Errorf("the reason %q is told as %q", text, err.Error())
				}
			}
			if (err != nil) != (c.permanent || c.retry) || err != nil && fault.Of(err).Permanent != c.permanent || !strings.Contains(text, c.want) {
				t.Errorf("%q, %v; want %q", text, err, c.want)
			}
		})
	}
}

// TestNeighboursAreReached: mail for another domain of this server goes over the network, although its MX record names this server. Mail
// for our own domain would loop.
func TestNeighboursAreReached(t *testing.T) {
	k := emailtest.StartSinkWith(t, false, nil, "", func(s *smtp.Server) { s.Domain = "mx.inbox.test" })
	w := newWorld(t, func(o *DirectOptions) {
		o.Neighbour = func(domain string) bool { return domain == "sender.test" || domain == "inbox.test" }
		o.Own = func() net.Addr { return &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 25} }
	})
	w.names.MX("sender.test", "10 mx.inbox.test")
	w.names.MX("inbox.test", "10 mx.inbox.test")
	w.host("mx.inbox.test", "192.0.2.1", k)
	if detail, err := w.try(); err != nil || !strings.HasPrefix(detail, "mx.inbox.test[192.0.2.1]") {
		t.Errorf("%q, %v", detail, err)
	}
	if _, err := w.Send(t.Context(), letterTo("echo@inbox.test")); err == nil || !strings.Contains(fault.Of(err).Public, "5.4.6") {
		t.Errorf("mail for our own domain: %v", err)
	}
}

func TestEqualPreferencesAreMixed(t *testing.T) {
	m := &Direct{hello: "mx.inbox.test", domain: "inbox.test"}
	first := map[string]int{}
	for range 200 {
		hosts, err := m.inOrder("x.test", []*net.MX{{Host: "a.", Pref: 10}, {Host: "b.", Pref: 10}, {Host: "c.", Pref: 20}})
		if err != nil || len(hosts) != 3 || hosts[2] != "c" {
			t.Fatalf("%v, %v", hosts, err)
		}
		first[hosts[0]]++
	}
	if first["a"] < 20 || first["b"] < 20 {
		t.Errorf("not mixed: %v", first)
	}
}

func TestAtMostFiveAddressesAndTwoSessions(t *testing.T) {
	w := newWorld(t, nil)
	k := emailtest.StartSink(t, false, nil, "")
	k.Set(func(string, string) error {
		return &smtp.SMTPError{Code: 421, EnhancedCode: smtp.EnhancedCode{4, 3, 2}, Message: "busy"}
	})
	var targets []string
	for i := range 9 {
		targets = append(targets, fmt.Sprintf("%d m%d.test", i, i))
		w.host(fmt.Sprintf("m%d.test", i), fmt.Sprintf("192.0.2.%d", i+1), nil)
	}
	w.names.MX("sender.test", targets...)
	if _, err := w.try(); err == nil || len(w.net.calls()) != maxTargets {
		t.Errorf("%v after %v", err, w.net.calls())
	}
	for i := range 9 {
		w.host(fmt.Sprintf("m%d.test", i), fmt.Sprintf("192.0.2.%d", i+1), k)
	}
	before := len(w.net.calls())
	if _, err := w.try(); err == nil || len(w.net.calls())-before != maxSessions {
		t.Errorf("%v after %v", err, w.net.calls()[before:])
	}
}

func TestPrivateServersAreNotReached(t *testing.T) {
	w := newWorld(t, func(o *DirectOptions) { o.Dialer = safehttp.New(safehttp.Options{}) })
	w.names.MX("sender.test", "10 a.test", "20 b.test")
	w.host("a.test", "127.0.0.1", nil)
	w.host("b.test", "10.1.2.3", nil)
	if _, err := w.try(); !fault.Of(err).Permanent || !strings.Contains(fault.Of(err).Public, "no public addresses") {
		t.Errorf("%v", err)
	}
}

func TestBrokenTLSGoesOnInTheClear(t *testing.T) {
	w := newWorld(t, nil)
	broken := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errors.New("lost") }}
	k := emailtest.StartSink(t, false, broken, "")
	w.host("sender.test", "192.0.2.1", k)
	detail, err := w.try()
	if err != nil || !strings.Contains(detail, "without TLS") {
		t.Errorf("%q, %v", detail, err)
	}
	if calls := w.net.calls(); len(calls) != 2 {
		t.Errorf("%d connections", len(calls))
	}
}

const enforced = "version: STSv1\nmode: enforce\nmx: mail.test\nmx: *.good.test\nmax_age: 86400\n"

func TestMTASTS(t *testing.T) {
	certificate, pool := emailtest.SelfSigned(t) // for 127.0.0.1 and the names of the test
	for name, c := range map[string]struct {
		policy, host string
		tls, trusted bool
		want         string // part of the reason; empty = delivered
	}{
		"enforce, all well":            {enforced, "mail.test", true, true, ""},
		"enforce, a name of the wild":  {enforced, "a.good.test", true, true, ""},
		"enforce, unknown certificate": {enforced, "mail.test", true, false, "certificate"},
		"enforce, no TLS":              {enforced, "mail.test", false, true, "no STARTTLS"},
		"enforce, another server":      {enforced, "evil.test", true, true, "4.7.10"},
		"enforce, two labels deep":     {enforced, "a.b.good.test", true, true, "4.7.10"},
		"testing, nothing fits":        {strings.Replace(enforced, "enforce", "testing", 1), "evil.test", false, false, ""},
		"none":                         {"version: STSv1\nmode: none\nmax_age: 86400\n", "evil.test", false, false, ""},
		"a file that cannot be read":   {"mode: enforce", "evil.test", false, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(o *DirectOptions) {
				o.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
				if c.trusted {
					o.TLS.RootCAs = pool
				}
			})
			var config *tls.Config
			if c.tls {
				config = &tls.Config{Certificates: []tls.Certificate{certificate}}
			}
			k := emailtest.StartSink(t, false, config, "")
			w.names.Text("_mta-sts.sender.test", "v=STSv1; id=1")
			w.desk.publish("sender.test", c.policy)
			w.names.MX("sender.test", "10 "+c.host)
			w.host(c.host, "192.0.2.1", k)
			_, err := w.try()
			_, _, mails := k.Counts()
			if c.want == "" {
				if err != nil || mails != 1 {
					t.Errorf("%v", err)
				}
				return
			}
			if err == nil || fault.Of(err).Permanent || !strings.Contains(fault.Of(err).Public, c.want) || mails != 0 {
				t.Errorf("%v with %d mails; want %q, to be repeated", err, mails, c.want)
			}
		})
	}
}

func TestPoliciesAreKept(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	names, state, desk := emailtest.StartNames(t), exchangetest.NewDocuments(), &policyDesk{texts: map[string]string{}}
	open := func() *policyCache { // as after a restart, with nothing in memory
		return newPolicyCache(dns.New(safehttp.NewResolver(names.Address)), state, desk, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	}
	desk.publish("x.test", enforced)
	if got := open().find(t.Context(), "x.test"); got.mode != "" || desk.fetches != 0 {
		t.Errorf("without a record: %+v", got)
	}
	names.Text("_mta-sts.x.test", "v=STSv1; id=one;")
	for range 2 {
		if got := open().find(t.Context(), "x.test"); !got.enforced() || desk.fetches != 1 {
			t.Errorf("%+v after %d fetches", got, desk.fetches)
		}
	}
	names.Text("_mta-sts.x.test", "v=STSv1; id=two")
	delete(desk.texts, "x.test")
	policies := open()
	for range 2 {
		if got := policies.find(t.Context(), "x.test"); !got.enforced() || desk.fetches != 2 {
			t.Errorf("a fetch that fails: %+v after %d fetches", got, desk.fetches)
		}
	}
	names.Text("_mta-sts.x.test")
	if got := open().find(t.Context(), "x.test"); !got.enforced() {
		t.Error("whoever hides the record takes the policy away")
	}
	now = now.Add(25 * time.Hour)
	if got := open().find(t.Context(), "x.test"); got.enforced() {
		t.Error("a policy outlives its max_age")
	}
}

func TestPolicyIsAskedForAgainWhenNoServerFits(t *testing.T) {
	w := newWorld(t, nil)
	k := emailtest.StartSink(t, false, nil, "")
	w.names.Text("_mta-sts.sender.test", "v=STSv1; id=1")
	w.desk.publish("sender.test", enforced)
	w.names.MX("sender.test", "10 moved.test")
	w.host("moved.test", "192.0.2.1", k)
	if _, err := w.try(); err == nil {
		t.Fatal("delivered")
	}
	w.desk.publish("sender.test", "version: STSv1\nmode: testing\nmx: moved.test\nmax_age: 86400\n") // without a new id
	if _, err := w.try(); err != nil {
		t.Errorf("%v", err)
	}
}

func TestHostileServers(t *testing.T) {
	for name, c := range map[string]struct{ talk, want string }{
		"never ends its greeting": {"220-x\r\n", "more than an answer can hold"},
		"never ends EHLO":         {"", "more than an answer can hold"},
		"is ourselves":            {"220 mx.inbox.test ESMTP\r\n", "5.4.6"},
		"says garbage":            {"hello\r\n", "hello"},
		"refuses everybody":       {"554 no\r\n", "554"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer func() { _ = conn.Close() }()
				if c.talk == "" {
					_, _ = conn.Write([]byte("220 x.test\r\n"))
					_, _ = conn.Read(make([]byte, 512))
				} else {
					_, _ = conn.Write([]byte(c.talk))
				}
				for strings.Contains(name, "never ends") {
					if _, err := conn.Write([]byte(strings.Repeat("250-more and more\r\n", 100))); err != nil {
						return
					}
				}
				_, _ = conn.Read(make([]byte, 512))
			}()
			w.names.Host("sender.test", "192.0.2.1")
			w.net.real["192.0.2.1:25"] = listener.Addr().String()
			_, err = w.try()
			if err == nil || !strings.Contains(fault.Of(err).Public, c.want) {
				t.Errorf("%v", err)
			}
			_ = listener.Close()
			await.Receive(t, done, "the end of the session")
		})
	}
}

func TestRefusalsByPolicyStopADomain(t *testing.T) {
	now := time.Now()
	w := newWorld(t, func(o *DirectOptions) { o.Now = func() time.Time { return now } })
	k := emailtest.StartSink(t, false, nil, "")
	k.Set(func(step, _ string) error {
		if step == "data" {
			return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 7, 26}, Message: "unauthenticated"}
		}
		return nil
	})
	w.host("sender.test", "192.0.2.1", k)
	for range 2 * refusalLimit { // one recipient who refuses us stops no one else
		if _, err := w.try(); !fault.Of(err).Permanent {
			t.Fatal(err)
		}
	}
	for i := range refusalLimit - 1 {
		if _, err := w.Send(t.Context(), letterTo(fmt.Sprintf("other%d@sender.test", i))); !fault.Of(err).Permanent {
			t.Fatal(err)
		}
	}
	_, err := w.try()
	if found := fault.Of(err); found.Permanent || found.RetryAfter < 59*time.Minute {
		t.Errorf("%v in %s", err, found.RetryAfter)
	}
	k.Set(nil)
	now = now.Add(refusalPause + time.Second)
	if _, err := w.try(); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

func TestLimitsOfDomainsGrow(t *testing.T) {
	l := newDomainLimits()
	failed := errors.New("no session")
	enter := func() (func(error), bool) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		leave, err := l.acquire(ctx, "x.test")
		return leave, err == nil
	}
	for range 3 * growAfter * mostSessions {
		leave, ok := enter()
		if !ok {
			t.Fatal("no way in")
		}
		leave(nil)
		if leave, ok = enter(); ok {
			leave(exchange.WithReach(failed, exchange.ReachRecipient)) // says nothing about the domain
		}
	}
	var leaves []func(error)
	for {
		leave, ok := enter()
		if !ok {
			break
		}
		leaves = append(leaves, leave)
	}
	if len(leaves) != mostSessions {
		t.Errorf("%d sessions at once", len(leaves))
	}
	for _, leave := range leaves {
		leave(failed)
	}
	first, _ := enter()
	second, _ := enter()
	if _, ok := enter(); ok {
		t.Error("a domain that fails keeps its sessions")
	}
	first(nil)
	second(nil)
}

// scripted is a mail server that answers a command, named by its first word, with a line of its own; "" = it cuts the connection.
func scripted(t *testing.T, greeting string, answers map[string]string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { converse(conn, greeting, answers) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); await.Done(t, serving.Wait, "the end of its sessions") })
	return listener.Addr().String()
}

func converse(conn net.Conn, greeting string, answers map[string]string) {
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "%s\r\n", greeting); err != nil {
		return
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		word, _, _ := strings.Cut(strings.ToUpper(lines.Text()), " ")
		answer, known := answers[word]
		switch {
		case known && answer == "":
			return
		case !known && word == "DATA":
			answer = "354 go on"
		case !known:
			answer = "250 fine"
		}
		if _, err := fmt.Fprintf(conn, "%s\r\n", answer); err != nil || word == "QUIT" || strings.HasPrefix(answer, "421") {
			return
		}
		if word == "DATA" && strings.HasPrefix(answer, "354") {
			for lines.Scan() && lines.Text() != "." {
			}
			final, known := answers["."]
			if known && final == "" {
				return
			}
			_, _ = fmt.Fprintf(conn, "%s\r\n", cmp.Or(final, "250 taken"))
		}
	}
}

// TestReachOfAFailure: what the server answered for a recipient or a mail is not the host's; a session that broke off may be of either; all
// before it, 421 and 4xx to MAIL are the host's.
func TestReachOfAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		greeting string
		answers  map[string]string
		want     exchange.Reach
	}{
		"a full mailbox":                   {answers: map[string]string{"RCPT": "452 4.2.2 mailbox full"}, want: exchange.ReachRecipient},
		"greylisting":                      {answers: map[string]string{"RCPT": "451 4.7.1 greylisted"}, want: exchange.ReachRecipient},
		"a mailbox that is busy":           {answers: map[string]string{"RCPT": "450 4.2.0 busy"}, want: exchange.ReachRecipient},
		"over quota":                       {answers: map[string]string{"RCPT": "552 5.2.2 over quota"}, want: exchange.ReachRecipient},
		"no such mailbox":                  {answers: map[string]string{"RCPT": "550 5.1.1 no one"}, want: exchange.ReachRecipient},
		"content that is put off":          {answers: map[string]string{".": "451 4.7.1 later"}, want: exchange.ReachRecipient},
		"a mail that is put off":           {answers: map[string]string{"DATA": "451 4.3.0 later"}, want: exchange.ReachRecipient},
		"cut at a recipient":               {answers: map[string]string{"RCPT": ""}, want: exchange.ReachSession},
		"cut after the content":            {answers: map[string]string{".": ""}, want: exchange.ReachSession},
		"closing at a recipient":           {answers: map[string]string{"RCPT": "421 4.3.2 shutting down"}, want: exchange.ReachNone},
		"closing after the content":        {answers: map[string]string{".": "421 4.3.2 shutting down"}, want: exchange.ReachNone},
		"a sender that is put off":         {answers: map[string]string{"MAIL": "451 4.3.0 later"}, want: exchange.ReachNone},
		"cut at the sender":                {answers: map[string]string{"MAIL": ""}, want: exchange.ReachNone},
		"a greeting that puts off":         {greeting: "421 4.3.2 too busy", want: exchange.ReachNone},
		"a greeting that refuses":          {greeting: "554 5.3.2 no service here", want: exchange.ReachNone},
		"no EHLO":                          {answers: map[string]string{"EHLO": "", "HELO": ""}, want: exchange.ReachNone},
		"TLS that fails, and then no more": {answers: map[string]string{"EHLO": "250-x\r\n250 STARTTLS", "STARTTLS": "454 4.7.0 no TLS", "MAIL": "451 4.3.0 later"}, want: exchange.ReachNone},
	} {
		for _, backup := range []bool{false, true} {
			t.Run(fmt.Sprint(name, "/backup ", backup), func(t *testing.T) {
				w := newWorld(t, nil)
				w.host("mail.sender.test", "192.0.2.1", nil)
				w.net.real["192.0.2.1:25"] = scripted(t, cmp.Or(c.greeting, "220 mail.sender.test"), c.answers)
				w.names.MX("sender.test", "10 mail.sender.test")
				if backup { // which no one can connect to
					w.names.MX("sender.test", "10 mail.sender.test", "20 backup.sender.test")
					w.host("backup.sender.test", "192.0.2.2", nil)
				}
				if _, err := w.try(); err == nil || exchange.ReachOf(err) != c.want {
					t.Errorf("reach %d, want %d: %v", exchange.ReachOf(err), c.want, err)
				}
			})
		}
	}

	t.Run("no one listens", func(t *testing.T) {
		w := newWorld(t, nil)
		w.host("sender.test", "192.0.2.1", nil)
		if _, err := w.try(); err == nil || exchange.ReachOf(err) != exchange.ReachNone {
			t.Errorf("reach %d: %v", exchange.ReachOf(err), err)
		}
	})
}

// TestSessionsStayBoundedAmongManyDomains: mail to many other domains does not make the limit of a domain in use forgotten.
func TestSessionsStayBoundedAmongManyDomains(t *testing.T) {
	l := newDomainLimits()
	acquire := func(domain string) func(error) {
		t.Helper()
		leave, err := l.acquire(t.Context(), domain)
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	var leaves []func(error)
	for range startingSessions {
		leaves = append(leaves, acquire("slow.test"))
	}
	for i := range maxDomains + 1 {
		acquire(fmt.Sprintf("%d.test", i))(nil)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.acquire(ended, "slow.test"); err == nil {
		t.Errorf("slow.test has more than %d sessions", startingSessions)
	}
	for _, leave := range leaves {
		leave(nil)
	}
	acquire("slow.test")(nil)
	if len(l.active) != 0 || l.known.Len() != maxDomains {
		t.Errorf("%d domains are active and %d known; want 0 and %d", len(l.active), l.known.Len(), maxDomains)
	}
}
