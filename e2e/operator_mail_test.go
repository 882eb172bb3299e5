package e2e

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"net/mail"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/e2e/instance"
	"inbox/e2e/load"
	"inbox/exchange"
)

func (p *post) kept(arguments ...string) []exchange.Mail {
	p.t.Helper()
	var found []exchange.Mail
	if err := decodeList(p.inbox(append(append([]string{"mail"}, arguments...), "--json")...), &found); err != nil {
		p.t.Fatal(err)
	}
	return found
}

// one demands that exactly one mail is found, and returns it as show prints it.
func (p *post) one(arguments ...string) (shown exchange.Mail) {
	p.t.Helper()
	found := p.kept(arguments...)
	if len(found) != 1 {
		p.t.Fatalf("inbox mail %q finds %d mails; want 1: %+v", arguments, len(found), found)
	}
	if err := json.Unmarshal([]byte(p.inbox("mail", "show", found[0].ID, "--json")), &shown); err != nil {
		p.t.Fatal(err)
	}
	return shown
}

// report is a mail with a report of another server, in the form of senders who attach one packed file.
func (p *post) report(name, subject, media, file string) []byte {
	p.t.Helper()
	root, err := instance.Root()
	if err != nil {
		p.t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "adapters", "email", "report", "testdata", name))
	if err != nil {
		p.t.Fatal(err)
	}
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	if _, err := packer.Write(data); err != nil {
		p.t.Fatal(err)
	}
	if err := packer.Close(); err != nil {
		p.t.Fatal(err)
	}

	coded := base64.StdEncoding.EncodeToString(packed.Bytes())
	var lines []string
	for len(coded) > 76 {
		lines, coded = append(lines, coded[:76]), coded[76:]
	}
	whole := load.Mail{From: "dmarc@sender.test", To: "postmaster@inbox.test", MessageID: name + "@sender.test", Subject: subject, Body: strings.Join(append(lines, coded), "\n")}.Bytes()
	return bytes.Replace(whole, []byte("Content-Type: text/plain; charset=utf-8"), []byte("Content-Type: "+media+"; name=\""+file+"\"\r\nContent-Disposition: attachment; filename=\""+file+"\"\r\nContent-Transfer-Encoding: base64"), 1)
}

// forwarded checks a mail that was sent on: our author, our signature, the original whole.
func (p *post) forwarded(to, part string) {
	p.t.Helper()
	got := p.awaitMail(func(one load.Received) bool {
		return len(one.To) == 1 && one.To[0] == to && strings.Contains(string(one.Raw), part)
	})
	from, err := mail.ParseAddress(got.Header.Get("From"))
	if err != nil || from.Address != "postmaster@inbox.test" || got.Header.Get("Auto-Submitted") != "auto-generated" || !strings.HasPrefix(got.Header.Get("Subject"), "Fwd: ") || !strings.HasPrefix(got.From, "bounce+") {
		p.t.Errorf("From %q, envelope from %q, Auto-Submitted %q, Subject %q", got.Header.Get("From"), got.From, got.Header.Get("Auto-Submitted"), got.Header.Get("Subject"))
	}
	if !strings.Contains(string(got.Raw), "Content-Type: message/rfc822") {
		p.t.Errorf("no mail is attached:\n%s", got.Raw)
	}

	output, err := dkimpy(p.t, p.inbox("dns", "--json"), got.Raw)
	var verdict struct{ Domain string }
	if err != nil || json.Unmarshal(output, &verdict) != nil || verdict.Domain != "inbox.test" { // that of From: DMARC passes
		p.t.Errorf("dkimpy does not verify what was sent on: %v %s", err, output)
	}
}

