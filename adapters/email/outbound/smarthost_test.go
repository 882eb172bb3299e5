package outbound

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/internal/await"
	"inbox/internal/fault"
)

func TestDeadKeptSessionIsReplaced(t *testing.T) {
	k := emailtest.StartSink(t, false, nil, "")
	host := toSmarthost(t, SmarthostOptions{URL: "smtp://" + k.Address})
	if _, err := host.Send(t.Context(), letterTo("ann@sender.test")); err != nil {
		t.Fatal(err)
	}

	host.pool.mu.Lock()
	_ = host.pool.idle[0].conn.Close()
	host.pool.mu.Unlock()
	if _, err := host.Send(t.Context(), letterTo("ann@sender.test")); err != nil {
		t.Errorf("%v", err)
	}
}

func toSmarthost(t *testing.T, o SmarthostOptions) *Smarthost {
	t.Helper()
	o.Hostname, o.Dialer = "mx.inbox.test", &net.Dialer{}
	host, err := NewSmarthost(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(host.Close)
	return host
}

func TestSmarthostTLSAndLogin(t *testing.T) {
	certificate, pool := emailtest.SelfSigned(t)
	config := &tls.Config{Certificates: []tls.Certificate{certificate}}
	for name, c := range map[string]struct {
		implicit bool
		config   *tls.Config
		login    string
		relaxed  bool
		trusted  bool
		want     string // part of the error, empty = delivered
	}{
		"starttls with login":              {config: config, login: "user%40x.test:pw@", trusted: true},
		"implicit with login":              {implicit: true, config: config, login: "user%40x.test:pw@", trusted: true},
		"starttls without login":           {config: config, trusted: true},
		"wrong password":                   {config: config, login: "user%40x.test:no@", trusted: true, want: "refused the login"},
		"unknown certificate":              {config: config, login: "user%40x.test:pw@", want: "certificate"},
		"unknown certificate, development": {config: config, relaxed: true},
		"unknown certificate and a login":  {config: config, relaxed: true, login: "user%40x.test:pw@", want: "certificate"},
		"password in the clear":            {login: "user%40x.test:pw@", want: "must not travel in the clear"},
		"password in the clear, allowed":   {login: "user%40x.test:pw@", relaxed: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := emailtest.StartSink(t, c.implicit, c.config, "pw")
			scheme := "smtp://"
			if c.implicit {
				scheme = "smtps://"
			}
			o := SmarthostOptions{URL: scheme + c.login + k.Address, Relaxed: c.relaxed}
			if c.trusted {
				o.TLS = &tls.Config{RootCAs: pool}
			}
			_, err := toSmarthost(t, o).Send(t.Context(), letterTo("ann@sender.test"))
			_, logins, mails := k.Counts()
			if c.want == "" {
				if err != nil || mails != 1 || (c.login != "") != (logins == 1) {
					t.Errorf("%v, %d mails, %d logins", err, mails, logins)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || fault.Of(err).Permanent || strings.Contains(err.Error(), "pw") {
				t.Errorf("error %v; want %q, to be repeated", err, c.want)
			}
		})
	}
}

func TestCancelledDeliveryEnds(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	accepted := make(chan net.Conn, 1)
	go func() {
		if conn, err := listener.Accept(); err == nil {
			accepted <- conn // and never a greeting
		}
	}()
	host := toSmarthost(t, SmarthostOptions{URL: "smtp://" + listener.Addr().String()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := host.Send(ctx, Mail{Recipients: []string{"a@b.test"}})
		ended <- err
	}()
	conn := await.Receive(t, accepted, "the connection to the smarthost")
	cancel()
	if err := await.Receive(t, ended, "the end of the delivery"); err == nil || fault.Of(err).Permanent {
		t.Errorf("error %v", err)
	}
	_ = conn.Close()
}

func TestEarlyBytesBeforeTLSAreRefused(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() {
		buffer := make([]byte, 512)
		_, _ = theirs.Write([]byte("220 x ESMTP\r\n"))
		_, _ = theirs.Read(buffer)
		_, _ = theirs.Write([]byte("250-x\r\n250 STARTTLS\r\n"))
		_, _ = theirs.Read(buffer)
		_, _ = theirs.Write([]byte("220 go\r\n250 injected\r\n"))
		_ = theirs.Close()
	}()
	if _, err := startTLS(ours, "mx.inbox.test"); err == nil || !strings.Contains(err.Error(), "before TLS") {
		t.Errorf("error %v", err)
	}
	_ = ours.Close()
}

func TestSmarthostURL(t *testing.T) {
	for text, want := range map[string]string{
		"smtp://mail.test": "mail.test:587", "smtps://u:p@mail.test": "mail.test:465", "smtp://mail.test:25/": "mail.test:25", "smtp://[::1]:2525": "[::1]:2525",
		"http://mail.test": "", "mail.test:25": "", "": "", "smtp://": "", "smtp://mail.test/x": "",
	} {
		got, err := SmarthostAddress(text)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Error("the error shows the password")
		}
	}
}
