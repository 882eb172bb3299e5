package email

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"inbox/adapters/email/emailtest"
	"inbox/normalized"
)

func TestAuthenticationOutcomes(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := func(domain string) func(*emailtest.NameServer) {
		return func(n *emailtest.NameServer) {
			name, value := DNSRecord(domain, "s1", emailtest.SenderKey())
			n.Text(name, value)
		}
	}
	text := func(name, value string) func(*emailtest.NameServer) {
		return func(n *emailtest.NameServer) { n.Text(name, value) }
	}
	spf := func(domain string) func(*emailtest.NameServer) { return text(domain, "v=spf1 ip4:127.0.0.1 -all") }
	for name, c := range map[string]struct {
		records []func(*emailtest.NameServer)
		from    string // header From domain
		signer  string // empty = unsigned
		mail    string // envelope domain; empty = null sender
		tamper  bool
		want    string
		method  string
		claim   string
	}{
		"dmarc by dkim":                        {from: "sender.test", signer: "sender.test", mail: "other.test", want: "250", method: normalized.AuthEmailDMARC, claim: `"by":"dkim"`},
		"dmarc by spf":                         {from: "spf.test", mail: "spf.test", records: []func(*emailtest.NameServer){spf("spf.test"), text("_dmarc.spf.test", "v=DMARC1; p=reject")}, want: "250", method: normalized.AuthEmailDMARC, claim: `"by":"spf"`},
		"reject without proof":                 {from: "sender.test", mail: "sender.test", want: "550 5.7.26"},
		"reject when the body changed":         {from: "sender.test", signer: "sender.test", tamper: true, mail: "sender.test", want: "550 5.7.26"},
		"reject with a stranger's signature":   {from: "sender.test", signer: "evil.test", records: []func(*emailtest.NameServer){key("evil.test")}, mail: "evil.test", want: "550 5.7.26"},
		"reject lowered by t=y":                {from: "test.test", records: []func(*emailtest.NameServer){text("_dmarc.test.test", "v=DMARC1; p=reject; t=y")}, mail: "x.test", want: "250", method: "none"},
		"quarantine":                           {from: "q.test", records: []func(*emailtest.NameServer){text("_dmarc.q.test", "v=DMARC1;p=quarantine")}, mail: "x.test", want: "250", method: "none"},
		"none":                                 {from: "n.test", records: []func(*emailtest.NameServer){text("_dmarc.n.test", "v=DMARC1;p=none")}, mail: "x.test", want: "250", method: "none"},
		"no record, aligned dkim":              {from: "plain.test", signer: "plain.test", records: []func(*emailtest.NameServer){key("plain.test")}, mail: "x.test", want: "250", method: normalized.AuthEmailDKIM},
		"no record, parent signs":              {from: "mail.plain.test", signer: "plain.test", records: []func(*emailtest.NameServer){key("plain.test")}, mail: "x.test", want: "250", method: normalized.AuthEmailDKIM},
		"no record, spf only":                  {from: "spf.test", mail: "spf.test", records: []func(*emailtest.NameServer){spf("spf.test")}, want: "250", method: "none"},
		"no record, nothing":                   {from: "plain.test", mail: "plain.test", want: "250", method: "none"},
		"subdomain inherits":                   {from: "deep.sender.test", mail: "x.test", want: "550 5.7.26"},
		"subdomain signed by the organization": {from: "deep.sender.test", signer: "sender.test", mail: "x.test", want: "250", method: normalized.AuthEmailDMARC},
		"strict alignment":                     {from: "a.strict.test", signer: "strict.test", records: []func(*emailtest.NameServer){key("strict.test"), text("_dmarc.strict.test", "v=DMARC1; p=reject; adkim=S")}, mail: "x.test", want: "550 5.7.26"},
		"sp for subdomains":                    {from: "a.sp.test", records: []func(*emailtest.NameServer){text("_dmarc.sp.test", "v=DMARC1; p=reject; sp=none"), spf("a.sp.test")}, mail: "x.test", want: "250", method: "none"},
		"np for missing subdomains":            {from: "a.np.test", records: []func(*emailtest.NameServer){text("_dmarc.np.test", "v=DMARC1; p=none; np=reject")}, mail: "x.test", want: "550 5.7.26"},
		"two records are none":                 {from: "two.test", records: []func(*emailtest.NameServer){func(n *emailtest.NameServer) { n.Text("_dmarc.two.test", "v=DMARC1; p=reject", "v=DMARC1; p=reject") }}, mail: "x.test", want: "250", method: "none"},
		"a test key proves nothing":            {from: "sender.test", signer: "sender.test", records: []func(*emailtest.NameServer){testKey("sender.test")}, mail: "x.test", want: "550 5.7.26"},
		"our own domain":                       {from: "inbox.test", mail: "x.test", want: "550 5.7.26"},
		"policy out of reach":                  {from: "broken.test", records: []func(*emailtest.NameServer){func(n *emailtest.NameServer) { n.Break("_dmarc.broken.test") }}, mail: "x.test", want: "451 4.7.5"},
		"policy out of reach, signed":          {from: "broken.test", signer: "broken.test", records: []func(*emailtest.NameServer){key("broken.test"), func(n *emailtest.NameServer) { n.Break("_dmarc.broken.test") }}, mail: "x.test", want: "250", method: normalized.AuthEmailDKIM},
		"key out of reach":                     {from: "sender.test", signer: "sender.test", records: []func(*emailtest.NameServer){func(n *emailtest.NameServer) { n.Break("s1._domainkey.sender.test") }}, mail: "x.test", want: "451 4.7.5"},
		"ed25519":                              {from: "sender.test", signer: "ed:sender.test", records: []func(*emailtest.NameServer){text("s1._domainkey.sender.test", "v=DKIM1; k=ed25519; p="+base64.StdEncoding.EncodeToString(edwards.Public().(ed25519.PublicKey)))}, mail: "x.test", want: "250", method: normalized.AuthEmailDMARC, claim: `"bits":256`},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			for _, change := range c.records {
				change(s.names)
			}
			mail := emailtest.Letter("body text", "From: Ann <ann@"+c.from+">")
			if domain, edward := strings.CutPrefix(c.signer, "ed:"); edward {
				mail = emailtest.SignedAs(t, mail, domain, "s1", edwards)
			} else if c.signer != "" {
				mail = emailtest.SignedAs(t, mail, c.signer, "s1", emailtest.SenderKey())
			}
			if c.tamper {
				mail = strings.Replace(mail, "body text", "evil text", 1)
			}
			got := s.greet().send("bounce@"+c.mail, []string{"echo@inbox.test"}, mail, "")
			if !strings.HasPrefix(got, c.want) {
				t.Fatalf("answer %q; want %s", got, c.want)
			}
			if c.method == "" {
				return
			}
			sender := s.engine.Only(t).Message.Sender
			if sender.AuthMethod != c.method || sender.Verified != (c.method != "none") || len(sender.Identities) > 0 != sender.Verified {
				t.Errorf("sender %+v; want %s", sender, c.method)
			}
			if claims := string(sender.Profile.Extensions["email"]); !strings.Contains(claims, c.claim) {
				t.Errorf("claims %s; want %s", claims, c.claim)
			}
		})
	}
}

