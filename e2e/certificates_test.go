package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/internal/await"
	"inbox/internal/children"
)

// certificateLife is long enough to see a certificate and short enough to see its renewal.
const certificateLife = 15 * time.Second

const authorityName = "authority.test"

// pebble is the test authority of Let's Encrypt. It resolves names by ours and comes to the ports of one node.
type pebble struct {
	t         *testing.T
	directory string // address
	roots     string // address
	own       *load.Authority
}

// authoritySettings say where the authority listens and to which ports it comes.
type authoritySettings struct {
	listen, managed  string // host:port; empty = free ones
	names            string // host:port of the name server that it asks
	plainHTTP, https int    // ports of http-01 and of tls-alpn-01
	life             time.Duration
}

func startPebble(t *testing.T, names *load.Names, plainHTTP, https string) *pebble {
	t.Helper()
	return startAuthority(t, newAuthority(t, "Authority of the authority"), authoritySettings{
		names: names.Address(), plainHTTP: portOf(t, plainHTTP), https: portOf(t, https), life: certificateLife,
	})
}

// builtPebble compiles the authority once.
var builtPebble = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(scratch, "pebble")
	build := exec.Command("go", "build", "-o", binary, "github.com/letsencrypt/pebble/v2/cmd/pebble")
	build.Dir = filepath.Join("peers", "pebble")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build pebble: %w\n%s", err, output)
	}
	return binary, nil
})

func startAuthority(t *testing.T, own *load.Authority, options authoritySettings) *pebble {
	t.Helper()
	binary, err := builtPebble()
	if err != nil {
		t.Fatal(err)
	}

	directory := t.TempDir()
	p := &pebble{t: t, own: own}
	certificate, key := issue(t, p.own, authorityName)
	listen, managed := options.listen, options.managed
	if listen == "" {
		listen, managed = freeAddress(t), freeAddress(t)
	}
	p.directory, p.roots = "https://"+net.JoinHostPort(authorityName, strconv.Itoa(portOf(t, listen)))+"/dir", "https://"+managed+"/roots/0"

	profile := map[string]any{"description": "short", "validityPeriod": int(options.life.Seconds())}
	settings, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": listen, "managementListenAddress": managed, "certificate": certificate, "privateKey": key,
		"httpPort": options.plainHTTP, "tlsPort": options.https, "profiles": map[string]any{"default": profile},
		"retryAfter": map[string]any{"authz": 1, "order": 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(directory, "pebble.json")
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		t.Fatal(err)
	}

	command := exec.Command(binary, "-config", file, "-dnsserver", options.names)
	command.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=20")
	log, err := os.Create(filepath.Join(directory, "pebble.log"))
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = log, log
	if err := children.Start(command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = log.Close()
		if content, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("log of pebble:\n%s", tail(string(content), 16<<10))
		}
	})

	await.Until(t, "the certificate authority answers", func() bool { return p.issuedBy() != nil })
	return p
}

// issuedBy are the roots of the certificates that the authority gives; nil while it does not answer.
func (p *pebble) issuedBy() *x509.CertPool {
	root := p.root()
	if root == nil {
		return nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(root) {
		p.t.Fatalf("roots of the authority: %s", root)
	}
	return roots
}

// root is the same as PEM.
func (p *pebble) root() []byte {
	content, err := os.ReadFile(p.own.File)
	if err != nil {
		p.t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(content)
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: authorityName}}}
	response, err := client.Get(p.roots)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	root, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatalf("roots of the authority: %v", err)
	}
	return root
}

// presented shakes hands with a listener under a name and returns the number of its certificate; "" when it has none that counts.
func presented(address, name string, roots *x509.CertPool) string {
	dialer := tls.Dialer{Config: &tls.Config{ServerName: name, RootCAs: roots}}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	connection, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return ""
	}
	defer connection.Close()
	return connection.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// presentedToMail does the same after STARTTLS.
func presentedToMail(address, name string, roots *x509.CertPool) string {
	client, err := smtp.Dial(address)
	if err != nil {
		return ""
	}
	defer client.Close()
	if err := client.StartTLS(&tls.Config{ServerName: name, RootCAs: roots}); err != nil {
		return ""
	}
	state, _ := client.TLSConnectionState()
	return state.PeerCertificates[0].SerialNumber.String()
}

// TestCertificatesFromAnAuthority: a server without certificate and proxy gets one for each of its names, shows them on all its
// listeners, renews them, and shares them with the other node of its database. The authority asks for http-01 where there is a
// listener without TLS, else for tls-alpn-01.
func TestCertificatesFromAnAuthority(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) { testCertificates(t, database, database != "") })
}

