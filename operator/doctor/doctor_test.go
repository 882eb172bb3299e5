package doctor_test

import (
	"bufio"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"inbox"
	"inbox/adapters/email"
	"inbox/engine/store"
	"inbox/engine/store/database"
	"inbox/engine/store/storetest"
	"inbox/internal/await"
	"inbox/internal/disk"
	"inbox/operator"
	"inbox/operator/doctor"
)

// names is a name server of a test, with lines as they stand in a zone file.
type names struct {
	mu      sync.Mutex
	records map[string][]dns.RR
	signed  bool // it says that DNSSEC proves its answers
	address string
}

func startNames(t *testing.T) *names {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{records: map[string][]dns.RR{}, address: packets.LocalAddr().String()}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, Handler: n, NotifyStartedFunc: func() { close(started) }}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ActivateAndServe() }()
	await.Receive(t, started, "the name server to start")
	t.Cleanup(func() { _ = server.Shutdown(); await.Receive(t, done, "the end of the name server") })
	return n
}

func (n *names) add(t *testing.T, lines ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, line := range lines {
		record, err := dns.NewRR(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if record == nil {
			continue // a comment
		}
		name := strings.ToLower(record.Header().Name)
		n.records[name] = append(n.records[name], record)
	}
}

// ServeDNS answers what was added.
func (n *names) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	n.mu.Lock()
	defer n.mu.Unlock()
	reply := new(dns.Msg).SetReply(query)
	reply.AuthenticatedData = n.signed
	known := n.records[strings.ToLower(query.Question[0].Name)]
	if len(known) == 0 {
		reply.Rcode = dns.RcodeNameError
	}
	for _, record := range known {
		if record.Header().Rrtype == query.Question[0].Qtype {
			reply.Answer = append(reply.Answer, record)
		}
	}
	_ = w.WriteMsg(reply)
}

// greeter is a mail server that says one line.
func greeter(t *testing.T, line string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(await.Patience))
			_, _ = conn.Write([]byte(line + "\r\n"))
			_, _ = bufio.NewReader(conn).ReadString('\n')
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); await.Receive(t, done, "the end of the mail server") })
	return listener.Addr().String()
}

// patient is what a doctor looks at: a configuration, and the world around it.
type patient struct {
	directory string                 // data_dir of the last examination
	prepare   func(directory string) // comes before it
	files     string                 // blob_url; empty = the default
	proxied   atomic.Bool            // requests come through a proxy that is not named
	admin     string                 // another listener
	apart     atomic.Bool            // it alone has the metrics
	t         *testing.T
	names     *names
	http      string
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	p := &patient{t: t, names: startNames(t)}
	var forwards atomic.Int64
	metrics := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/metrics" || r.Header.Get("Authorization") != "Bearer token" {
			return false
		}
		_, _ = fmt.Fprintf(w, "# HELP\ninbox_http_untrusted_forwards_total %d\n", forwards.Load())
		return true
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !p.apart.Load() && metrics(w, r):
		case p.proxied.Load():
			forwards.Add(1)
		}
	}))
	t.Cleanup(web.Close)
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { metrics(w, r) }))
	t.Cleanup(admin.Close)
	p.admin = strings.TrimPrefix(admin.URL, "http://")
	p.http = strings.TrimPrefix(web.URL, "http://")
	p.names.add(t, "mx.agents.test. 60 IN A 127.0.0.25", "25.0.0.127.in-addr.arpa. 60 IN PTR mx.agents.test.",
		"peer.test. 60 IN MX 10 mail.peer.test.", "mail.peer.test. 60 IN A 127.0.0.1")
	return p
}

