package emailtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"inbox/internal/await"
)

// Sink is a real SMTP server that plays the smarthost.
type Sink struct {
	Mu       sync.Mutex
	server   *smtp.Server
	listener *cutListener
	served   chan struct{}
	Address  string
	sessions int
	logins   int
	Mails    []string
	UTF8     []string                          // of each mail, whether SMTPUTF8 was asked for
	refuse   func(step, argument string) error // step: mail, rcpt, data
	password string
}

type sinkSession struct {
	*Sink
}

// StartSink starts one; with config it offers STARTTLS, or speaks TLS from the start when implicit.
func StartSink(t *testing.T, implicit bool, config *tls.Config, password string) *Sink {
	t.Helper()
	return StartSinkWith(t, implicit, config, password, func(*smtp.Server) {})
}

// StartSinkWith is StartSink with a change of the server before it starts.
func StartSinkWith(t *testing.T, implicit bool, config *tls.Config, password string, change func(*smtp.Server)) *Sink {
	t.Helper()
	k := &Sink{password: password}
	k.server = smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		k.Mu.Lock()
		defer k.Mu.Unlock()
		k.sessions++
		return &sinkSession{Sink: k}, nil
	}))

	k.server.Domain, k.server.AllowInsecureAuth, k.server.MaxMessageBytes = "smart.test", true, 1<<20
	k.server.ErrorLog = discardLog{}
	change(k.server)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	if implicit {
		listener = tls.NewListener(listener, config)
	} else {
		k.server.TLSConfig = config
	}

	k.Address = listener.Addr().String()
	k.listener = &cutListener{Listener: listener}
	k.served = make(chan struct{})
	go func() { defer close(k.served); _ = k.server.Serve(k.listener) }()
	t.Cleanup(func() { k.Stop(t) })
	return k
}

// Stop cuts every connection and waits for the end of their sessions. Close of the library is not for a server with
// STARTTLS: it reads the connection of a session that is just replacing it (go-smtp v0.25.1).
func (k *Sink) Stop(t *testing.T) {
	t.Helper()
	k.listener.cut()
	await.Receive(t, k.served, "the end of the sink")
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	if err := k.server.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waited %s for the end of the sink's sessions", await.Patience)
	}
}

// cutListener keeps what it accepted, to close it below the server.
type cutListener struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	ended bool
}

func (l *cutListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	if l.ended {
		_ = conn.Close()
	}

	l.conns = append(l.conns, conn)
	return conn, nil
}

func (l *cutListener) cut() {
	_ = l.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
}

type discardLog struct{}

func (discardLog) Printf(string, ...any) {}

func (discardLog) Println(...any) {}

func (s *sinkSession) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *sinkSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		s.logins++
		if user != "user@x.test" || password != s.password {
			return errors.New("wrong")
		}
		return nil
	}), nil
}

func (s *sinkSession) check(step, argument string) error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.refuse != nil {
		return s.refuse(step, argument)
	}
	return nil
}

func (s *sinkSession) Mail(from string, options *smtp.MailOptions) error {
	s.Mu.Lock()
	s.UTF8 = append(s.UTF8, fmt.Sprint(options.UTF8))
	s.Mu.Unlock()
	return s.check("mail", from)
}

func (s *sinkSession) Rcpt(to string, _ *smtp.RcptOptions) error { return s.check("rcpt", to) }

func (s *sinkSession) Reset() {}

func (s *sinkSession) Logout() error { return nil }

func (s *sinkSession) Data(r io.Reader) error {
	mail, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.check("data", ""); err != nil {
		return err
	}

	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Mails = append(s.Mails, string(mail))
	return nil
}

// Set installs what refuses the steps of a transaction; nil = nothing is refused.
func (k *Sink) Set(refuse func(step, argument string) error) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	k.refuse = refuse
}

// Counts returns how many sessions, logins and mails there were.
func (k *Sink) Counts() (sessions, logins, mails int) {
	k.Mu.Lock()
	defer k.Mu.Unlock()
	return k.sessions, k.logins, len(k.Mails)
}

// SelfSigned returns a certificate for the names of the tests, and a pool that trusts it.
func SelfSigned(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mx.inbox.test"}, NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"mx.inbox.test", "localhost", "mail.test", "*.good.test", "*.b.good.test", "evil.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}

	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}

	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
