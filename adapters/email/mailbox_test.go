package email

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/exchange/exchangetest"
	"inbox/internal/fault"
	"inbox/normalized"
)

// TestRoleAddresses: postmaster, abuse and the address for reports are the operator's alone, other roles where no agent has their name.
func TestRoleAddresses(t *testing.T) {
	s := start(t, func(o *Options) {
		o.Reports, o.MaxConnectionsPerIP = "DMARC+rua@Inbox.test", 100
		agents := append(exchangetest.Agents{{Name: "security", Address: "@security@inbox.test"}, {Name: "abuse", Address: "@abuse@inbox.test"}}, ourAgents...)
		o.Agents = agents
		s := o.Receiver.(*engine)
		s.Agents = agents
	})
	for to, want := range map[string]string{ // the mailbox; empty = an agent's
		"postmaster@inbox.test": "postmaster", "ABUSE@inbox.test": "abuse", "dmarc@inbox.test": "dmarc", "dmarc+rua@inbox.test": "dmarc", "hostmaster@inbox.test": "hostmaster",
		"webmaster@inbox.test": "webmaster", "noc@inbox.test": "noc", "security@inbox.test": "",
	} {
		before, agents := len(s.mailbox.All("")), len(s.engine.All())
		s.greet().send("a@plain.test", []string{to}, emailtest.Letter("to "+to, "From: a@plain.test", "To: "+to, "Message-ID: <"+strings.ReplaceAll(to, "@", ".")+"@plain.test>"), "250")
		kept := s.mailbox.All(exchange.MailOrdinary)
		got := ""
		for _, mail := range kept {
			if strings.Contains(mail.Text, "to "+to) {
				got = mail.Mailbox
			}
		}
		if got != want || (len(kept) > before) == (len(s.engine.All()) > agents) {
			t.Errorf("%s is in %q; want %q", to, got, want)
		}
	}
}

func TestMailForTheOperatorIsKept(t *testing.T) {
	s := start(t, nil)
	mail := strings.ReplaceAll("From: Ann Sender <ann@sender.test>\nTo: postmaster@inbox.test\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\nMessage-ID: <m1@sender.test>\nDate: Sat, 21 Nov 2026 12:00:00 +0000\n"+
		"MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/html\n\n<p>Your server <b>sends</b> me<script>x</script> spam</p>\n--b\nContent-Type: application/pdf; name=proof.pdf\n"+
		"Content-Disposition: attachment; filename=proof.pdf\nContent-Transfer-Encoding: base64\n\n"+emailtest.InLines(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("%PDF-1.7 "), 20_000)))+"--b--\n", "\n", "\r\n")
	signed := emailtest.Signed(t, mail)
	for range 2 {
		s.greet().send("ann@sender.test", []string{"postmaster@inbox.test", "abuse@inbox.test"}, signed, "250")
	}
	kept := s.mailbox.All("")
	if len(kept) != 2 {
		t.Fatalf("%d mails; want one for each mailbox, and none for the repeat", len(kept))
	}
	one := kept[1]
	if one.Mailbox != "postmaster" || one.From != "ann@sender.test" || one.FromName != "Ann Sender" || one.Subject != "Grüße" || one.MessageID != "m1@sender.test" || one.EnvelopeFrom != "ann@sender.test" {
		t.Errorf("%+v", one.Mail)
	}
	if one.Proof != normalized.AuthEmailDMARC || !one.Proven() || !strings.Contains(string(one.Evidence), `"result":"pass"`) || !one.Answers {
		t.Errorf("proof %s, %s, answers %t", one.Proof, one.Evidence, one.Answers)
	}
	if !strings.Contains(one.Text, "Your server **sends** me spam") && !strings.Contains(one.Text, "Your server sends me spam") {
		t.Errorf("text %q", one.Text)
	}
	if len(one.Files) != 1 || one.Files[0].Name != "proof.pdf" || one.Files[0].Size != 180_000 {
		t.Errorf("files %+v", one.Files)
	}
	if !bytes.HasSuffix(one.Raw, []byte(signed)) || !bytes.HasPrefix(one.Raw, []byte("Return-Path: <ann@sender.test>\r\nAuthentication-Results: ")) {
		t.Errorf("raw:\n%.300s", one.Raw)
	}

	// Someone else cannot keep a mail from being kept by sending another one under its id first.
	s.greet().send("ann@sender.test", []string{"postmaster@inbox.test"}, emailtest.Signed(t, strings.Replace(mail, "spam", "worse", 1)), "250")
	if kept = s.mailbox.All(""); len(kept) != 3 {
		t.Errorf("%d mails; want that with another text too", len(kept))
	}
}

