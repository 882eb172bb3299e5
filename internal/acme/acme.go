// Package acme obtains the certificates of a server from a certificate authority (RFC 8555), renews them in time and shares them
// with the other nodes of its database. It knows no listener: those take Client.TLS and Client.Challenges.
package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	acmeprotocol "github.com/mholt/acmez/v3/acme"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"inbox/internal/telemetry"
)

var orders = promauto.NewCounterVec(prometheus.CounterOpts{
	Name: "inbox_certificate_orders_total",
	Help: "Certificates that were asked of the certificate authority, by result.",
}, []string{"result"})

// Options of a Client.
type Options struct {
	Directory string   // URL of the authority's directory
	RootsFile string   // PEM file with the roots of the authority's own web server; empty = those of the operating system
	Email     string   // to whom the authority writes about its certificates; may be empty
	Names     []string // hosts that get a certificate each
	Documents Documents
	Resolver  string // host:port for the names of the authority; empty = that of the operating system

	Listen     string // host:port of the listener with TLS, which answers tls-alpn-01
	ListenHTTP string // host:port of the listener that passes requests through Challenges, which answers http-01; empty = none
	DNS        DNS    // answers dns-01; with a provider there is no other proof, and the authority comes to no listener

	// Ordered is told how an order ended: err is what the authority said, nil when there is a certificate. Optional; it must not wait.
	Ordered func(name string, err error)

	CheckEvery time.Duration // how often certificates are looked at; 0 = the library's default
	Logger     *slog.Logger
}

// Client has one certificate for each name.
type Client struct {
	options Options
	cache   *certmagic.Cache
	config  *certmagic.Config
	issuer  *certmagic.ACMEIssuer
	stop    func()
}

// New makes a client; it asks for nothing before Run. Errors: a file with roots that cannot be read.
func New(options Options) (*Client, error) {
	c := &Client{options: options}
	logger := zapLogger(options.Logger)
	c.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert:   func(certmagic.Certificate) (*certmagic.Config, error) { return c.config, nil },
		RenewCheckInterval: options.CheckEvery, Logger: logger,
	})

	c.stop = sync.OnceFunc(c.cache.Stop)
	c.config = certmagic.New(c.cache, certmagic.Config{
		Storage: newStorage(options.Documents, options.Logger), Logger: logger, OnEvent: c.observe,
		// The authority's answers about revocation are asked of hosts that a certificate names; clients ask on their own.
		OCSP: certmagic.OCSPConfig{DisableStapling: true},
	})

	template, err := options.template()
	if err != nil {
		c.stop()
		return nil, err
	}
	template.Logger = logger

	c.issuer = certmagic.NewACMEIssuer(c.config, template)
	c.config.Issuers = []certmagic.Issuer{c.issuer}
	return c, nil
}

// template says how the authority is reached and how it is shown that a name is ours.
func (o Options) template() (certmagic.ACMEIssuer, error) {
	template := certmagic.ACMEIssuer{
		CA: o.Directory, Email: o.Email, Agreed: true, Resolver: o.Resolver,
		DisableHTTPChallenge: o.ListenHTTP == "",
		HTTPProxy:            http.ProxyFromEnvironment,
	}

	// Who asks for challenges comes to ports 80 and 443 of the name; these are where such requests end on this machine.
	var err error
	if template.ListenHost, template.AltTLSALPNPort, err = splitListen(o.Listen); err != nil {
		return template, err
	}
	if o.ListenHTTP != "" {
		if _, template.AltHTTPPort, err = splitListen(o.ListenHTTP); err != nil {
			return template, err
		}
	}

	provider, err := o.DNS.provider()
	if err != nil {
		return template, err
	}
	if provider != nil {
		solver := &certmagic.DNS01Solver{DNSManager: certmagic.DNSManager{DNSProvider: provider, PropagationTimeout: propagation}}
		if o.Resolver != "" {
			solver.Resolvers = []string{o.Resolver}
		}
		template.DNS01Solver = solver
	}
	if o.RootsFile == "" {
		return template, nil
	}

	content, err := os.ReadFile(o.RootsFile)
	if err != nil {
		return template, fmt.Errorf("acme.roots_file: %w", err)
	}
	template.TrustedRoots = x509.NewCertPool()
	if !template.TrustedRoots.AppendCertsFromPEM(content) {
		return template, fmt.Errorf("acme.roots_file: %s has no certificate in PEM", o.RootsFile)
	}
	return template, nil
}

// propagation is how long an order waits until the name servers of a zone show a record; many providers need minutes.
const propagation = 5 * time.Minute

