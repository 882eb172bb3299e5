package email

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/normalized"
)

// TestOutsideSoftware brings a mail signed by dkimpy with swaks and lets dkimpy verify the reply's signature.
func TestOutsideSoftware(t *testing.T) {
	s := start(t, nil)
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(emailtest.SenderKey())}), 0o600); err != nil {
		t.Fatal(err)
	}
	mail := outside(t, "python3-dkim", emailtest.Letter("Signed elsewhere.\n.\nEnd", "Reply-To: ann@sender.test"), "dkimsign", "s1", "sender.test", key)
	message := filepath.Join(t.TempDir(), "mail.eml")
	if err := os.WriteFile(message, []byte(mail), 0o600); err != nil {
		t.Fatal(err)
	}
	transcript := outside(t, "swaks", "", "swaks", "--server", s.adapter.Addr().String(), "--from", "ann@sender.test", "--to", "echo@inbox.test",
		"--ehlo", "client.sender.test", "--data", "@"+message)
	if !strings.Contains(transcript, "250 2.0.0 OK: queued") {
		t.Fatal(transcript)
	}
	in := s.engine.Only(t)
	if in.Message.Sender.AuthMethod != normalized.AuthEmailDMARC || in.Message.Parts[0].Content != "Subject: A question\n\nSigned elsewhere.\n.\nEnd" {
		t.Fatalf("message %+v", in.Message)
	}
	if _, err := s.deliver(replyTo(in, normalized.Markdown("# Answer\n\nto *dkimpy*"), file("a.bin", "", []byte{1, 2, 3}))); err != nil {
		t.Fatal(err)
	}
	name, value := s.adapter.DNSRecord()
	verify := "import sys, dkim\nok = dkim.verify(sys.stdin.buffer.read(), dnsfunc=lambda name, timeout=5: sys.argv[2].encode() if name.decode().rstrip('.') == sys.argv[1] else b'')\nprint('verified' if ok else 'failed')\n"
	got := outside(t, "python3-dkim", string(s.captured()[0].Raw), "/usr/bin/python3", "-c", verify, name, value)
	if strings.TrimSpace(got) != "verified" {
		t.Errorf("dkimpy says %q about:\n%s", got, s.captured()[0].Raw)
	}
}

// readsMails verifies mails with dkimpy and prints what the email package of Python reads in them.
const readsMails = `import sys, json, base64, dkim, email, email.policy
seen = []
for coded in json.load(sys.stdin):
    raw = base64.b64decode(coded)
    ok = dkim.verify(raw, dnsfunc=lambda name, timeout=5: sys.argv[2].encode() if name.decode().rstrip('.') == sys.argv[1] else b'')
    mail = email.message_from_bytes(raw, policy=email.policy.default)
    seen.append({'verified': ok, 'subject': mail['subject'], 'to': [[a.display_name, a.addr_spec] for a in mail['to'].addresses],
        'text': mail.get_body(preferencelist=('plain',)).get_content().replace('\r\n', '\n'),
        'files': [[f.get_filename(), f.get_content_type()] for f in mail.iter_attachments()], 'references': (mail['references'] or '').split(),
        'longest': max(len(line) for line in raw.split(b'\r\n')),
        'defects': [str(d) for d in mail.defects] + [str(d) for h in mail.values() for d in getattr(h, 'defects', [])]})
print(json.dumps(seen))
`

// readMail is what Python read.
type readMail struct {
	Verified      bool
	Subject, Text string
	To, Files     [][2]string
	References    []string
	Longest       int
	Defects       []string
}

