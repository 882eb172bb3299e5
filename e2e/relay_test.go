package e2e

import (
	"crypto/tls"
	"encoding/pem"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"

	"inbox/adapters/email/emailtest"
	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/operator/doctor"
)

// relayLogin is the URL of a relay with the password that it knows.
func relayLogin(address, password string) string {
	return "smtp://user%40x.test:" + password + "@" + address
}

// TestRelayIsTriedAndTested: with a relay whose certificate comes from an own authority, the doctor and inbox mail send-test say whether mail
// leaves, and what the relay said if it does not.
func TestRelayIsTriedAndTested(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		certificate, _ := emailtest.SelfSigned(t)
		roots := filepath.Join(t.TempDir(), "roots.pem")
		if err := os.WriteFile(roots, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}), 0o600); err != nil {
			t.Fatal(err)
		}
		names, err := load.NewNames()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(names.Close)
		relay := emailtest.StartSink(t, false, &tls.Config{Certificates: []tls.Certificate{certificate}}, "right")
		s := start(t, instance.Settings{Database: database, Domain: "inbox.test", DNS: names.Address(), Smarthost: relayLogin(relay.Address, "right"), RelayCA: roots})

		if found := s.examined(t, "mail.smarthost"); found.Status != "ok" {
			t.Errorf("the doctor says %+v", found)
		}
		if said := s.inbox("mail", "send-test", "ann@sender.test"); !strings.Contains(said, "delivered") {
			t.Errorf("the test mail: %s", said)
		}
		relay.Mu.Lock()
		mails := slices.Clone(relay.Mails)
		relay.Mu.Unlock()
		if len(mails) != 1 || !strings.Contains(mails[0], "Subject: Test mail of inbox.test") || !strings.Contains(mails[0], "DKIM-Signature:") {
			t.Errorf("the relay has %d mails: %q", len(mails), mails)
		}

		relay.Set(func(step, _ string) error {
			if step == "rcpt" {
				return &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user"}
			}
			return nil
		})
		said, err := s.Run(t.Context(), "mail", "send-test", "nobody@sender.test")
		if err == nil || !strings.Contains(said, "dead") || !strings.Contains(said, "no such user") {
			t.Errorf("a refused test mail: %v\n%s", err, said)
		}
		if _, err := s.Run(t.Context(), "mail", "send-test", "echo@inbox.test"); err == nil || !strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("a test mail to this server: %v", err)
		}

		for _, fault := range []struct{ url, roots, detail string }{
			{relayLogin(relay.Address, "wrong"), roots, "refused the login"},
			{relayLogin(relay.Address, "right"), "", "certificate"},
		} {
			s.Settings.Smarthost, s.Settings.RelayCA = fault.url, fault.roots
			if err := s.Configure(); err != nil {
				t.Fatal(err)
			}
			if found := s.examined(t, "mail.smarthost"); found.Status != "fail" || !strings.Contains(found.Detail, fault.detail) || found.Remedy == "" {
				t.Errorf("the doctor says %+v; want a failure with %q", found, fault.detail)
			}
		}
	})
}

// examined returns what the doctor finds of one thing; others may fail here.
func (s *server) examined(t *testing.T, name string) doctor.Finding {
	t.Helper()
	said, err := s.Run(t.Context(), "doctor", "--json")
	var findings []doctor.Finding
	if parsed := decodeList(said, &findings); parsed != nil {
		t.Fatalf("the doctor says %q: %v, %v", said, err, parsed)
	}
	for _, one := range findings {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("the doctor says nothing of %s: %+v", name, findings)
	return doctor.Finding{}
}
