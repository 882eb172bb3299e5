package email

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/emailtest"
	"inbox/internal/await"
)

// TestRelayIsExamined: the doctor talks with a relay as a delivery does, and each fault says what to do. No mail is sent.
func TestRelayIsExamined(t *testing.T) {
	t.Parallel()
	certificate, _ := emailtest.SelfSigned(t)
	withTLS := &tls.Config{Certificates: []tls.Certificate{certificate}}
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged.pem")
	if err := os.WriteFile(damaged, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}

	const login, wrong = "user%40x.test:right@", "user%40x.test:secret-typo@"
	for name, c := range map[string]struct {
		implicit bool
		config   *tls.Config
		login    string
		roots    string
		refuse   error // of MAIL
		closed   bool
		status   string
		detail   string
		remedy   string
	}{
		"STARTTLS, login, sender":     {config: withTLS, login: login, roots: roots, status: FindingOK, detail: "accepts the sender echo@inbox.test"},
		"TLS from the start":          {implicit: true, config: withTLS, login: login, roots: roots, status: FindingOK, detail: "accepts the sender"},
		"self-signed certificate":     {config: withTLS, login: login, status: FindingFail, detail: "certificate", remedy: "mail.smarthost_roots_file"},
		"self-signed, from the start": {implicit: true, config: withTLS, login: login, status: FindingFail, detail: "certificate", remedy: "mail.smarthost_roots_file"},
		"no STARTTLS":                 {login: login, roots: roots, status: FindingFail, detail: "offers no STARTTLS", remedy: "smtps://"},
		"no STARTTLS and no login":    {status: FindingWarn, detail: "unencrypted", remedy: "smtps://"},
		"wrong password":              {config: withTLS, login: wrong, roots: roots, status: FindingFail, detail: "refused the login", remedy: "user and password"},
		"no login where one is needed": {
			config: withTLS, roots: roots, refuse: &smtp.SMTPError{Code: 530, EnhancedCode: smtp.EnhancedCode{5, 7, 0}, Message: "Authentication required"},
			status: FindingFail, detail: "Authentication required", remedy: "user and password",
		},
		"refused sender": {
			config: withTLS, login: login, roots: roots, refuse: &smtp.SMTPError{Code: 553, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "Domain not verified"},
			status: FindingFail, detail: "refused the sender echo@inbox.test: SMTP error 553: Domain not verified", remedy: "verified",
		},
		"nothing listens": {closed: true, status: FindingFail, detail: "nothing listens", remedy: "host and port"},
		"damaged roots":   {config: withTLS, login: login, roots: damaged, status: FindingFail, detail: "has no certificate in PEM", remedy: "mail.smarthost_roots_file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relay := emailtest.StartSink(t, c.implicit, c.config, "right")
			relay.Set(func(step, _ string) error {
				if step == "mail" {
					return c.refuse
				}
				return nil
			})
			if c.closed {
				relay.Stop(t)
			}
			scheme := "smtp://"
			if c.implicit {
				scheme = "smtps://"
			}
			ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
			defer cancel()
			found := Relay{
				URL: scheme + c.login + relay.Address, RootsFile: c.roots, Hostname: "mx.inbox.test", Dialer: func(string) Dialer { return new(net.Dialer) },
			}.Examine(ctx, "echo@inbox.test")
			if found.Name != "mail.smarthost" || found.Status != c.status || !strings.Contains(found.Detail, c.detail) || !strings.Contains(found.Remedy, c.remedy) ||
				(found.Remedy == "") != (c.status == FindingOK) {
				t.Errorf("found %+v; want %s, %q, remedy %q", found, c.status, c.detail, c.remedy)
			}
			if strings.Contains(found.Detail, "secret-typo") {
				t.Errorf("the finding tells the password: %s", found.Detail)
			}
			if _, _, mails := relay.Counts(); mails != 0 {
				t.Errorf("%d mails were sent", mails)
			}
		})
	}
}