func testKey(domain string) func(*emailtest.NameServer) {
	return func(n *emailtest.NameServer) {
		name, value := DNSRecord(domain, "s1", emailtest.SenderKey())
		n.Text(name, strings.Replace(value, "k=rsa;", "k=rsa; t=y;", 1))
	}
}

func TestDNSTroubleEndsInUnverifiedMail(t *testing.T) {
	s := start(t, nil)
	s.names.Break("s1._domainkey.sender.test")
	mail := emailtest.Signed(t, emailtest.Letter("patience"))
	w := s.greet()
	for range maxTries {
		w.send("ann@sender.test", []string{"echo@inbox.test"}, mail, "451 4.7.5")
	}
	w.send("ann@sender.test", []string{"echo@inbox.test"}, mail, "250")
	if sender := s.engine.Only(t).Message.Sender; sender.Verified {
		t.Errorf("sender %+v", sender)
	}
}

func TestCostlySignaturesAreLeftOut(t *testing.T) {
	s := start(t, nil)
	bomb := "DKIM-Signature: v=1; a=rsa-sha256; d=sender.test; s=s1; bh=x; b=x; h=from" + strings.Repeat(":x", 500) + "\r\n"
	s.greet().send("ann@sender.test", []string{"echo@inbox.test"}, bomb+emailtest.Signed(t, emailtest.Letter("fine")), "250")
	claims := claimsOf(t, s.engine.Only(t).Message.Sender.Identities[0])
	if strings.Count(claims, `"d":`) != 1 {
		t.Errorf("claims %s", claims)
	}
}

