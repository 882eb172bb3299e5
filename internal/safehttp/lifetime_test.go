package safehttp

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"inbox/internal/await"
)

// zone answers by UDP and, where the question is long, by TCP alone.
func zone(t *testing.T) *Resolver {
	t.Helper()
	stream, packets := samePort(t)
	answer := func(w dns.ResponseWriter, request *dns.Msg) {
		reply := new(dns.Msg).SetReply(request)
		name := request.Question[0].Name
		_, byTCP := w.RemoteAddr().(*net.TCPAddr)
		add := func(section *[]dns.RR, text string) {
			record, err := dns.NewRR(name + text)
			if err != nil {
				t.Error(err)
			}
			*section = append(*section, record)
		}
		switch host, _, _ := strings.Cut(name, "."); {
		case host == "long" && !byTCP:
			reply.Truncated = true
		case host == "two", host == "long":
			add(&reply.Answer, " 300 IN TXT one")
			add(&reply.Answer, " 120 IN TXT two")
			add(&reply.Ns, " 5 IN SOA ns.example. a.example. 1 2 3 4 7")
		case host == "empty":
			add(&reply.Ns, " 900 IN SOA ns.example. a.example. 1 2 3 4 70")
		case host == "missing":
			reply.Rcode = dns.RcodeNameError
			add(&reply.Ns, " 30 IN SOA ns.example. a.example. 1 2 3 4 70")
		case host == "silent":
			reply.Rcode = dns.RcodeNameError
		default:
			reply.Rcode = dns.RcodeServerFailure
		}
		_ = w.WriteMsg(reply)
	}
	for _, server := range []*dns.Server{{PacketConn: packets}, {Listener: stream}} {
		started, ended := make(chan struct{}), make(chan error, 1)
		server.Handler, server.NotifyStartedFunc = dns.HandlerFunc(answer), func() { close(started) }
		go func() { ended <- server.ActivateAndServe() }()
		await.Receive(t, started, "the name server to start")
		t.Cleanup(func() {
			if err := server.Shutdown(); err != nil {
				t.Error(err)
			}
			if err := await.Receive(t, ended, "the end of the name server"); err != nil {
				t.Error(err)
			}
		})
	}
	return NewResolver(packets.LocalAddr().String())
}

// samePort listens by TCP and UDP. The number that is free for one may be taken for the other.
func samePort(t *testing.T) (stream net.Listener, packets net.PacketConn) {
	t.Helper()
	for range 50 {
		stream, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if packets, err = net.ListenPacket("udp", stream.Addr().String()); err == nil {
			return stream, packets
		}
		_ = stream.Close()
	}
	t.Fatal("no port is free for both")
	return nil, nil
}

func TestLifetimeOfAnswers(t *testing.T) {
	resolver := zone(t)
	const unknown = -1 * time.Second
	for name, want := range map[string]struct {
		found, notFound   time.Duration
		missing, answered bool
	}{
		"two.example":     {120 * time.Second, unknown, false, true},
		"long.example":    {120 * time.Second, unknown, false, true},
		"empty.example":   {unknown, 70 * time.Second, false, true},
		"missing.example": {unknown, 30 * time.Second, true, true},
		"silent.example":  {unknown, unknown, true, true},
		"broken.example":  {unknown, unknown, false, false},
	} {
		ctx, life := WithLifetime(t.Context())
		texts, err := resolver.LookupTXT(ctx, name)
		if (err == nil) != (want.found != unknown) || (len(texts) == 2) != (err == nil) {
			t.Errorf("%s: %q, %v", name, texts, err)
		}
		if found, known := life.Found(); known != (want.found != unknown) || known && found != want.found {
			t.Errorf("%s: found for %s, %t", name, found, known)
		}
		if found, known := life.NotFound(); known != (want.notFound != unknown) || known && found != want.notFound {
			t.Errorf("%s: not found for %s, %t", name, found, known)
		}
		if missing, answered := life.NoSuchName(); missing != want.missing || answered != want.answered {
			t.Errorf("%s: missing %t, answered %t", name, missing, answered)
		}
	}
	if texts, err := resolver.LookupTXT(t.Context(), "two.example"); err != nil || len(texts) != 2 {
		t.Errorf("without a watch: %q, %v", texts, err)
	}
}

func TestLifetimeOfNonsense(t *testing.T) {
	_, life := WithLifetime(t.Context())
	for _, packet := range []string{"", "x", strings.Repeat("\xff", 600)} {
		life.read([]byte(packet))
	}
	question, err := new(dns.Msg).SetQuestion("example.", dns.TypeTXT).Pack()
	if err != nil {
		t.Fatal(err)
	}
	life.read(question)
	if _, answered := life.NoSuchName(); answered {
		t.Error("no answer was taken for one")
	}
}