// TestAnswersAsPythonReadsThem lets other software verify and read answers to questions with everything that is hard to write.
func TestAnswersAsPythonReadsThem(t *testing.T) {
	s := start(t, nil)
	name, value := s.adapter.DNSRecord()
	long := strings.Repeat("日本語の件名", 40)
	cases := map[string]struct {
		head                   []string
		text                   string
		files                  []normalized.Part
		subject, person, names string
	}{
		"a long subject of another script": {head: []string{"Subject: " + long}, text: "x", subject: "Re: " + long, person: "Ann Sender"},
		"a subject that looks encoded":     {head: []string{"Subject: =?utf-8?q?=3D=3Futf-8=3Fq=3Fx=3F=3D?="}, text: "x", subject: "Re: =?utf-8?q?x?=", person: "Ann Sender"},
		"a long subject without blanks":    {head: []string{"Subject: " + strings.Repeat("x", 790)}, text: "x", subject: "Re: " + strings.Repeat("x", 790), person: "Ann Sender"},
		"a name with everything":           {head: []string{`From: "M\"ü\\ller, (Jörg); 😀: [1]" <ann@sender.test>`}, text: "x", subject: "Re: A question", person: `M"ü\ller, (Jörg); 😀: [1]`},
		"a plain name with marks":          {head: []string{`From: "O'Hara, Ann (\"Boss\")" <ann@sender.test>`}, text: "x", subject: "Re: A question", person: `O'Hara, Ann ("Boss")`},
		"odd lines":                        {text: ".\n..\nFrom here\n" + strings.Repeat("y", 3000) + "\n\ttab  \nGrüße =C3 = 😀\n.", subject: "Re: A question", person: "Ann Sender"},
		"names of files": {text: "x", subject: "Re: A question", person: "Ann Sender", names: "[[über \"uns\"; (1).txt text/plain] [日本.pdf application/pdf] [a b.csv text/csv]]",
			files: []normalized.Part{file("über \"uns\"; (1).txt", "text/plain", []byte("Grüße")), file("日本.pdf", "application/pdf", []byte("%PDF")), file("a b.csv", "text/csv; charset=latin1", []byte("a;b"))}},
		"a chain of long references": {head: []string{"References: <" + strings.Repeat("r", 700) + "@far.test>\r\n\t<b@far.test>"}, text: "x", subject: "Re: A question", person: "Ann Sender"},
	}
	var mails [][]byte
	titles := slices.Sorted(maps.Keys(cases))
	for _, title := range titles {
		in := s.question(true, append(cases[title].head, "Message-ID: <"+strings.ReplaceAll(title, " ", ".")+"@sender.test>")...)
		reply := replyTo(in, append([]normalized.Part{normalized.Text(cases[title].text)}, cases[title].files...)...)
		reply.ID = "01936f2a-0000-7000-8000-" + digestOf([]byte(title))[:12]
		if _, err := s.deliver(reply); err != nil {
			t.Fatal(err)
		}
		for _, one := range s.captured() {
			if one.ReplyID == reply.ID {
				mails = append(mails, one.Raw)
			}
		}
	}
	coded, err := json.Marshal(mails)
	if err != nil {
		t.Fatal(err)
	}
	var seen []readMail
	if err := json.Unmarshal([]byte(outside(t, "python3-dkim", string(coded), "/usr/bin/python3", "-c", readsMails, name, value)), &seen); err != nil || len(seen) != len(cases) {
		t.Fatalf("%d mails were read, %v", len(seen), err)
	}
	for i, title := range titles {
		t.Run(title, func(t *testing.T) {
			c, read := cases[title], seen[i]
			if !read.Verified || read.Longest > 998 || len(read.Defects) > 0 {
				t.Errorf("verified %t, longest line %d, defects %q in\n%s", read.Verified, read.Longest, read.Defects, mails[i])
			}
			if read.Subject != c.subject || len(read.To) != 1 || read.To[0] != [2]string{c.person, "ann@sender.test"} || strings.TrimRight(read.Text, "\n") != strings.TrimRight(c.text, "\n") {
				t.Errorf("read %+v in\n%s", read, mails[i])
			}
			if got := fmt.Sprint(read.Files); c.names != "" && got != c.names {
				t.Errorf("files %s; want %s", got, c.names)
			}
			if last := "<" + strings.ReplaceAll(title, " ", ".") + "@sender.test>"; len(read.References) == 0 || read.References[len(read.References)-1] != last {
				t.Errorf("references %q", read.References)
			}
		})
	}
}

func outside(t *testing.T, debian, input string, command ...string) string {
	t.Helper()
	run := exec.CommandContext(t.Context(), command[0], command[1:]...)
	run.Stdin = strings.NewReader(input)
	var problems bytes.Buffer
	run.Stderr = &problems
	out, err := run.Output()
	if err != nil {
		t.Fatalf("%s (Debian package %s): %v\n%s%s", command[0], debian, err, out, problems.String())
	}
	return string(out)
}
