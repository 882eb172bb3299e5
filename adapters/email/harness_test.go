package email

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/await"
	"inbox/internal/blob"
	"inbox/internal/fault"
	"inbox/internal/safehttp"
	"inbox/normalized"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what must come; machines may be slow.
const patience = await.Patience

// senderKey signs the mails of the domain sender.test.
var senderKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// nameServer is a real DNS server with records that a test may change.
type nameServer struct {
	mu        sync.Mutex
	texts     map[string][]string // name with final dot
	hosts     map[string]string
	pointers  map[string]string
	exchanges map[string][]*dns.MX
	broken    map[string]bool // SERVFAIL
	brokenMX  map[string]bool
	tlsa      map[string][]*dns.TLSA
	validates bool            // it says that DNSSEC proves its answers
	unsigned  map[string]bool // names whose answers are not proven
	asked     map[string]int
	address   string
	ttl       uint32          // of texts
	negative  *uint32         // how long nothing holds; nil = it is not said
	empty     map[string]bool // names without records that have others below them
}

func startNames(t testing.TB) *nameServer {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nameServer{texts: map[string][]string{}, hosts: map[string]string{}, broken: map[string]bool{}, asked: map[string]int{}, address: packets.LocalAddr().String(), ttl: 60}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(n.answer), NotifyStartedFunc: func() { close(started) }}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ActivateAndServe() }()
	await.Receive(t, started, "the name server to start")
	t.Cleanup(func() { _ = server.Shutdown(); await.Receive(t, done, "the end of the name server") })
	name, value := DNSRecord("sender.test", "s1", senderKey())
	n.text(name, value)
	n.text("_dmarc.sender.test", "v=DMARC1; p=reject")
	n.text("sender.test", "v=spf1 ip4:192.0.2.1 -all")
	return n
}

func (n *nameServer) text(name string, values ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.texts[dns.Fqdn(name)] = values
}

// with changes what is answered.
func (n *nameServer) with(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *nameServer) breakName(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken[dns.Fqdn(name)] = true
}

// pointer names an address; an empty name takes it back.
func (n *nameServer) pointer(ip, name string) {
	reverse, err := dns.ReverseAddr(ip)
	if err != nil {
		panic(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pointers == nil {
		n.pointers = map[string]string{}
	}
	n.pointers[reverse] = name
}

// drop forgets the texts and addresses of a name.
func (n *nameServer) drop(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.texts, dns.Fqdn(name))
	delete(n.hosts, dns.Fqdn(name))
}

func (n *nameServer) breakMX(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.brokenMX = map[string]bool{dns.Fqdn(name): true}
}

func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (n *nameServer) answer(w dns.ResponseWriter, question *dns.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	reply := new(dns.Msg).SetReply(question)
	reply.Authoritative = true
	name, kind := strings.ToLower(question.Question[0].Name), question.Question[0].Qtype
	n.asked[name]++
	_, known := n.hosts[name]
	texts, ok := n.texts[name]
	reply.AuthenticatedData = n.validates && question.AuthenticatedData && !n.unsigned[name]
	switch {
	case kind == dns.TypeTLSA && !n.broken[name] && len(n.tlsa[name]) > 0:
		for _, record := range n.tlsa[name] {
			reply.Answer = append(reply.Answer, record)
		}
	case n.broken[name]:
		reply.Rcode = dns.RcodeServerFailure
	case kind == dns.TypePTR && n.pointers[name] != "":
		reply.Answer = append(reply.Answer, &dns.PTR{Hdr: dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: 60}, Ptr: dns.Fqdn(n.pointers[name])})
	case kind == dns.TypeMX && n.brokenMX[name]:
		reply.Rcode = dns.RcodeServerFailure
	case kind == dns.TypeMX && len(n.exchanges[name]) > 0:
		for _, record := range n.exchanges[name] {
			reply.Answer = append(reply.Answer, record)
		}
	case kind == dns.TypeTXT && ok:
		for _, text := range texts {
			reply.Answer = append(reply.Answer, &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: n.ttl}, Txt: chunks(text)})
		}
	case kind == dns.TypeA && known:
		reply.Answer = append(reply.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(n.hosts[name])})
	case !ok && !known && len(n.exchanges[name]) == 0 && !n.empty[name]:
		reply.Rcode = dns.RcodeNameError
	}
	if n.negative != nil && len(reply.Answer) == 0 {
		reply.Ns = append(reply.Ns, &dns.SOA{Hdr: dns.RR_Header{Name: "test.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: *n.negative}, Ns: "ns.test.", Mbox: "a.test.", Minttl: *n.negative})
	}
	_ = w.WriteMsg(reply)
}

func chunks(text string) []string {
	var parts []string
	for len(text) > 255 {
		parts, text = append(parts, text[:255]), text[255:]
	}
	return append(parts, text)
}

// memoryState keeps documents in order of their keys.
type memoryState struct {
	mu   sync.Mutex
	docs map[string][]byte
}

func newState() *memoryState { return &memoryState{docs: map[string][]byte{}} }

func (s *memoryState) Get(_ context.Context, namespace, key string) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.docs[namespace+"\x00"+key]
	return value, ok, nil
}

func (s *memoryState) Put(_ context.Context, namespace, key string, value []byte, _ time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.docs[namespace+"\x00"+key] = value
	return nil
}

func (s *memoryState) PutIfAbsent(_ context.Context, namespace, key string, value []byte, _ time.Time) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if current, ok := s.docs[namespace+"\x00"+key]; ok {
		return current, false, nil
	}
	s.docs[namespace+"\x00"+key] = value
	return value, true, nil
}

