package load

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Names is a name server on loopback that knows only what Set told it. Everything else does not exist.
type Names struct {
	mu      sync.RWMutex
	records map[string][]dns.RR // lower-case name with the final dot
	broken  map[string]bool     // likewise
	zone    string              // that may be changed; empty = none
	key     map[string]string   // TSIG, by name
	servers []*dns.Server
	address string
}

// NewNames starts a name server on a free loopback port, over UDP and TCP.
func NewNames() (*Names, error) {
	packets, listener, err := listenTwice()
	if err != nil {
		return nil, fmt.Errorf("listen for name lookups: %w", err)
	}
	names := &Names{records: map[string][]dns.RR{}, broken: map[string]bool{}, address: packets.LocalAddr().String()}
	names.key = map[string]string{updateKey: UpdateSecret}
	names.serve(&dns.Server{PacketConn: packets, Handler: names})
	names.serve(&dns.Server{Listener: listener, Handler: names, TsigSecret: names.key, MsgAcceptFunc: acceptUpdates})
	return names, nil
}

// listenTwice opens one port for both protocols. The kernel chooses it for UDP; for TCP someone may have it.
func listenTwice() (packets net.PacketConn, listener net.Listener, err error) {
	for range 20 {
		if packets, err = net.ListenPacket("udp", "127.0.0.1:0"); err != nil {
			return nil, nil, err
		}
		if listener, err = net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, listener, nil
		}
		_ = packets.Close()
	}
	return nil, nil, err
}

func (n *Names) serve(server *dns.Server) {
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	n.servers = append(n.servers, server)
	go func() { _ = server.ActivateAndServe() }()
	<-started
}

// Address is the host:port for the setting dns.resolver.
func (n *Names) Address() string { return n.address }

// Set adds one record in zone file form, for instance `sender.test. 60 IN TXT "v=spf1 -all"`.
func (n *Names) Set(record string) error {
	parsed, err := dns.NewRR(record)
	if err != nil {
		return fmt.Errorf("parse record %q: %w", record, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	name := strings.ToLower(parsed.Header().Name)
	n.records[name] = append(n.records[name], parsed)
	return nil
}

// SetTXT adds a TXT record of any length.
func (n *Names) SetTXT(name, value string) {
	record := &dns.TXT{
		Hdr: dns.RR_Header{Name: dns.Fqdn(name), Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 60},
		Txt: split(value, 255), // RFC 1035, section 3.3: a string has at most 255 octets
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	key := strings.ToLower(dns.Fqdn(name))
	n.records[key] = append(n.records[key], record)
}

func split(value string, size int) []string {
	var pieces []string
	for len(value) > size {
		pieces = append(pieces, value[:size])
		value = value[size:]
	}
	return append(pieces, value)
}

// The key by which a zone is changed (AllowUpdates).
const (
	UpdateKey    = "updates"
	UpdateSecret = "c2VjcmV0IG9mIHRoZSB0ZXN0cyBvZiB1cGRhdGVz"
	updateKey    = UpdateKey + "."
)

// AllowUpdates makes the server the primary one of a zone, whose TXT records change by RFC 2136 over TCP with UpdateKey.
func (n *Names) AllowUpdates(zone string) error {
	n.mu.Lock()
	n.zone = strings.ToLower(dns.Fqdn(zone))
	n.mu.Unlock()
	return n.Set(fmt.Sprintf("%s 60 IN SOA ns.%[1]s postmaster.%[1]s 1 60 60 60 60", n.zone))
}

func acceptUpdates(header dns.Header) dns.MsgAcceptAction {
	if opcode := int(header.Bits>>11) & 0xf; opcode == dns.OpcodeUpdate {
		return dns.MsgAccept
	}
	return dns.DefaultMsgAcceptFunc(header)
}

// update carries out one update (RFC 2136, section 3) of TXT records.
func (n *Names) update(writer dns.ResponseWriter, query *dns.Msg) (code int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case query.IsTsig() == nil || writer.TsigStatus() != nil:
		return dns.RcodeNotAuth
	case n.zone == "" || len(query.Question) != 1 || !strings.EqualFold(query.Question[0].Name, n.zone):
		return dns.RcodeNotZone
	}

	for _, record := range query.Ns {
		header := record.Header()
		name := strings.ToLower(header.Name)
		if header.Rrtype != dns.TypeTXT || !dns.IsSubDomain(n.zone, name) {
			return dns.RcodeRefused
		}
		switch header.Class {
		case dns.ClassINET:
			n.records[name] = append(n.records[name], record)
		case dns.ClassANY, dns.ClassNONE:
			n.records[name] = slices.DeleteFunc(n.records[name], func(known dns.RR) bool {
				return header.Class == dns.ClassANY || strings.Join(known.(*dns.TXT).Txt, "") == strings.Join(record.(*dns.TXT).Txt, "")
			})
			if len(n.records[name]) == 0 {
				delete(n.records, name)
			}
		}
	}
	return dns.RcodeSuccess
}

// Break lets every question for a name fail.
func (n *Names) Break(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken[strings.ToLower(dns.Fqdn(name))] = true
}

func (n *Names) isBroken(name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.broken[name]
}

// ServeDNS answers one query.
func (n *Names) ServeDNS(writer dns.ResponseWriter, query *dns.Msg) {
	answer := new(dns.Msg).SetReply(query)
	answer.Authoritative = true

	if query.Opcode == dns.OpcodeUpdate {
		answer.Rcode = n.update(writer, query)
		if signature := query.IsTsig(); signature != nil {
			answer.SetTsig(signature.Hdr.Name, signature.Algorithm, 300, time.Now().Unix())
		}
	} else if len(query.Question) == 1 {
		question := query.Question[0]
		answer.Answer = n.follow(strings.ToLower(question.Name), question.Qtype)
		switch {
		case n.isBroken(strings.ToLower(question.Name)):
			answer.Rcode = dns.RcodeServerFailure
		case len(answer.Answer) == 0 && !n.exists(strings.ToLower(question.Name)):
			answer.Rcode = dns.RcodeNameError
		}
	}

	if _, overUDP := writer.RemoteAddr().(*net.UDPAddr); overUDP {
		answer.Truncate(udpSize(query))
	}

	_ = writer.WriteMsg(answer)
}

func udpSize(query *dns.Msg) int {
	if option := query.IsEdns0(); option != nil {
		return int(option.UDPSize())
	}
	return dns.MinMsgSize
}

// follow finds records at a name or at the one that its CNAME names.
func (n *Names) follow(name string, kind uint16) []dns.RR {
	found := n.find(name, kind)
	if alias := n.find(name, dns.TypeCNAME); len(found) == 0 && len(alias) == 1 {
		return append(alias, n.find(strings.ToLower(alias[0].(*dns.CNAME).Target), kind)...)
	}
	return found
}

// Knows reports whether there is anything of that name or below it.
func (n *Names) Knows(name string) bool { return n.exists(strings.ToLower(dns.Fqdn(name))) }

func (n *Names) find(name string, kind uint16) []dns.RR {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var found []dns.RR
	for _, record := range n.records[name] {
		if record.Header().Rrtype == kind {
			found = append(found, record)
		}
	}
	return found
}

// A name also exists when there is something below it (RFC 8020).
func (n *Names) exists(name string) bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for known := range n.records {
		if known == name || strings.HasSuffix(known, "."+name) {
			return true
		}
	}
	return false
}

// Close stops the name server.
func (n *Names) Close() {
	for _, server := range n.servers {
		_ = server.Shutdown()
	}
}
