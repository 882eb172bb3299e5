package emailtest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"inbox/internal/await"
)

// NameServer is a real DNS server with records that a test may change.
type NameServer struct {
	Mu        sync.Mutex
	texts     map[string][]string // name with final dot
	hosts     map[string]string
	pointers  map[string]string
	exchanges map[string][]*dns.MX
	broken    map[string]bool // SERVFAIL
	brokenMX  map[string]bool
	TLSA      map[string][]*dns.TLSA
	Validates bool            // it says that DNSSEC proves its answers
	Unsigned  map[string]bool // names whose answers are not proven
	Asked     map[string]int
	Address   string
	TTL       uint32          // of texts
	Negative  *uint32         // how long nothing holds; nil = it is not said
	Empty     map[string]bool // names without records that have others below them
}

// StartNames starts a name server that knows the domain sender.test: its key, a strict DMARC policy and SPF.
func StartNames(t testing.TB) *NameServer {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	n := &NameServer{texts: map[string][]string{}, hosts: map[string]string{}, broken: map[string]bool{}, Asked: map[string]int{}, Address: packets.LocalAddr().String(), TTL: 60}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(n.answer), NotifyStartedFunc: func() { close(started) }}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ActivateAndServe() }()
	await.Receive(t, started, "the name server to start")
	t.Cleanup(func() { _ = server.Shutdown(); await.Receive(t, done, "the end of the name server") })
	name, value := KeyRecord("sender.test", "s1", SenderKey())
	n.Text(name, value)
	n.Text("_dmarc.sender.test", "v=DMARC1; p=reject")
	n.Text("sender.test", "v=spf1 ip4:192.0.2.1 -all")
	return n
}

// Text sets the TXT records of a name.
func (n *NameServer) Text(name string, values ...string) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.texts[dns.Fqdn(name)] = values
}

// With changes what is answered.
func (n *NameServer) With(change func()) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	change()
}

// Break makes every question for a name fail.
func (n *NameServer) Break(name string) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.broken[dns.Fqdn(name)] = true
}

// Pointer names an address; an empty name removes it.
func (n *NameServer) Pointer(ip, name string) {
	reverse, err := dns.ReverseAddr(ip)
	if err != nil {
		panic(err)
	}

	n.Mu.Lock()
	defer n.Mu.Unlock()

	if n.pointers == nil {
		n.pointers = map[string]string{}
	}
	n.pointers[reverse] = name
}

// Drop forgets the texts and addresses of a name.
func (n *NameServer) Drop(name string) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	delete(n.texts, dns.Fqdn(name))
	delete(n.hosts, dns.Fqdn(name))
}

// BreakMX makes the questions for the MX records of a name fail.
func (n *NameServer) BreakMX(name string) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.brokenMX = map[string]bool{dns.Fqdn(name): true}
}

func (n *NameServer) answer(w dns.ResponseWriter, question *dns.Msg) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	reply := new(dns.Msg).SetReply(question)
	reply.Authoritative = true
	name, kind := strings.ToLower(question.Question[0].Name), question.Question[0].Qtype
	n.Asked[name]++
	_, known := n.hosts[name]
	texts, ok := n.texts[name]
	reply.AuthenticatedData = n.Validates && question.AuthenticatedData && !n.Unsigned[name]
	switch {
	case kind == dns.TypeTLSA && !n.broken[name] && len(n.TLSA[name]) > 0:
		for _, record := range n.TLSA[name] {
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
			reply.Answer = append(reply.Answer, &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: n.TTL}, Txt: chunks(text)})
		}
	case kind == dns.TypeA && known:
		reply.Answer = append(reply.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(n.hosts[name])})
	case !ok && !known && len(n.exchanges[name]) == 0 && !n.Empty[name]:
		reply.Rcode = dns.RcodeNameError
	}

	if n.Negative != nil && len(reply.Answer) == 0 {
		reply.Ns = append(reply.Ns, &dns.SOA{Hdr: dns.RR_Header{Name: "test.", Rrtype: dns.TypeSOA, Class: dns.ClassINET, Ttl: *n.Negative}, Ns: "ns.test.", Mbox: "a.test.", Minttl: *n.Negative})
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

// SenderKey signs the mails of the domain sender.test.
var SenderKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// Host sets the address of a name.
func (n *NameServer) Host(name, ip string) {
	n.Mu.Lock()
	defer n.Mu.Unlock()
	n.hosts[dns.Fqdn(name)] = ip
}

// MX sets the MX records of a domain, each "preference name".
func (n *NameServer) MX(domain string, targets ...string) {
	n.Mu.Lock()
	defer n.Mu.Unlock()

	if n.exchanges == nil {
		n.exchanges = map[string][]*dns.MX{}
	}

	var records []*dns.MX
	for _, target := range targets {
		preference, name, _ := strings.Cut(target, " ")
		number, _ := strconv.Atoi(preference)
		records = append(records, &dns.MX{
			Hdr: dns.RR_Header{Name: dns.Fqdn(domain), Rrtype: dns.TypeMX, Class: dns.ClassINET, Ttl: 60}, Preference: uint16(number), Mx: dns.Fqdn(name),
		})
	}

	n.exchanges[dns.Fqdn(domain)] = records
}

// Demand publishes a TLSA record of a server.
func (n *NameServer) Demand(host string, usage, selector, matching uint8, data []byte) {
	n.Mu.Lock()
	defer n.Mu.Unlock()

	if n.TLSA == nil {
		n.TLSA = map[string][]*dns.TLSA{}
	}

	name := "_25._tcp." + dns.Fqdn(host)
	n.TLSA[name] = append(n.TLSA[name], &dns.TLSA{
		Hdr:   dns.RR_Header{Name: name, Rrtype: dns.TypeTLSA, Class: dns.ClassINET, Ttl: 60},
		Usage: usage, Selector: selector, MatchingType: matching, Certificate: hex.EncodeToString(data),
	})
}

// KeyRecord returns the DKIM record of an RSA key as its owner publishes it (RFC 6376, section 3.6.1).
func KeyRecord(domain, selector string, key crypto.Signer) (name, value string) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		panic(err)
	}
	return selector + "._domainkey." + domain, "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
}
