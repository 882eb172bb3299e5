package email

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/normalized"
)

// sealProgram reads the results itself: dkimpy would want one more package for that.
const sealProgram = `import sys, types, dkim
class Results:
    def __init__(self, text):
        first, *rest = text.split(":", 1)[1].split(";")
        self.authserv_id = first.strip()
        pairs = [one.split()[0].split("=") for one in rest if one.strip()]
        self.results = [types.SimpleNamespace(method=method, result=result) for method, result in pairs]
    parse = classmethod(lambda cls, text: cls(text))
dkim.authres = types.SimpleNamespace(AuthenticationResultsHeader=Results, core=types.SimpleNamespace(SyntaxError=ValueError))
mail = sys.stdin.buffer.read()
sets = dkim.arc_sign(mail, b"s1", sys.argv[1].encode(), open(sys.argv[2], "rb").read(), sys.argv[1].encode(), include_headers=[b"from", b"to", b"subject", b"message-id"])
sys.stdout.buffer.write(b"".join(sets) + mail)
`

// sealed lets dkimpy seal a mail that a forwarder checked and then changed.
func sealed(t *testing.T, sealer, mail string) string {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(emailtest.SenderKey())}), 0o600); err != nil {
		t.Fatal(err)
	}
	return outside(t, "python3-dkim", mail, "/usr/bin/python3", "-c", sealProgram, sealer, key)
}

func TestSealsOfForwarders(t *testing.T) {
	passed := "Authentication-Results: list.test; dmarc=pass header.from=sender.test\r\n"
	plain := emailtest.Letter("Changed by the list", "From: ann@sender.test")
	once := sealed(t, "list.test", passed+plain)
	twice := sealed(t, "other.test", "Authentication-Results: other.test; arc=pass\r\n"+once)
	for name, row := range map[string]struct {
		mail    string
		sealers []string
		want    string
	}{
		"trusted":                        {once, []string{"list.test"}, "250"},
		"two hops, both trusted":         {twice, []string{"list.test", "other.test"}, "250"},
		"two hops, one trusted":          {twice, []string{"other.test"}, "550 5.7.26"},
		"nobody is trusted":              {once, nil, "550 5.7.26"},
		"another one is trusted":         {once, []string{"third.test"}, "550 5.7.26"},
		"changed after the seal":         {strings.Replace(once, "Changed by", "Forged by", 1), []string{"list.test"}, "550 5.7.26"},
		"another From after the seal":    {strings.Replace(once, "From: ann@", "From: bob@", 1), []string{"list.test"}, "550 5.7.26"},
		"results changed after the seal": {strings.Replace(once, "i=1; list.test; dmarc=pass", "i=1; list.test;  dmarc=pass x=y", 1), []string{"list.test"}, "550 5.7.26"},
		"the forwarder saw a failure":    {sealed(t, "list.test", strings.Replace(passed, "pass", "fail", 1)+plain), []string{"list.test"}, "550 5.7.26"},
		"it saw another From":            {sealed(t, "list.test", strings.Replace(passed, "sender.test", "else.test", 1)+plain), []string{"list.test"}, "550 5.7.26"},
		"a set is missing":               {strings.Replace(twice, "i=1;", "i=3;", 1), []string{"list.test", "other.test"}, "550 5.7.26"},
		"our own domain":                 {sealed(t, "list.test", strings.ReplaceAll(passed+plain, "sender.test", "inbox.test")), []string{"list.test"}, "550 5.7.26"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(o *Options) { o.ARCSealers = row.sealers })
			for _, domain := range []string{"list.test", "other.test"} {
				_, value := DNSRecord(domain, "s1", emailtest.SenderKey())
				s.names.Text("s1._domainkey."+domain, value)
			}
			s.greet().send("bounces@list.test", []string{"echo@inbox.test"}, row.mail, row.want)
			if row.want != "250" {
				return
			}
			sender := s.engine.only(t).Message.Sender
			if sender.AuthMethod != normalized.AuthEmailDMARC || !strings.Contains(claimsOf(t, sender.Identities[0]), `"arc":{"result":"pass","sealers":["list.test"`) {
				t.Errorf("sender %+v: %s", sender, claimsOf(t, sender.Identities[0]))
			}
		})
	}
}
