package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
)

// secureNetwork gives servers of a test what they have on the internet: a host name, a certificate that the others trust, and port 443, so that no
// address shows a port. Each host has a loopback address of its own; one name server and one authority serve all tests of this process.
type secureNetwork struct {
	names     *load.Names
	authority *load.Authority
	transport *http.Transport

	mu    sync.Mutex
	hosts map[string]string // name → loopback address
}

// host is a place for one server.
type host struct {
	Name             string // such as fedify3.test
	Address          string // host:port to listen on
	Certificate, Key string // PEM files
}

// arguments are the flags of the peers in Node.
func (h host) arguments() []string {
	return []string{"--host", h.Name, "--address", h.Address, "--certificate", h.Certificate, "--key", h.Key}
}

// openedSecureNetwork starts the network for the first test that needs it.
var openedSecureNetwork = sync.OnceValues(func() (*secureNetwork, error) {
	names, err := load.NewNames()
	if err != nil {
		return nil, err
	}
	authority, err := load.NewAuthority(scratch, "Authority of the network")
	if err != nil {
		return nil, err
	}
	root, err := os.ReadFile(authority.File)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)

	n := &secureNetwork{names: names, authority: authority, hosts: map[string]string{}}
	n.transport = &http.Transport{DialContext: n.dial, TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	return n, nil
})

func openSecureNetwork(t *testing.T) *secureNetwork {
	t.Helper()
	n, err := openedSecureNetwork()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// host finds a loopback address whose port 443 is free, and gives it a name and a certificate. Every call makes another host.
func (n *secureNetwork) host(t *testing.T, label string) host {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()

	address := freeSecureAddress(t)
	made := host{Name: fmt.Sprintf("%s%d.test", label, len(n.hosts)+1), Address: address}
	ip, _, _ := strings.Cut(address, ":")
	if err := n.names.Set(made.Name + ". 60 IN A " + ip); err != nil {
		t.Fatal(err)
	}
	made.Certificate, made.Key = issue(t, n.authority, made.Name)
	n.hosts[made.Name] = ip
	return made
}

// freeSecureAddress chooses at random: other test processes look for such addresses too.
func freeSecureAddress(t *testing.T) string {
	t.Helper()
	var last error
	for range 10 {
		address := fmt.Sprintf("127.%d.%d.%d:443", 1+rand.N(254), rand.N(256), 1+rand.N(254))
		listener, err := net.Listen("tcp", address)
		if errors.Is(err, syscall.EACCES) {
			t.Fatal("this test needs port 443 of loopback addresses: run it as root, or run once as root: sysctl net.ipv4.ip_unprivileged_port_start=443")
		}
		if err == nil {
			if err := listener.Close(); err != nil {
				t.Fatal(err)
			}
			return address
		}
		last = err
	}
	t.Fatalf("find a loopback address whose port 443 is free: %v", last)
	return ""
}

// settings puts a server of ours on a host of its own.
func (n *secureNetwork) settings(t *testing.T, settings instance.Settings) instance.Settings {
	t.Helper()
	at := n.host(t, "agents")
	settings.HTTP, settings.Public = at.Address, at.Name
	settings.CertFile, settings.KeyFile = at.Certificate, at.Key
	settings.DNS, settings.Authority = n.names.Address(), n.authority.File
	return settings
}

// environment is that of a peer in Node, which resolves names in e2e/peers/network.mjs.
func (n *secureNetwork) environment() []string {
	return []string{"NODE_EXTRA_CA_CERTS=" + n.authority.File, "PEER_NAME_SERVER=" + n.names.Address()}
}

func (n *secureNetwork) dial(ctx context.Context, protocol, address string) (net.Conn, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	ip, known := n.hosts[name]
	n.mu.Unlock()
	if !known {
		return nil, fmt.Errorf("the network of the tests has no host %s", name)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, protocol, net.JoinHostPort(ip, port))
}

// anyHost is the transport of this process: hosts of the network are found there, and all others as usual.
type anyHost struct{}

func (anyHost) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme == "https" && strings.HasSuffix(request.URL.Hostname(), ".test") {
		n, err := openedSecureNetwork()
		if err != nil {
			return nil, err
		}
		return n.transport.RoundTrip(request)
	}
	return http.DefaultTransport.RoundTrip(request)
}