func (s *memoryState) Delete(_ context.Context, namespace, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.docs, namespace+"\x00"+key)
	return nil
}

func (s *memoryState) List(_ context.Context, namespace, after string, limit int) (keys []string, values [][]byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.docs)) {
		key, ok := strings.CutPrefix(name, namespace+"\x00")
		if ok && key > after && len(keys) < limit {
			keys, values = append(keys, key), append(values, s.docs[name])
		}
	}
	return keys, values, nil
}

func (s *memoryState) Count(_ context.Context, namespace string) (int64, error) {
	keys, _, err := s.List(context.Background(), namespace, "", 1<<30)
	return int64(len(keys)), err
}

// engine records what is received and gives it back by id, as the store would.
type engine struct {
	mu       sync.Mutex
	received []exchange.Inbound
	fail     func(exchange.Inbound) error
	replies  map[string]int // native id of a reply → index of its question
}

func (e *engine) Receive(_ context.Context, in exchange.Inbound) (exchange.Receipt, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		if err := e.fail(in); err != nil {
			return exchange.Receipt{}, err
		}
	}
	if err := normalized.Validate(in.Message, normalized.DefaultLimits()); err != nil {
		return exchange.Receipt{}, err
	}
	for _, known := range e.received {
		if known.Message.ID == in.Message.ID && known.Message.Recipient == in.Message.Recipient && known.Message.Sender.Principal() == in.Message.Sender.Principal() {
			return exchange.Receipt{}, nil
		}
	}
	e.received = append(e.received, in)
	return exchange.Receipt{New: true}, nil
}

func (e *engine) FindMessage(_ context.Context, agent, id string) (exchange.ThreadEntry, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, in := range e.received {
		question, replied := e.replies[id]
		if strings.HasPrefix(in.Message.Recipient, "@"+agent+"@") && (in.Message.ID == id || (replied && question == i)) {
			return exchange.ThreadEntry{ThreadID: in.Message.ThreadID, Message: in.Message, Route: in.Route}, true, nil
		}
	}
	return exchange.ThreadEntry{}, false, nil
}