func testCertificates(t *testing.T, database string, plain bool) {
	t.Helper()
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	hosts := []string{"inbox.test", "mail.inbox.test", "mta-sts.inbox.test", "chat.inbox.test"}
	for _, host := range append(hosts, authorityName) {
		if err := names.Set(host + ". 60 IN A 127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}

	settings := instance.Settings{
		Database: database, DNS: names.Address(), Domain: "inbox.test", Hostname: "mail.inbox.test", Public: "inbox.test", HTTP: freeAddress(t), SMTP: freeAddress(t),
	}
	unused := freeAddress(t)
	if plain {
		settings.PlainHTTP = freeAddress(t)
	}
	authority := startPebble(t, names, cmp.Or(settings.PlainHTTP, unused), settings.HTTP)
	settings.ACME, settings.Authority = authority.directory, authority.own.File
	grpc := freeAddress(t)
	settings.More = fmt.Sprintf("[a2a]\ngrpc_listen = %q\n", grpc)
	if !plain {
		settings.Hostname = "inbox.test"
		hosts = []string{"inbox.test", "mta-sts.inbox.test"}
	} else {
		settings.ACMENames = []string{"chat.inbox.test"}
	}

	first := start(t, settings)
	roots := authority.issuedBy()
	serials := map[string]string{}
	for _, host := range hosts {
		awaitOrder(t, host, false, first)
		await.Until(t, "the certificate of "+host+" is shown", func() bool { // it is noted before it is in use
			serials[host] = presented(first.Settings.HTTP, host, roots)
			return serials[host] != ""
		})
	}

	await.Until(t, "mail and gRPC have them too", func() bool {
		return presentedToMail(first.Settings.SMTP, settings.Hostname, roots) != "" && presented(grpc, "inbox.test", roots) != ""
	})
	if stranger := presented(first.Settings.HTTP, "other.test", roots); stranger != "" {
		t.Errorf("a certificate for a name that is not ours: %s", stranger)
	}
	if plain {
		checkPlainHTTP(t, settings.PlainHTTP)
	}

	nodes := []*server{first}
	if database != "" {
		second := settings
		second.HTTP, second.SMTP, second.PlainHTTP, second.More = freeAddress(t), freeAddress(t), freeAddress(t), ""
		nodes = append(nodes, start(t, second))
	}

	for _, host := range hosts {
		awaitOrder(t, host, true, nodes...)
		await.Until(t, "all nodes show the renewed certificate of "+host, func() bool {
			now := presented(nodes[0].Settings.HTTP, host, roots)
			return now != "" && now != serials[host] && presented(nodes[len(nodes)-1].Settings.HTTP, host, roots) == now
		})
	}
}

// TestCertificatesByRecords: the authority cannot reach the server and looks at the DNS, where the server sets the records of dns-01 and
// removes them. A wildcard serves names that no one wrote down.
func TestCertificatesByRecords(t *testing.T) {
	t.Parallel()
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	for _, host := range []string{"inbox.test", authorityName} {
		if err := names.Set(host + ". 60 IN A 127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	if err := names.AllowUpdates("inbox.test"); err != nil {
		t.Fatal(err)
	}

	settings := instance.Settings{
		DNS: names.Address(), Domain: "inbox.test", Hostname: "inbox.test", Public: "inbox.test", HTTP: freeAddress(t), SMTP: freeAddress(t), ACMENames: []string{"*.inbox.test"},
	}
	authority := startPebble(t, names, freeAddress(t), freeAddress(t))
	settings.ACME, settings.Authority = authority.directory, authority.own.File
	settings.More = fmt.Sprintf("[acme.dns]\nprovider = \"rfc2136\"\nserver = %q\nkey_name = %q\ntoken = %q\n", names.Address(), load.UpdateKey, load.UpdateSecret)

	s := start(t, settings)
	roots := authority.issuedBy()
	for _, host := range []string{"inbox.test", "anything.inbox.test"} {
		await.Until(t, "a certificate for "+host+" is shown", func() bool { return presented(s.Settings.HTTP, host, roots) != "" })
	}
	// The roots of these certificates are not among those that the commands were given.
	for _, command := range [][]string{{"reload"}, {"tasks", "list"}, {"agents", "test", "echo", "hello"}} {
		await.Until(t, "inbox "+strings.Join(command, " ")+" speaks with the server", func() bool { // not while a certificate is being renewed
			_, err := s.Run(t.Context(), command...)
			return err == nil
		})
	}
	await.Until(t, "the records are removed", func() bool { return !names.Knows("_acme-challenge.inbox.test") })
	if shown := s.inbox("config", "show"); strings.Contains(shown, load.UpdateSecret) {
		t.Errorf("the settings show the key:\n%s", shown)
	}
}

// awaitOrder waits until one of the nodes has obtained a certificate. The log is cheaper to ask than a listener with TLS.
func awaitOrder(t *testing.T, host string, renewal bool, nodes ...*server) {
	t.Helper()
	line := fmt.Sprintf(`msg="certificate obtained" name=%s renewal=%t`, host, renewal)
	await.Until(t, line, func() bool {
		return slices.ContainsFunc(nodes, func(node *server) bool { return strings.Contains(node.Log(), line) })
	})
}

// checkPlainHTTP: browsers are sent to https, other hosts and unknown challenges find nothing.
func checkPlainHTTP(t *testing.T, address string) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, check := range []struct {
		host, path string
		status     int
		location   string
	}{
		{"inbox.test", "/@echo?a=b", http.StatusPermanentRedirect, "https://inbox.test/@echo?a=b"},
		{"INBOX.test:80", "/", http.StatusPermanentRedirect, "https://inbox.test/"},
		{"other.test", "/@echo", http.StatusNotFound, ""},
		{"inbox.test", "/.well-known/acme-challenge/unknown", http.StatusNotFound, ""},
	} {
		request, err := http.NewRequest(http.MethodGet, "http://"+address+check.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = check.host
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != check.status || response.Header.Get("Location") != check.location {
			t.Errorf("%s%s: %s to %q", check.host, check.path, response.Status, response.Header.Get("Location"))
		}
	}
}