// examine returns the findings by name. Its settings are those of a server that sends by itself; ofHTTP are further lines of
// that table, more are further tables.
func (p *patient) examine(smtp, peer, ofHTTP, more string, options doctor.Options) map[string]doctor.Finding {
	p.t.Helper()
	_, port, err := net.SplitHostPort(peer)
	if err != nil {
		p.t.Fatal(err)
	}
	file := filepath.Join(p.t.TempDir(), "inbox.toml")
	p.directory = p.t.TempDir()
	text := "domain = \"agents.test\"\nblob_url = \"" + cmp.Or(p.files, "file") + "\"\npublic_url = \"http://" + p.http + "\"\ndata_dir = \"" + p.directory + "\"\n" +
		"[http]\nlisten = \"" + p.http + "\"\n" + ofHTTP + "[federation]\nallow_private = true\n[dns]\nresolver = \"" + p.names.address + "\"\n" +
		"[smtp]\nlisten = \"" + smtp + "\"\nhostname = \"mx.agents.test\"\n" +
		"[mail]\nmode = \"mx\"\nmx_port = " + port + "\nmta_sts = \"none\"\n" + more
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	config, err := inbox.LoadConfig(file, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	opened, err := inbox.OpenOperator(p.t.Context(), config)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	if len(p.names.records["agents.test."]) == 0 {
		records, err := opened.Doctor.DNSRecords(p.t.Context())
		if err != nil {
			p.t.Fatal(err)
		}
		for _, r := range records {
			if !strings.Contains(r.Name, "_domainkey") {
				p.names.add(p.t, r.Zone)
			}
		}
	}
	records, err := opened.Doctor.DNSRecords(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, r := range records { // each data_dir has a key of its own
		if strings.Contains(r.Name, "_domainkey") {
			p.names.mu.Lock()
			delete(p.names.records, r.Name+".")
			p.names.mu.Unlock()
			p.names.add(p.t, r.Zone)
		}
	}
	if err := disk.WritePrivate(filepath.Join(p.directory, operator.AdminTokenFile), "token\n"); err != nil {
		p.t.Fatal(err)
	}
	if p.prepare != nil {
		p.prepare(p.directory)
	}
	findings, err := opened.Doctor.Examine(p.t.Context(), options)
	if err != nil {
		p.t.Fatal(err)
	}
	found := map[string]doctor.Finding{}
	for _, one := range findings {
		if found[one.Name] = one; (one.Status == email.FindingOK) != (one.Remedy == "") {
			p.t.Errorf("%s %s: %s: a remedy belongs to what is not well, and only there: %q", one.Status, one.Name, one.Detail, one.Remedy)
		}
	}
	return found
}

// TestDoctor: everything that is well is ok; what is not has a line that says so and what to do.
func TestDoctor(t *testing.T) {
	p := newPatient(t)
	here, peer := greeter(t, "220 mx.agents.test ESMTP"), greeter(t, "220 mail.peer.test ESMTP")
	want := func(found map[string]doctor.Finding, name, status, detail, remedy string) {
		t.Helper()
		one, is := found[name]
		if !is || one.Status != status || !strings.Contains(one.Detail, detail) || !strings.Contains(one.Remedy, remedy) {
			t.Errorf("%q is %+v; want %s, %q, remedy %q", name, one, status, detail, remedy)
		}
	}
	all := doctor.Options{Probe: "peer.test"}
	found := p.examine(here, peer, "", "", all)
	for _, name := range []string{
		"database", "disk", "http.listen", "smtp.listen", "http://" + p.http + "/healthz", "address of mx.agents.test", "MX", "SPF", "DKIM inbox", "DMARC",
		"TLS-RPT", "reverse DNS of 127.0.0.25", "port 25 outwards", "signed mail from 127.0.0.25",
	} {
		want(found, name, email.FindingOK, "", "")
	}
	if !strings.Contains(found["port 25 outwards"].Detail, "220 mail.peer.test") {
		t.Errorf("%+v", found["port 25 outwards"])
	}
	text, err := json.Marshal(found["MX"])
	if err != nil || string(text) != `{"name":"MX","status":"ok","detail":"10 mx.agents.test"}` {
		t.Errorf("%s %v", text, err)
	}

	found = p.examine(greeter(t, "554 no"), greeter(t, "554 go away"), "", "[limits]\nfree_disk = \"1000000TiB\"\n", all)
	want(found, "disk", email.FindingFail, "nothing is accepted below", "limits.free_disk")
	want(found, "smtp.listen", email.FindingFail, "554 no", "which program listens")

	mode := func(path string, mode fs.FileMode) func(directory string) {
		return func(directory string) {
			if err := os.Chmod(filepath.Join(directory, path), mode); err != nil {
				t.Error(err)
			}
		}
	}
	private := mode("", 0o700)
	for path, change := range map[string]func(string){"": mode("", 0o750), "secret.key": mode("secret.key", 0o604), operator.AdminTokenFile: mode(operator.AdminTokenFile, 0o644)} {
		p.prepare = func(directory string) { private(directory); change(directory) }
		want(p.examine(here, peer, "", "", all), "permissions", email.FindingWarn, filepath.Join(p.directory, path)+" has the mode", "chmod 0")
	}
	p.prepare = private
	found = p.examine(here, peer, "", "", all)
	want(found, "permissions", email.FindingOK, "no other user", "")
	want(found, "database pages", email.FindingOK, "finds no damage", "")
	want(found, "database log", email.FindingOK, "smaller than 128 MiB", "")

	p.prepare = func(directory string) {
		private(directory)
		storetest.Damage(t, filepath.Join(directory, store.File), "turns")
		if err := os.Truncate(database.Files(directory)[1], database.LogWarning+1); err != nil {
			t.Fatal(err)
		}
	}
	found = p.examine(here, peer, "", "", all)
	want(found, "database pages", email.FindingFail, "the database is damaged: turns", "inbox restore")
	want(found, "database log", email.FindingWarn, "has 128 MiB", "end programs that have")
	p.prepare = private

	want(found, "files", email.FindingOK, "they are in "+p.directory, "")
	for address, detail := range map[string]string{
		"s3://kept?endpoint=http://" + greeterAt(t): "nothing listens at 127.0.0.1:", "s3://kept?endpoint=http://" + p.http: "bucket of blob_url",
	} {
		p.files = address
		want(p.examine(here, peer, "", "[blob]\naccess_key = \"a\"\nsecret_key = \"b\"\n", all), "files", email.FindingFail, detail, "blob_url")
	}
	p.files = ""

	closed := greeterAt(t)
	found = p.examine(closed, closed, "", "", all)
	want(found, "smtp.listen", email.FindingFail, "nothing listens at 127.0.0.1:", "inbox serve")
	want(found, "port 25 outwards", email.FindingFail, "nothing listens at 127.0.0.1:", "smarthost")
	found = p.examine(here, peer, "", "", doctor.Options{Probe: "nowhere.test"})
	want(found, "port 25 outwards", email.FindingWarn, "no mail server of nowhere.test", "--probe")

	want(found, "http://"+p.http+"/.well-known/jwks.json", email.FindingFail, "another server answers", "http.listen")
	p.proxied.Store(true)
	const named = "trusted_proxies = [\"203.0.113.1\"]\n"
	want(p.examine(here, peer, named, "", all), "http.trusted_proxies", email.FindingWarn, "through a proxy that is not named", "name the proxy")
	p.proxied.Store(false)
	want(p.examine(here, peer, named, "", all), "http.trusted_proxies", email.FindingOK, "through none", "")

	p.apart.Store(true)
	atAdmin := "[admin]\nlisten = \"" + p.admin + "\"\n"
	want(p.examine(here, peer, named, atAdmin, all), "http.trusted_proxies", email.FindingOK, "through none", "")
	p.proxied.Store(true)
	want(p.examine(here, peer, named, atAdmin, all), "http.trusted_proxies", email.FindingWarn, "through a proxy that is not named", "name the proxy")
	p.proxied.Store(false)
	p.apart.Store(false)

	const dane = "dane = true\n"
	want(p.examine(here, peer, "", dane, all), "DNSSEC", email.FindingFail, "does not say", "unbound")
	p.names.mu.Lock()
	p.names.signed = true
	p.names.mu.Unlock()
	want(p.examine(here, peer, "", dane, all), "DNSSEC", email.FindingOK, "validates", "")

	if only := p.examine(here, peer, "", "", doctor.Options{DNSOnly: true}); len(only) == 0 || only["database"].Name != "" || only["MX"].Name == "" {
		t.Errorf("only the records: %+v", only)
	}

	cert, key := selfSigned(t, time.Now().Add(-time.Hour), "127.0.0.1")
	found = p.examine(here, peer, "tls = \"files\"\ncert_file = \""+cert+"\"\nkey_file = \""+key+"\"\n", "", all)
	want(found, "TLS certificate", email.FindingFail, "ended on", "renew")
	want(found, "TLS certificate for mx.agents.test", email.FindingWarn, "no such name", "add the name")
	if err := doctor.Unwell([]doctor.Finding{found["MX"]}); err != nil {
		t.Error(err)
	}
	if err := doctor.Unwell([]doctor.Finding{found["MX"], found["TLS certificate"]}); err == nil {
		t.Error("a failure is no failure")
	}
}

// greeterAt returns an address where nothing listens.
func greeterAt(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

func selfSigned(t *testing.T, ends time.Time, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: ends.Add(-24 * time.Hour), NotAfter: ends}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	directory := t.TempDir()
	certFile, keyFile = filepath.Join(directory, "cert.pem"), filepath.Join(directory, "key.pem")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
