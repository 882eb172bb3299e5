package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/miekg/dns"
)

// zone is a DNS server on loopback that knows the few names of a test and denies all others (RFC 1034, RFC 2308).
type zone struct {
	address string
	udp     *dns.Server
	tcp     *dns.Server
	serving sync.WaitGroup
	mu      sync.Mutex
	records map[string][]dns.RR // by lower-case name with final dot
}

// newZone opens UDP and TCP on the address, or on one port of 127.0.0.1 when it is empty.
func newZone(address string) (*zone, error) {
	var config net.ListenConfig
	if address != "" {
		packets, err := config.ListenPacket(context.Background(), "udp", address)
		if err != nil {
			return nil, fmt.Errorf("listen for DNS: %w", err)
		}
		streams, err := listen(address)
		if err != nil {
			return nil, fmt.Errorf("listen for DNS: %w", errors.Join(err, packets.Close()))
		}
		return serveZone(address, packets, streams), nil
	}

	for range 16 { // the TCP port of the same number may be taken by someone else
		packets, err := config.ListenPacket(context.Background(), "udp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("listen for DNS: %w", err)
		}

		address := packets.LocalAddr().String()
		streams, err := listen(address)
		if err != nil {
			_ = packets.Close()
			continue
		}
		return serveZone(address, packets, streams), nil
	}

	return nil, fmt.Errorf("listen for DNS: no port is free for both UDP and TCP")
}

func serveZone(address string, packets net.PacketConn, streams net.Listener) *zone {
	z := &zone{address: address, records: make(map[string][]dns.RR)}
	var started sync.WaitGroup // Shutdown does nothing to a server that has not started yet
	started.Add(2)
	z.udp = &dns.Server{PacketConn: packets, Handler: z, NotifyStartedFunc: started.Done}
	z.tcp = &dns.Server{Listener: streams, Handler: z, NotifyStartedFunc: started.Done}
	z.serving.Go(func() { _ = z.udp.ActivateAndServe() })
	z.serving.Go(func() { _ = z.tcp.ActivateAndServe() })
	started.Wait()
	return z
}

func (z *zone) close() {
	_, _ = z.udp.Shutdown(), z.tcp.Shutdown()
	z.serving.Wait()
}

// resolver asks this server and no one else.
func resolver(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, address)
	}}
}

// add puts a record in the form of a zone file into the zone, such as `a.test. 60 IN MX 10 a.test.`
func (z *zone) add(record string) error {
	parsed, err := dns.NewRR(record)
	if err != nil {
		return fmt.Errorf("DNS record %q: %w", record, err)
	}
	z.put(parsed)
	return nil
}

// addText adds a TXT record, cut into the strings of at most 255 bytes that RFC 1035 demands.
func (z *zone) addText(name, text string) {
	record := &dns.TXT{Hdr: dns.RR_Header{Name: dns.Fqdn(name), Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60}}
	for len(text) > 255 {
		record.Txt, text = append(record.Txt, text[:255]), text[255:]
	}
	record.Txt = append(record.Txt, text)
	z.put(record)
}

// put adds a record unless it is there: a domain with two equal SPF records has none (RFC 7208, section 4.5).
func (z *zone) put(record dns.RR) {
	name := strings.ToLower(record.Header().Name)
	z.mu.Lock()
	defer z.mu.Unlock()
	if slices.ContainsFunc(z.records[name], func(other dns.RR) bool { return dns.IsDuplicate(other, record) }) {
		return
	}
	z.records[name] = append(z.records[name], record)
}

// ServeDNS answers from the records: those of the type, none for a known name, NXDOMAIN for an unknown one.
func (z *zone) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	reply := new(dns.Msg).SetReply(query)
	reply.Authoritative = true

	if len(query.Question) == 1 {
		question := query.Question[0]
		z.mu.Lock()
		known := z.records[strings.ToLower(question.Name)]
		z.mu.Unlock()
		if len(known) == 0 {
			reply.Rcode = dns.RcodeNameError
		}

		for _, record := range known {
			if record.Header().Rrtype == question.Qtype {
				reply.Answer = append(reply.Answer, record)
			}
		}
	}

	reply.Truncate(answerSize(w, query))
	_ = w.WriteMsg(reply)
}

// answerSize is what the asker can take: 512 bytes over UDP unless it says more (RFC 6891).
func answerSize(w dns.ResponseWriter, query *dns.Msg) int {
	if w.RemoteAddr().Network() == "tcp" {
		return dns.MaxMsgSize
	}
	if edns := query.IsEdns0(); edns != nil {
		return int(max(edns.UDPSize(), dns.MinMsgSize))
	}
	return dns.MinMsgSize
}