func TestForgedResultsAreRemoved(t *testing.T) {
	s := start(t, nil)
	mail := "Authentication-Results: MX.inbox.test; dmarc=pass\r\n\theader.from=bank.test\r\n"
	for _, id := range []string{"(c) mx.inbox.test", "((a) b)\r\n mx.inbox.test 1", `"mx.inbox.test"`, "mx.inbox.test.", "inbox.test", "mx.inbox.test(c)", "\r\n\tmx.inbox.test"} {
		mail += "Authentication-Results: " + id + "; dmarc=pass header.from=bank.test\r\n"
	}
	mail += "authentication-results : mx.inbox.test; dmarc=pass header.from=bank.test\r\n" +
		"Authentication-Results: other.test; spf=pass\r\n" + emailtest.Letter("x", "From: ann@plain.test")
	s.greet().send("ann@plain.test", []string{"echo@inbox.test"}, mail, "250")
	original := string(s.engine.Only(t).Original)
	if strings.Contains(original, "bank.test") || !strings.Contains(original, "other.test; spf=pass") {
		t.Errorf("original:\n%s", original)
	}
	for _, want := range []string{"Return-Path: <ann@plain.test>\r\n", "Authentication-Results: mx.inbox.test;", "dmarc=none", "Received: from client.sender.test ([127.0.0.1])\r\n\tby mx.inbox.test with ESMTP id "} {
		if !strings.Contains(original, want) {
			t.Errorf("original misses %q:\n%s", want, original)
		}
	}
}

func TestLookupsAreSharedAndBounded(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	for range 5 {
		w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("x")), "250")
	}
	s.names.Mu.Lock()
	defer s.names.Mu.Unlock()
	for name, times := range s.names.Asked {
		most := 1
		if name == "sender.test." {
			most = 2 // SPF and null MX
		}
		if times > most {
			t.Errorf("%s was asked %d times", name, times)
		}
	}
}

// TestNamesThatExist tells an empty name from one that is not there: np= is about the second alone.
func TestNamesThatExist(t *testing.T) {
	s := start(t, nil)
	s.names.Text("_dmarc.plain.test", "v=DMARC1; p=none; sp=none; np=reject")
	s.names.Text("x.between.plain.test", "here")
	s.names.With(func() { s.names.Empty = map[string]bool{dns.Fqdn("between.plain.test"): true} })
	w := s.greet()
	w.send("ann@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: ann@between.plain.test", "Message-ID: <1@x.test>"), "250")
	w.send("ann@plain.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: ann@nothing.plain.test", "Message-ID: <2@x.test>"), "550 5.7.26")
}

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
			sender := s.engine.Only(t).Message.Sender
			if sender.AuthMethod != normalized.AuthEmailDMARC || !strings.Contains(claimsOf(t, sender.Identities[0]), `"arc":{"result":"pass","sealers":["list.test"`) {
				t.Errorf("sender %+v: %s", sender, claimsOf(t, sender.Identities[0]))
			}
		})
	}
}
