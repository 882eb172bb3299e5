package email

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"crypto/x509"
	"encoding/pem"

	"inbox/normalized"
)

// TestOutsideSoftware brings a mail signed by dkimpy with swaks and lets dkimpy verify the reply's signature.
func TestOutsideSoftware(t *testing.T) {
	s := start(t, nil)
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(senderKey())}), 0o600); err != nil {
		t.Fatal(err)
	}
	mail := outside(t, "python3-dkim", letter("Signed elsewhere.\n.\nEnd", "Reply-To: ann@sender.test"), "dkimsign", "s1", "sender.test", key)
	message := filepath.Join(t.TempDir(), "mail.eml")
	if err := os.WriteFile(message, []byte(mail), 0o600); err != nil {
		t.Fatal(err)
	}
	transcript := outside(t, "swaks", "", "swaks", "--server", s.adapter.Addr().String(), "--from", "ann@sender.test", "--to", "echo@inbox.test",
		"--ehlo", "client.sender.test", "--data", "@"+message)
	if !strings.Contains(transcript, "250 2.0.0 OK: queued") {
		t.Fatal(transcript)
	}
	in := s.engine.only(t)
	if in.Message.Sender.AuthMethod != normalized.AuthEmailDMARC || in.Message.Parts[0].Content != "Subject: A question\n\nSigned elsewhere.\n.\nEnd" {
		t.Fatalf("message %+v", in.Message)
	}
	if _, err := s.deliver(replyTo(in, normalized.Markdown("# Answer\n\nto *dkimpy*"), file("a.bin", "", []byte{1, 2, 3}))); err != nil {
		t.Fatal(err)
	}
	name, value := s.adapter.DNSRecord()
	verify := "import sys, dkim\nok = dkim.verify(sys.stdin.buffer.read(), dnsfunc=lambda name, timeout=5: sys.argv[2].encode() if name.decode().rstrip('.') == sys.argv[1] else b'')\nprint('verified' if ok else 'failed')\n"
	got := outside(t, "python3-dkim", string(s.captured()[0].Data), "/usr/bin/python3", "-c", verify, name, value)
	if strings.TrimSpace(got) != "verified" {
		t.Errorf("dkimpy says %q about:\n%s", got, s.captured()[0].Data)
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