func splitListen(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	return host, port, err
}

// TLS returns the settings of a listener that answers with the certificates, with that of fallback to clients that name no
// host. The authority comes to a listener that answersChallenges for tls-alpn-01.
func (c *Client) TLS(fallback string, answersChallenges bool) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if hello.ServerName == "" {
			named := *hello
			named.ServerName, hello = fallback, &named
		}
		return c.config.GetCertificate(hello)
	}}
	if answersChallenges {
		config.NextProtos = []string{"h2", "http/1.1", acmeTLSProtocol}
	}
	return config
}

// acmeTLSProtocol is the application protocol of tls-alpn-01 (RFC 8737).
const acmeTLSProtocol = "acme-tls/1"

// Challenges answers requests of the authority for http-01, of this node's orders and of other nodes', and leaves every other
// request to next.
func (c *Client) Challenges(next http.Handler) http.Handler {
	return c.issuer.HTTPChallengeHandler(next)
}

// Run obtains the certificates that are missing and renews them until ctx ends. The listeners must be open before: the authority
// comes to them. A name without certificate does not stop the server; it is asked for again, at growing intervals.
func (c *Client) Run(ctx context.Context) error {
	defer c.Close()
	if err := c.config.ManageAsync(ctx, c.options.Names); err != nil && ctx.Err() == nil {
		return fmt.Errorf("obtain certificates: %w", err)
	}

	ticker := time.NewTicker(takeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			c.takeStored(ctx)
		}
	}
}

// takeEvery is how often a name without certificate is looked up among those that are stored.
const takeEvery = 5 * time.Second

// takeStored takes the stored certificates of names that have none here. The library looks once, when it begins: it gives a name up if another
// node was about to store its renewed certificate, and key and certificate did not belong together.
func (c *Client) takeStored(ctx context.Context) {
	for _, name := range c.options.Names {
		if c.End(name).IsZero() {
			_, _ = c.config.CacheManagedCertificate(ctx, name) // there is none yet, or the next look finds it
		}
	}
}

// Close ends a client; it may be called again.
func (c *Client) Close() { c.stop() }

// observe hears of orders and of certificates that are taken from the database.
func (c *Client) observe(_ context.Context, event string, data map[string]any) error {
	name, _ := data["identifier"].(string)
	switch event {
	case "cert_obtained":
		orders.WithLabelValues("obtained").Inc()
		renewed, _ := data["renewal"].(bool)
		c.ordered(name, nil)
		c.options.Logger.Info("certificate obtained", "name", name, "renewal", renewed, "authority", c.options.Directory)
	case "cert_failed":
		orders.WithLabelValues("failed").Inc()
		c.ordered(name, errors.New(explain(data["error"])))
		c.options.Logger.Error("no certificate obtained; it is asked for again", "name", name, "authority", c.options.Directory, "problem", explain(data["error"]))
	case "cached_managed_cert", "cached_unmanaged_cert":
		sans, _ := data["sans"].([]string)
		for _, name := range sans {
			c.report(name)
		}
	}
	return nil
}

// Fresh reports whether a name has a certificate of which more than a third of its life is left: no renewal is due.
func (c *Client) Fresh(name string) bool {
	for _, certificate := range c.cache.AllMatchingCertificates(name) {
		if leaf := certificate.Leaf; leaf != nil && time.Until(leaf.NotAfter) > leaf.NotAfter.Sub(leaf.NotBefore)/3 {
			return true
		}
	}
	return false
}

func (c *Client) ordered(name string, err error) {
	if c.options.Ordered != nil {
		c.options.Ordered(name, err)
	}
}

// report publishes when the newest certificate of a name ends.
func (c *Client) report(name string) {
	if end := c.End(name); !end.IsZero() {
		telemetry.CertificateNotAfter.WithLabelValues(name).Set(float64(end.Unix()))
	}
}

// End returns when the newest certificate of a name ends; zero = there is none.
func (c *Client) End(name string) (end time.Time) {
	for _, certificate := range c.cache.AllMatchingCertificates(name) {
		if certificate.Leaf != nil && certificate.Leaf.NotAfter.After(end) {
			end = certificate.Leaf.NotAfter
		}
	}
	return end
}

// explain puts what the authority said before what the library says about it.
func explain(value any) string {
	err, is := value.(error)
	if !is {
		return "unknown"
	}
	var problem acmeprotocol.Problem
	if errors.As(err, &problem) && problem.Detail != "" {
		return problem.Detail
	}
	return err.Error()
}