func TestMailThatFindsNoRoom(t *testing.T) {
	s := start(t, nil)
	s.mailbox.Refuse = func(exchange.IncomingMail) error { return &fault.Fault{Kind: fault.RateLimited, Public: "too much"} }
	letter := emailtest.Letter("x", "From: a@plain.test", "To: postmaster@inbox.test")
	s.greet().send("a@plain.test", []string{"postmaster@inbox.test"}, letter, "452 4.7.0")
	s.greet().send("a@plain.test", []string{"postmaster@inbox.test", "echo@inbox.test"}, letter, "452 4.7.0")
	s.mailbox.Refuse = nil
	s.greet().send("a@plain.test", []string{"postmaster@inbox.test", "echo@inbox.test"}, letter, "250")
	if len(s.mailbox.All("")) != 1 || len(s.engine.All()) != 1 {
		t.Errorf("%d mails, %d messages", len(s.mailbox.All("")), len(s.engine.All()))
	}
}

// TestWhatIsSentOn: only what a person wrote elsewhere leaves again by itself.
func TestWhatIsSentOn(t *testing.T) {
	for name, c := range map[string]struct {
		from  string
		lines []string
		want  bool
	}{
		"a letter":                {"a@plain.test", nil, true},
		"an automatic answer":     {"a@plain.test", []string{"Auto-Submitted: auto-replied"}, false},
		"a bounce":                {"", nil, false},
		"a list":                  {"a@plain.test", []string{"List-Id: <l.plain.test>"}, false},
		"from a program":          {"a@plain.test", []string{"From: MAILER-DAEMON@plain.test"}, false},
		"our loop mark":           {"a@plain.test", []string{"X-Loop: postmaster@inbox.test"}, false},
		"with a Message-ID of us": {"a@plain.test", []string{"Message-ID: <1@inbox.test>"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, lines := start(t, nil), c.lines
			if !strings.Contains(strings.Join(lines, "\n"), "From:") {
				lines = append(lines, "From: a@plain.test")
			}
			s.greet().send(c.from, []string{"postmaster@inbox.test"}, emailtest.Letter("x", lines...), "250")
			if kept := s.mailbox.All(""); len(kept) != 1 || kept[0].Answers != c.want {
				t.Errorf("%d mails, sent on %t; want %t", len(kept), len(kept) == 1 && kept[0].Answers, c.want)
			}
		})
	}
}

