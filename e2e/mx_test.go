package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
)

// startDirect is startPost with a server that brings its mail to the servers of the recipients.
func startDirect(t *testing.T, database string) *post {
	t.Helper()
	names, err := load.NewNames()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(names.Close)
	sender, err := load.NewMailDomain(names, "sender.test")
	if err != nil {
		t.Fatal(err)
	}
	outbox := newMailbox()
	sink, err := load.NewSink("127.0.0.1:0", outbox.arrived)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sink.Close)
	at, err := url.Parse(sink.URL())
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(at.Host)
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range []string{"sender.test. 60 IN MX 10 nobody.sender.test.", "sender.test. 60 IN MX 20 mail.sender.test.", "mail.sender.test. 60 IN A 127.0.0.1"} {
		if err := names.Set(record); err != nil {
			t.Fatal(err)
		}
	}
	key := filepath.Join(t.TempDir(), "sender.pem")
	encoded := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(sender.Key)})
	if err := os.WriteFile(key, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	settings := instance.Settings{Database: database, Domain: "inbox.test", Lease: "2s", DNS: names.Address(), MXPort: number, Agents: agents}
	return &post{server: start(t, settings), names: names, sender: sender, outbox: outbox, key: key}
}

// sending is a delivery as the command prints it.
type sending struct{ ID, State, Reason string }

func (p *post) deliveries(state string) []sending {
	p.t.Helper()
	var found []sending
	if err := decodeList(p.inbox("deliveries", "list", "--state", state, "--json"), &found); err != nil {
		p.t.Fatal(err)
	}
	return found
}

func (p *post) suppressed() []exchange.Suppression {
	p.t.Helper()
	var found []exchange.Suppression
	if err := decodeList(p.inbox("mail", "suppressed", "list", "--json"), &found); err != nil {
		p.t.Fatal(err)
	}
	return found
}

func (p *post) awaitDeliveries(state string, count int) (found []sending) {
	p.t.Helper()
	eventually(p.t, strconv.Itoa(count)+" deliveries are "+state, func() bool {
		found = p.deliveries(state)
		return len(found) >= count
	})
	return found
}

func TestMailGoesToTheMXAndABounceFindsIt(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startDirect(t, database)
		const id = "direct@sender.test"
		p.send("ann@sender.test", "echo@inbox.test", p.dkimsign(p.mail(id, "echo@inbox.test", nil)))
		reply := p.outbox.await(t, id)
		p.dkimverify(reply.Raw)
		if !strings.HasPrefix(reply.From, "bounce+") || len(reply.To) != 1 || reply.To[0] != "ann@sender.test" {
			t.Fatalf("envelope from %q to %v", reply.From, reply.To)
		}
		if sent := p.awaitDeliveries("delivered", 1); !strings.HasPrefix(sent[0].Reason, "mail.sender.test[127.0.0.1]") {
			t.Errorf("the operator reads %q", sent[0].Reason)
		}

		report := load.Mail{
			From: "mailer-daemon@sender.test", To: reply.From, MessageID: "dsn@sender.test", Subject: "Undelivered",
			Extra: map[string]string{"Auto-Submitted": "auto-replied"},
			Body: "--b\nContent-Type: text/plain\n\nSorry.\n--b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; mail.sender.test\n\n" +
				"Final-Recipient: rfc822; ann@sender.test\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550 nobody here\n\n--b--",
		}
		const kind = `Content-Type: multipart/report; report-type=delivery-status; boundary="b"`
		p.send("<>", reply.From, p.dkimsign(bytes.Replace(report.Bytes(), []byte("Content-Type: text/plain; charset=utf-8"), []byte(kind), 1)))
		if dead := p.awaitDeliveries("dead", 1); !strings.Contains(dead[0].Reason, "5.1.1") {
			t.Errorf("the delivery is dead because of %q", dead[0].Reason)
		}
		if found := p.suppressed(); len(found) != 1 || found[0].Address != "ann@sender.test" || found[0].Kind != exchange.FailureHard {
			t.Fatalf("suppressed: %+v", found)
		}

		// Who writes is there again: the suppression ends.
		p.send("ann@sender.test", "echo@inbox.test", p.dkimsign(p.mail("second@sender.test", "echo@inbox.test", nil)))
		p.outbox.await(t, "second@sender.test")
		if found := p.suppressed(); len(found) != 0 {
			t.Errorf("suppressed after a proven mail: %+v", found)
		}
	})
}
