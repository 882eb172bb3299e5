package safehttp

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"inbox/internal/await"
)

// nameServer is a DNS server on loopback; answer gets the question's name and type, and the number of questions other than AAAA so far.
func nameServer(t *testing.T, answer func(name string, kind uint16, asked int64) []string) *Resolver {
	t.Helper()
	connection, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	handle := func(w dns.ResponseWriter, request *dns.Msg) {
		reply := new(dns.Msg).SetReply(request)
		question := request.Question[0]
		if question.Qtype != dns.TypeAAAA {
			asked.Add(1)
		}
		for _, text := range answer(question.Name, question.Qtype, asked.Load()) {
			record, err := dns.NewRR(text)
			if err != nil {
				t.Error(err)
			}
			reply.Answer = append(reply.Answer, record)
		}
		if len(reply.Answer) == 0 && !strings.HasSuffix(question.Name, ".example.") {
			reply.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(reply)
	}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: connection, Handler: dns.HandlerFunc(handle), NotifyStartedFunc: func() { close(started) }}
	ended := make(chan error, 1)
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
	return NewResolver(connection.LocalAddr().String())
}

func TestResolver(t *testing.T) {
	resolver := nameServer(t, func(name string, kind uint16, _ int64) []string {
		if !strings.HasSuffix(name, "example.") && !strings.HasSuffix(name, ".arpa.") {
			t.Errorf("asked for %s", name)
		}
		switch kind {
		case dns.TypeTXT:
			return []string{name + ` 60 IN TXT "v=spf1 -all"`}
		case dns.TypeMX:
			return []string{name + " 60 IN MX 10 mx.example."}
		case dns.TypeA:
			return []string{name + " 60 IN A 192.0.2.7"}
		case dns.TypePTR:
			return []string{name + " 60 IN PTR host.example."}
		}
		return nil
	})
	ctx := t.Context()
	if texts, err := resolver.LookupTXT(ctx, "example"); err != nil || !cmp.Equal(texts, []string{"v=spf1 -all"}) {
		t.Errorf("TXT %v, %v", texts, err)
	}
	if records, err := resolver.LookupMX(ctx, "a.example"); err != nil || len(records) != 1 || records[0].Host != "mx.example." {
		t.Errorf("MX %v, %v", records, err)
	}
	if hosts, err := resolver.LookupHost(ctx, "a.example"); err != nil || !cmp.Equal(hosts, []string{"192.0.2.7"}) {
		t.Errorf("hosts %v, %v", hosts, err)
	}
	if addresses, err := resolver.LookupNetIP(ctx, "ip4", "a.example"); err != nil || len(addresses) != 1 {
		t.Errorf("addresses %v, %v", addresses, err)
	}
	if addresses, err := resolver.LookupIPAddr(ctx, "a.example"); err != nil || len(addresses) != 1 {
		t.Errorf("addresses %v, %v", addresses, err)
	}
	if hosts, err := resolver.LookupAddr(ctx, "192.0.2.7"); err != nil || !cmp.Equal(hosts, []string{"host.example."}) {
		t.Errorf("names %v, %v", hosts, err)
	}
}

func TestMissingNameIsNotFound(t *testing.T) {
	resolver := nameServer(t, func(string, uint16, int64) []string { return nil })
	_, err := resolver.LookupTXT(t.Context(), "no.such.name.invalid")
	if failure, ok := errors.AsType[*net.DNSError](err); !ok || !failure.IsNotFound {
		t.Errorf("got %v", err)
	}
}

// A name that points to loopback, and one that does so only when it is asked the second time: the check is at the
// moment of dialling, so neither reaches anything.
func TestRebinding(t *testing.T) {
	resolver := nameServer(t, func(name string, kind uint16, asked int64) []string {
		switch {
		case kind != dns.TypeA:
			return nil
		case name == "turning.example." && asked == 1:
			return []string{name + " 0 IN A 1.1.1.1"}
		}
		return []string{name + " 0 IN A 127.0.0.1"}
	})
	if addresses, err := resolver.LookupNetIP(t.Context(), "ip4", "turning.example"); err != nil || addresses[0].String() != "1.1.1.1" {
		t.Fatalf("first answer %v, %v", addresses, err)
	}
	client := New(Options{Resolver: resolver})
	for _, address := range []string{"https://turning.example/", "https://loopback.example/"} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		if !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if _, err := client.DialContext(t.Context(), "tcp", "loopback.example:25"); !errors.Is(err, ErrRefused) {
		t.Errorf("dial: %v", err)
	}
	if _, err := client.DialContext(t.Context(), "udp", "loopback.example:53"); !errors.Is(err, ErrRefused) {
		t.Errorf("dial over UDP: %v", err)
	}
}

// One private address among public ones must not be tried.
func TestMixedAnswers(t *testing.T) {
	resolver := nameServer(t, func(name string, kind uint16, _ int64) []string {
		if kind == dns.TypeA {
			return []string{name + " 0 IN A 127.0.0.1", name + " 0 IN A 10.0.0.1"}
		}
		return []string{name + " 0 IN AAAA ::1", name + " 0 IN AAAA fd00::1"}
	})
	if _, err := New(Options{Resolver: resolver}).DialContext(t.Context(), "tcp", "mixed.example:443"); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}