func (e *engine) Agent(name string) (exchange.AgentProfile, bool) {
	for _, known := range []string{"echo", "helper"} {
		if strings.EqualFold(known, name) {
			return exchange.AgentProfile{Name: known, Address: "@" + known + "@inbox.test", DisplayName: "Echo, the agent"}, true
		}
	}
	return exchange.AgentProfile{}, false
}

func (e *engine) all() []exchange.Inbound {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.received)
}

func (e *engine) only(t testing.TB) exchange.Inbound {
	t.Helper()
	all := e.all()
	if len(all) != 1 {
		t.Fatalf("%d messages were received; want 1", len(all))
	}
	return all[0]
}

// setup is one adapter with everything that it needs.
type setup struct {
	t       testing.TB
	names   *nameServer
	engine  *engine
	state   *memoryState
	adapter *Adapter
	stop    func()
}

var ourKey = sync.OnceValue(func() *memoryState {
	state := newState()
	if _, err := LoadKey(state, ""); err != nil {
		panic(err)
	}
	return state
})

// start runs an adapter. change may alter the options.
func start(t testing.TB, change func(*Options)) *setup {
	t.Helper()
	s := &setup{t: t, names: startNames(t), engine: &engine{replies: map[string]int{}}, state: newState()}
	maps.Copy(s.state.docs, ourKey().docs) // making a key takes long
	blobs, err := blob.OpenFiles(t.TempDir(), blob.Options{})
	if err != nil {
		t.Fatal(err)
	}
	options := Options{
		Domain: "inbox.test", Hostname: "mx.inbox.test", Listen: "127.0.0.1:0", Receiver: s.engine, Agents: s.engine, Threads: s.engine,
		State: s.state, Blobs: blobs, Resolver: safehttp.NewResolver(s.names.address), Logger: slog.New(slog.DiscardHandler),
		Dialer: &net.Dialer{}, ShutdownTimeout: patience,
		ConnectionsPerMinute: 10_000, MailsPerMinute: 10_000, MailsPerConnection: 10_000, GreetingDelay: -1, RefusalDelay: time.Nanosecond,
	}
	if change != nil {
		change(&options)
	}
	if s.adapter, err = New(options); err != nil {
		t.Fatal(err)
	}
	if err := s.adapter.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.adapter.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		select { // also called beside the test, where nothing may end it
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Errorf("waited %s for the end of the adapter", patience)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// wire is a peer that speaks literal SMTP lines.
type wire struct {
	t    testing.TB
	conn net.Conn
	in   *lineReader
}

type lineReader struct {
	conn net.Conn
	rest []byte
}

func (r *lineReader) line() (string, error) {
	for {
		if i := bytes.IndexByte(r.rest, '\n'); i >= 0 {
			line := strings.TrimRight(string(r.rest[:i]), "\r")
			r.rest = r.rest[i+1:]
			return line, nil
		}
		buffer := make([]byte, 4096)
		n, err := r.conn.Read(buffer)
		r.rest = append(r.rest, buffer[:n]...)
		if err != nil && n == 0 {
			return "", err
		}
	}
}

func (s *setup) dial() *wire {
	s.t.Helper()
	w := s.dialAny()
	w.expect("220")
	return w
}

// dialAny connects without expecting the greeting.
func (s *setup) dialAny() *wire {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.adapter.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &wire{t: s.t, conn: conn, in: &lineReader{conn: conn}}
}

// greet dials and says EHLO.
func (s *setup) greet() *wire {
	w := s.dial()
	w.say("EHLO client.sender.test", "250")
	return w
}

// reply reads one answer, all of its lines.
func (w *wire) reply() string {
	w.t.Helper()
	var lines []string
	for {
		line, err := w.in.line()
		if err != nil {
			w.t.Fatalf("read answer: %v after %q", err, lines)
		}
		lines = append(lines, line)
		if len(line) < 4 || line[3] != '-' {
			return strings.Join(lines, "\n")
		}
	}
}

func (w *wire) expect(prefix string) string {
	w.t.Helper()
	got := w.reply()
	if !strings.HasPrefix(got, prefix) {
		w.t.Fatalf("answer %q; want %s", got, prefix)
	}
	return got
}

func (w *wire) write(text string) {
	w.t.Helper()
	if _, err := w.conn.Write([]byte(text)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) say(line, want string) string {
	w.t.Helper()
	w.write(line + "\r\n")
	return w.expect(want)
}

// send brings one mail and expects the answer to the final dot.
func (w *wire) send(from string, to []string, mail, want string) string {
	w.t.Helper()
	w.say("MAIL FROM:<"+from+">", "250")
	for _, one := range to {
		w.say("RCPT TO:<"+one+">", "250")
	}
	w.say("DATA", "354")
	w.write(strings.ReplaceAll(mail, "\r\n.", "\r\n..") + ".\r\n")
	return w.expect(want)
}

func (w *wire) closed() bool {
	w.t.Helper()
	_, err := w.in.line()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Fatalf("waited %s for the end of the connection", patience)
	}
	return err != nil
}

// letter writes a mail; header lines come first, then a fixed set unless they are given.
func letter(body string, lines ...string) string {
	given := strings.ToLower(strings.Join(lines, "\n"))
	for _, line := range []string{
		"From: Ann Sender <ann@sender.test>", "To: echo@inbox.test", "Subject: A question", "Message-ID: <m1@sender.test>",
		"Date: Sat, 21 Nov 2026 12:00:00 +0000", "MIME-Version: 1.0", "Content-Type: text/plain; charset=utf-8",
	} {
		name, _, _ := strings.Cut(line, ":")
		if !strings.Contains("\n"+given, "\n"+strings.ToLower(name)+":") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + strings.ReplaceAll(body, "\n", "\r\n") + "\r\n"
}

// signed signs a mail as sender.test.
func signed(t testing.TB, mail string) string {
	return signedAs(t, mail, "sender.test", "s1", senderKey())
}

func signedAs(t testing.TB, mail, domain, selector string, key crypto.Signer) string {
	t.Helper()
	var out bytes.Buffer
	if err := dkim.Sign(&out, strings.NewReader(mail), &dkim.SignOptions{
		Domain: domain, Selector: selector, Signer: key, HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// replyTo makes a reply of the agent to a received message.
func replyTo(in exchange.Inbound, parts ...normalized.Part) exchange.Reply {
	return exchange.Reply{
		ID: "01936f2a-0000-7000-8000-000000000001", TurnID: "turn", Agent: "echo", Message: in.Message, Route: in.Route,
		Response:  normalized.Response{InReplyTo: in.Message.ID, Parts: parts},
		CreatedAt: time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC),
	}
}

// deliver plans a reply and makes one attempt per destination.
func (s *setup) deliver(reply exchange.Reply) ([]exchange.DeliveryReceipt, error) {
	s.t.Helper()
	plan, err := s.adapter.Plan(s.t.Context(), reply)
	if err != nil {
		return nil, err
	}
	var receipts []exchange.DeliveryReceipt
	var failures []error
	for i, destination := range plan.Destinations {
		receipt, err := s.adapter.Deliver(s.t.Context(), exchange.Delivery{
			ID: fmt.Sprint(i), Attempt: 1, Reply: reply, NativeID: plan.NativeID, Destination: destination,
		})
		receipts, failures = append(receipts, receipt), append(failures, err)
	}
	return receipts, errors.Join(failures...)
}

func (s *setup) captured() []Captured {
	s.t.Helper()
	mails, err := s.adapter.Captured(s.t.Context(), "", 100)
	if err != nil {
		s.t.Fatal(err)
	}
	return mails
}

func unavailable(exchange.Inbound) error {
	return fault.Wrap(fault.Unavailable, "store down", errors.New("disk full at /var/lib"))
}

func claimsOf(t testing.TB, evidence identity.Evidence) string {
	t.Helper()
	return string(evidence.Claims)
}