// TestMailForTheOperator: mail to postmaster, a report about DMARC and one about TLS are kept once, shown, searched and sent on; what nothing
// proves is bounded and counts nowhere.
func TestMailForTheOperator(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, database string) {
		p := startPostWith(t, database, agents, func(s *instance.Settings) {
			s.More = "[operator]\nforward_mail = \"me@far.test\"\n[limits]\nmailbox_per_sender = 3\n"
		})
		const words = "Your agent wrote me twice about Zeppelins"
		letter := p.dkimsign(load.Mail{From: `"Ann Sender" <ann@sender.test>`, To: "postmaster@inbox.test", MessageID: "complaint@sender.test", Subject: "A complaint", Body: words}.Bytes())
		p.send("ann@sender.test", "postmaster@inbox.test", letter)
		p.send("ann@sender.test", "postmaster@inbox.test", letter)

		eventually(t, "its words are indexed", func() bool { return len(p.kept("search", "zeppelins", "complaint")) == 1 })
		shown := p.one("search", "zeppelins", "complaint")
		if shown.Mailbox != "postmaster" || shown.Proof != "email-dmarc" || shown.From != "ann@sender.test" || !strings.Contains(shown.Text, words) || !strings.Contains(string(shown.Evidence), `"dkim"`) {
			t.Errorf("%+v", shown)
		}
		if text := p.inbox("mail", "show", shown.ID); !strings.Contains(text, "From:         \"Ann Sender\" <ann@sender.test>") || !strings.Contains(text, words) {
			t.Errorf("inbox mail show prints\n%s", text)
		}
		if raw := p.inbox("mail", "show", shown.ID, "--raw"); !strings.HasSuffix(raw, string(letter)) {
			t.Errorf("the bytes are not those that came:\n%s", raw)
		}
		p.forwarded("me@far.test", words)
		p.inbox("mail", "forward", shown.ID, "desk@far.test")
		p.forwarded("desk@far.test", words)

		p.send("dmarc@sender.test", "postmaster@inbox.test", p.dkimsign(p.report("microsoft-forgery-rejected-and-forwarder-passes.xml", "Report Domain: inbox.test Submitter: sender.test Report-ID: 0f1e", "application/gzip", "sender.test!inbox.test!1764028800!1764115200.xml.gz")))
		p.send("dmarc@sender.test", "postmaster@inbox.test", p.dkimsign(p.report("microsoft-tls-no-policy-and-expired-certificate.json", "Report Domain: inbox.test Submitter: sender.test Report-ID: <1>", "application/tlsrpt+gzip", "sender.test!inbox.test!1!2.json.gz")))
		p.one("list", "--kind", "dmarc")
		p.one("list", "--kind", "tls", "--since", "1h")
		var sums []exchange.ReportSum
		if err := decodeList(p.inbox("mail", "reports", "--json"), &sums); err != nil {
			t.Fatal(err)
		}
		count := map[string]int64{}
		for _, sum := range sums {
			count[sum.Kind+" "+sum.Source+" "+sum.Result] += sum.Count
		}
		for what, want := range map[string]int64{"dmarc 203.0.113.66 fail": 3, "dmarc 2001:db8::25 pass": 1, "tls  success": 3, "tls 198.51.100.20 certificate-expired": 3, "tls  unspecified": 1} {
			if count[what] != want {
				t.Errorf("%s: %d; want %d in %v", what, count[what], want, count)
			}
		}
		if lines := p.inbox("mail", "reports", "list", "--result", "fail"); !strings.Contains(lines, "sender.test") || !strings.Contains(lines, "email-dmarc") {
			t.Errorf("inbox mail reports list prints\n%s", lines)
		}

		// The domain has used its share. Others have theirs, and the mail is put off, not lost in silence.
		file := filepath.Join(t.TempDir(), "fourth.eml")
		fourth := p.dkimsign(load.Mail{From: "ann@sender.test", To: "abuse@inbox.test", MessageID: "fourth@sender.test", Subject: "A fourth", Body: "again"}.Bytes())
		if err := os.WriteFile(file, append(fourth, ".\r\n"...), 0o600); err != nil {
			t.Fatal(err)
		}
		if transcript, ok := p.swaks("--from", "ann@sender.test", "--to", "abuse@inbox.test", "--no-data-fixup", "--data", "@"+file); ok || !strings.Contains(transcript, "452 4.7.0") {
			t.Errorf("a fourth mail of a domain heard\n%s", transcript)
		}
		p.send("ann@plain.test", "abuse@inbox.test", load.Mail{From: "ann@plain.test", To: "abuse@inbox.test", MessageID: "plain@plain.test", Subject: "Unsigned", Body: "x"}.Bytes())
		if shown := p.one("list", "--mailbox", "abuse"); shown.Proof != "none" {
			t.Errorf("proof %q", shown.Proof)
		}
	})
}

// TestCapturedMailIsFound: what mail.mode = capture kept is listed, searched and shown.
func TestCapturedMailIsFound(t *testing.T) {
	p := startPostWith(t, "", agents, func(s *instance.Settings) { s.Smarthost = "" })
	p.send("ann@sender.test", "echo@inbox.test", p.dkimsign(p.mail("captured@sender.test", "echo@inbox.test", nil)))
	eventually(t, "the answer is captured", func() bool { return len(p.kept("list", "--kind", "captured")) == 1 })
	eventually(t, "its words are indexed", func() bool { return len(p.kept("search", "what is this", "--kind", "captured")) == 1 })
	shown := p.one("search", "what is this", "--kind", "captured")
	if shown.Mailbox != "echo" || shown.From != "echo@inbox.test" || len(shown.To) != 1 || shown.To[0] != "ann@sender.test" || shown.ReplyID == "" || !strings.Contains(shown.Text, "what is this?") {
		t.Errorf("%+v", shown)
	}
}
