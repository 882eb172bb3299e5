package inbox_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"inbox/e2e/load"
	"inbox/exchange"
	"inbox/inboxtest"
)

// TestAProvenMailEndsASuppression by its row alone, also where nothing is answered: another node has accepted it, or this one before it
// was killed.
func TestAProvenMailEndsASuppression(t *testing.T) {
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	domain, err := load.NewMailDomain(names, "sender.test")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "inbox.toml")
	text := "domain = \"inbox.test\"\n[federation]\nallow_private = true\n[dns]\nresolver = \"" + names.Address() + "\"\n[[agents]]\nname = \"busy\"\nkind = \"pull\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := inboxtest.New(t, file, "INBOX_PUBLIC_URL=http://inbox.test:8080", "INBOX_SMTP_LISTEN=127.0.0.1:0").Serve()
	peer, err := load.DialMail(s.MailAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()

	send := func(from, id string, signed bool, extra map[string]string) {
		t.Helper()
		mail := load.Mail{From: from, To: "busy@inbox.test", MessageID: id, Subject: "I am here", Body: "hello", Extra: extra}.Bytes()
		if signed {
			if mail, err = domain.Sign(mail); err != nil {
				t.Fatal(err)
			}
		}
		if err := peer.Send(from, "busy@inbox.test", mail); err != nil {
			t.Fatal(err)
		}
	}
	failed := func(address, delivery string) {
		t.Helper()
		at := time.Now()
		if now, err := s.Suppressions().MailFailed(t.Context(), exchange.MailFailure{Address: address, Kind: exchange.FailureHard, DeliveryID: delivery, At: at}); err != nil || !now {
			t.Fatalf("%s: suppressed now %v, %v", address, now, err)
		}
	}
	suppressed := func(address string) bool {
		t.Helper()
		found, err := s.Suppressions().Suppressed(t.Context(), []string{address})
		if err != nil {
			t.Fatal(err)
		}
		return len(found) > 0
	}

	send("ann@sender.test", "m0@sender.test", true, nil)
	failed("ann@sender.test", "d1")
	if !suppressed("ann@sender.test") {
		t.Error("a mail of before ended it")
	}
	send("Ann@sender.test", "m1@sender.test", true, nil)
	if suppressed("ann@sender.test") {
		t.Error("a proven mail did not end it")
	}
	failed("ann@sender.test", "d2")
	send("ann@sender.test", "m2@sender.test", true, nil)
	failed("ann@sender.test", "d3") // no delivery met what the mail had ended
	if !suppressed("ann@sender.test") {
		t.Error("a mail of before the last failure ended it")
	}

	failed("auto@sender.test", "d4")
	send("auto@sender.test", "m3@sender.test", true, map[string]string{"Auto-Submitted": "auto-replied"})
	if err := s.EndSuppressions(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := s.Operator().Suppressions.List(t.Context(), exchange.SuppressionFilter{Limit: 10})
	if err != nil || len(left) != 1 || left[0].Address != "ann@sender.test" {
		t.Errorf("the operator sees %+v, %v", left, err)
	}
}
