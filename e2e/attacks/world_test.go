package attacks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

// Where things are. Neighbours have addresses that the server calls public; clients have those of documentation (RFC 5737), which
// count like any other that is not private.
const (
	domain        = "inbox.example"
	webAddress    = "45.66.0.1:443"
	mailAddress   = "45.66.0.1:25"
	proxyAddress  = "45.66.0.2" // of http.trusted_proxies
	insideAddress = "45.66.0.3" // of http.inside
	patience      = 30 * time.Second
)

// world is a server with the limits of production and what is around it.
type world struct {
	t         *testing.T
	server    *instance.Instance
	names     *load.Names
	authority *load.Authority
	roots     *x509.CertPool
	replies   *replies
	sink      *load.Sink // of all mail that leaves

	mu        sync.Mutex
	addresses int
	clients   map[string]*http.Client // source → client
}

// settings are what the world of one attack has besides the defaults.
type settings struct {
	database string // empty = SQLite
	agents   string // TOML
	more     string // TOML
}

// begin starts a server and its neighbours. Everything ends with the test.
func begin(t *testing.T, wanted settings) *world {
	t.Helper()
	w := &world{t: t, replies: newReplies(), clients: map[string]*http.Client{}}
	directory := t.TempDir()
	var err error
	w.names = must(load.NewNames())(t)
	t.Cleanup(w.names.Close)
	w.authority = must(load.NewAuthority(directory, "authority"))(t)
	w.roots = x509.NewCertPool()
	w.roots.AppendCertsFromPEM(must(os.ReadFile(w.authority.File))(t))
	sink := must(load.NewSink("127.0.0.1:0", func(mail load.Received) { w.replies.arrived(mail.Field("In-Reply-To"), mail.At) }))(t)
	w.sink = sink
	t.Cleanup(sink.Close)
	certificate, key, err := w.authority.Issue(domain)
	if err != nil {
		t.Fatal(err)
	}
	w.point(domain, webAddress)
	w.server, err = instance.New(os.Getenv(binaryVariable), directory, instance.Settings{
		Strict: true, UsualRetries: true, Domain: domain, Database: wanted.database, HTTP: webAddress, SMTP: mailAddress, CertFile: certificate,
		KeyFile: key, Authority: w.authority.File, DNS: w.names.Address(), Smarthost: sink.URL(), Proxies: []string{proxyAddress},
		Agents: wanted.agents, More: wanted.more, Inside: []string{insideAddress},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = w.server.Kill() // attackers still hold connections: a graceful end would wait for them
		if log := w.server.Log(); t.Failed() {
			t.Logf("log of the server:\n%s", log[max(0, len(log)-8<<10):])
		}
		for _, client := range w.clients {
			client.CloseIdleConnections()
		}
	})
	return w
}

// must returns a value or ends the test.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// point writes the address of a host into the name server.
func (w *world) point(host, address string) {
	w.t.Helper()
	ip, _, err := net.SplitHostPort(address)
	if err == nil {
		err = w.names.Set(fmt.Sprintf("%s. 60 IN A %s", host, ip))
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// neighbour is a web server elsewhere.
type neighbour struct {
	host   string
	server *http.Server
}

// neighbour starts a web server for a host at an address of its own.
func (w *world) neighbour(host string, handler http.Handler) *neighbour {
	w.t.Helper()
	w.mu.Lock()
	w.addresses++
	address := fmt.Sprintf("45.67.%d.%d:443", w.addresses/200, 1+w.addresses%200)
	w.mu.Unlock()
	certificate := must(w.authority.Certificate(host))(w.t)
	listener := must(tls.Listen("tcp", address, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"http/1.1"}}))(w.t)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	w.t.Cleanup(func() { _ = server.Close() })
	w.point(host, address)
	return &neighbour{host: host, server: server}
}

// client returns the HTTP client of an address. The proxy's client goes on for others by X-Forwarded-For.
func (w *world) client(source string) *http.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.clients[source]; known != nil {
		return known
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return w.dialer(source).DialContext(ctx, "tcp", webAddress)
		},
		TLSClientConfig: &tls.Config{RootCAs: w.roots}, MaxIdleConnsPerHost: 64, IdleConnTimeout: time.Minute,
	}}
	w.clients[source] = client
	return client
}

func (w *world) dialer(source string) *net.Dialer {
	return &net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
}

// url is an address of the server under test.
func (w *world) url(path string) string { return "https://" + domain + path }

// used is what the server has on disk.
func (w *world) used() int64 {
	var bytes int64
	_ = filepath.WalkDir(filepath.Join(w.server.Directory, "data"), func(_ string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // a file that went away meanwhile takes no room
		}
		if info, err := entry.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	if w.server.Settings.Database != "" {
		size, err := w.server.Column(w.t.Context(), "SELECT CAST(pg_database_size(current_database()) AS TEXT)")
		if err == nil && len(size) == 1 {
			var database int64
			_, _ = fmt.Sscan(size[0], &database)
			bytes += database
		}
	}
	return bytes
}

// token mints a bearer token of a peer.
func (w *world) token(name string) string {
	w.t.Helper()
	return must(w.server.Token(w.t.Context(), name))(w.t)
}

// eventually polls a condition on state that only another process has.
func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	if err := until(w.t.Context(), patience, condition); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

var errLate = errors.New("did not happen in time")

func until(ctx context.Context, limit time.Duration, condition func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: waited %s", errLate, limit)
		}
	}
	return nil
}

// database returns a database of its own for each name: empty for SQLite.
func database(t *testing.T, kind string) string {
	t.Helper()
	if kind == "sqlite" {
		return ""
	}
	beside := os.Getenv("INBOX_TEST_DATABASE_URL")
	if beside == "" {
		t.Fatal("INBOX_TEST_DATABASE_URL is not set; run make attacks, or: export INBOX_TEST_DATABASE_URL=$(scripts/test-postgres start) (Debian package postgresql)")
	}
	made, remove, err := instance.NewDatabase(t.Context(), beside)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	})
	return made
}