func reportMail(t *testing.T, file string, change func([]byte) []byte) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("report", "testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	packer := gzip.NewWriter(&packed)
	if _, err := packer.Write(change(data)); err != nil {
		t.Fatal(err)
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	return emailtest.Letter(strings.ReplaceAll(emailtest.InLines(base64.StdEncoding.EncodeToString(packed.Bytes())), "\r", ""),
		"From: Reports <dmarc@sender.test>", "To: postmaster@inbox.test", "Subject: Report domain: inbox.test Submitter: sender.test Report-ID: <1>",
		"Content-Type: application/gzip; name=sender.test!inbox.test!1!2.xml.gz", "Content-Transfer-Encoding: base64")
}

func TestReportsAreRecognised(t *testing.T) {
	same := func(data []byte) []byte { return data }
	const dmarc, tls = "microsoft-forgery-rejected-and-forwarder-passes.xml", "microsoft-tls-no-policy-and-expired-certificate.json"
	for name, c := range map[string]struct {
		file   string
		change func([]byte) []byte
		kind   string
		rows   int
		note   string
	}{
		"of DMARC": {dmarc, same, exchange.MailDMARC, 2, ""},
		"of TLS":   {tls, same, exchange.MailTLS, 5, ""},
		"about a subdomain": {dmarc, func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte("<domain>inbox"), []byte("<domain>sub.inbox"))
		}, exchange.MailDMARC, 2, ""},
		"about somebody else":  {dmarc, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("inbox.test"), []byte("xinbox.test")) }, exchange.MailDMARC, 0, "a report about xinbox.test"},
		"that cannot be read":  {dmarc, func(b []byte) []byte { return b[:500] }, exchange.MailOrdinary, 0, "a report that cannot be read: read XML"},
		"without any report":   {dmarc, func([]byte) []byte { return []byte("nothing") }, exchange.MailOrdinary, 0, "no file of the mail is a report"},
		"of TLS about another": {tls, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("inbox.test"), []byte("else.test")) }, exchange.MailTLS, 0, "a report about else.test"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			s.greet().send("dmarc@sender.test", []string{"postmaster@inbox.test"}, emailtest.Signed(t, reportMail(t, c.file, c.change)), "250")
			all := append(append(s.mailbox.All(exchange.MailOrdinary), s.mailbox.All(exchange.MailDMARC)...), s.mailbox.All(exchange.MailTLS)...)
			if len(all) != 1 || all[0].Kind != c.kind || !strings.Contains(all[0].Note, c.note) || (all[0].Note == "") != (c.note == "") || !all[0].Proven() {
				t.Fatalf("%+v", all)
			}
			rows := 0
			if all[0].Report != nil {
				rows = len(all[0].Report.Rows)
			}
			if rows != c.rows {
				t.Errorf("%d rows; want %d", rows, c.rows)
			}
		})
	}
}

// TestForwardsPassOurOwnDMARC: what is sent on has our author, our signature, and the mail as it was.
func TestForwardsPassOurOwnDMARC(t *testing.T) {
	s := start(t, nil)
	for _, bad := range []string{"", "me@inbox.test", "two@a.test, three@b.test"} {
		if _, err := s.adapter.OpenForward("postmaster", bad, "x"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	route, err := s.adapter.OpenForward("abuse", "me@far.test", "Your server\r\nBcc: all@far.test")
	if err != nil {
		t.Fatal(err)
	}

	for name, original := range map[string]string{
		"plain": "Return-Path: <a@plain.test>\r\n" + emailtest.Letter("Hello,\n\nwe got spam.", "From: a@plain.test"),
		"eight": "Return-Path: <a@plain.test>\r\n" + emailtest.Letter("Grüße", "From: a@plain.test"),
	} {
		reply := exchange.Reply{
			ID: "01936f2a-0000-7000-8000-00000000000" + name[:1], Agent: "echo", Route: route, CreatedAt: time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC),
			Response: normalized.Response{Parts: []normalized.Part{normalized.Text("Mail for abuse@inbox.test"), file("mail.eml", "message/rfc822", []byte(original))}},
		}
		if _, err := s.deliver(reply); err != nil {
			t.Fatal(err)
		}
		var mail []byte
		for _, one := range s.captured() {
			if one.ReplyID == reply.ID {
				mail = one.Raw
			}
		}
		s.verifyOurs(mail)
		fields, body, err := message.Split(mail)
		if err != nil {
			t.Fatal(err)
		}
		if from := fields.Get("From"); from != "<abuse@inbox.test>" && from != "abuse@inbox.test" || fields.Get("Auto-Submitted") != "auto-generated" || fields.Has("List-Unsubscribe") || fields.Has("Bcc") ||
			fields.Decoded("Subject") != "Fwd: Your server Bcc: all@far.test" || fields.Get("To") != "<me@far.test>" {
			t.Errorf("header:\n%s", mail[:len(mail)-len(body)])
		}
		root, err := (&message.Parser{}).Parse(fields, body, 0)
		if err != nil || len(root.Children) != 2 {
			t.Fatalf("%v:\n%s", err, mail)
		}
		attached := root.Children[1]
		want := map[string]string{"plain": "message/rfc822", "eight": "application/octet-stream"}[name]
		if got := attached.Decode(); attached.Media != want || strings.TrimSpace(string(got)) != strings.TrimSpace(original) {
			t.Errorf("%s: %s\n%s", name, attached.Media, got)
		}
	}
}
