package email

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/authres"
	"github.com/miekg/dns"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/identity"
	"inbox/normalized"
)

//contract:shows message-51
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
	for _, id := range []string{"(c) mx.inbox.test", `"mx.inbox.test"`, "mx.inbox.test(c)"} {
		if read, _, _ := authres.Parse(id + "; dmarc=pass"); read == "mx.inbox.test" {
			t.Errorf("the library reads %s now", id)
		}
	}
	for _, want := range []string{"Return-Path: <ann@plain.test>\r\n", "Authentication-Results: mx.inbox.test;", "dmarc=none", "Received: from client.sender.test ([127.0.0.1])\r\n\tby mx.inbox.test with ESMTP id "} {
		if !strings.Contains(original, want) {
			t.Errorf("original misses %q:\n%s", want, original)
		}
	}
}

// TestDamagedMailsAreKeptMended: a program that shows the kept original must not find fields that this server did not see, such as results in its name.
func TestDamagedMailsAreKeptMended(t *testing.T) {
	s := start(t, nil)
	const top, below = "From: ann@plain.test\r\nTo: echo@inbox.test\r\nMessage-ID: <m@plain.test>\r\n", "no field\r\nAuthentication-Results: mx.inbox.test; dmarc=pass\r\nSubject: hidden\r\n\r\nHello\r\n"
	s.greet().send("ann@plain.test", []string{"echo@inbox.test"}, "From ann@plain.test Thu Nov 26 10:00:00 2026\r\n>From x\r\n"+top+below, "250")
	in := s.engine.Only(t)
	original := string(in.Original)
	if strings.Contains(original, "From ann") || strings.Contains(original, ">From") || !strings.HasSuffix(original, top+"\r\n"+below) {
		t.Errorf("original:\n%s", original)
	}
	fields, body, err := message.Split(in.Original)
	if err != nil || fields.Has("Subject") || len(fields.All("Authentication-Results")) != 1 || string(body) != below {
		t.Errorf("%v, fields %v, body %q", err, fields, body)
	}
	if got := in.Message.Parts[0].Content; !strings.Contains(got, "Subject: hidden\n\nHello") {
		t.Errorf("text %q", got)
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
			// Forwarders vouch for the author and not for whom he wrote to: they seal what they were sent.
			in := s.engine.Only(t)
			sender := in.Message.Sender
			if sender.Verified || len(in.Rejected) != 1 || in.Rejected[0].Code != identity.CodeNotAddressed || in.Rejected[0].Method != identity.MethodEmailDMARC ||
				!strings.Contains(string(sender.Profile.Extensions["email"]), `"arc":{"result":"pass","sealers":["list.test"`) {
				t.Errorf("sender %+v, rejected %+v: %s", sender, in.Rejected, sender.Profile.Extensions["email"])
			}
		})
	}
}

// TestOutcomes is the table of decisions about a sender, row by row. SPF passes for 127.0.0.1, where the tests send from.
func TestOutcomes(t *testing.T) {
	const passing, failing = "v=spf1 ip4:127.0.0.1 -all", "v=spf1 -all"
	for name, row := range map[string]struct {
		records  map[string]string
		missing  []string // names without an answer
		from     string   // envelope; default bo@list.test
		sign     string   // signing domain; empty = unsigned
		broken   bool     // the body is changed after signing
		lines    []string
		want     string
		method   string
		evidence string
	}{
		"record, pass by DKIM": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject"}, sign: "ann.test", want: "250", method: normalized.AuthEmailDMARC, evidence: `"by":"dkim"`,
		},
		"record, pass by SPF": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject", "ann.test": passing}, from: "bo@ann.test", want: "250",
			method: normalized.AuthEmailDMARC, evidence: `"by":"spf"`,
		},
		"record, DKIM of a subdomain, relaxed": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject"}, sign: "mail.ann.test", want: "250", method: normalized.AuthEmailDMARC,
		},
		"record, DKIM of a subdomain, strict": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject; adkim=s"}, sign: "mail.ann.test", want: "550 5.7.26",
		},
		"record, SPF of a subdomain, strict": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject; aspf=S", "mail.ann.test": passing}, from: "bo@mail.ann.test", want: "550 5.7.26",
		},
		"no record, aligned DKIM": {sign: "ann.test", want: "250", method: normalized.AuthEmailDKIM},
		"no record, SPF only": {
			records: map[string]string{"ann.test": passing}, from: "bo@ann.test", want: "250", method: normalized.AuthNone, evidence: `"result":"pass","domain":"ann.test"`,
		},
		"no record, foreign DKIM": {sign: "list.test", want: "250", method: normalized.AuthNone},
		"fail, p=none":            {records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=none"}, want: "250", method: normalized.AuthNone, evidence: `"result":"fail","policy":"none"`},
		"fail, p=quarantine": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=quarantine"}, want: "250", method: normalized.AuthNone, evidence: `"result":"fail","policy":"quarantine"`,
		},
		"fail, p=quarantine lowered by t=y": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=quarantine; t=y"}, want: "250", method: normalized.AuthNone, evidence: `"policy":"none"`,
		},
		"fail, p=reject lowered by t=y": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject; t=y"}, want: "250", method: normalized.AuthNone, evidence: `"policy":"quarantine"`,
		},
		"fail, p=reject":          {records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject"}, want: "550 5.7.26"},
		"fail, body changed":      {records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject"}, sign: "ann.test", broken: true, want: "550 5.7.26"},
		"fail, foreign signature": {records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject", "list.test": passing}, sign: "list.test", want: "550 5.7.26"},
		"two records are none": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject|v=DMARC1; p=none"}, want: "250", method: normalized.AuthNone, evidence: `"dmarc":{"result":"none"}`,
		},
		"policy out of reach": {missing: []string{"_dmarc.ann.test"}, want: "451 4.7.5"},
		"key out of reach": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject"}, missing: []string{"s1._domainkey.ann.test"}, sign: "ann.test", want: "451 4.7.5",
		},
		"key out of reach, SPF passes": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject", "ann.test": passing}, from: "bo@ann.test", missing: []string{"s1._domainkey.ann.test"}, sign: "ann.test",
			want: "250", method: normalized.AuthEmailDMARC,
		},
		"SPF fails, DKIM passes": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject", "ann.test": failing}, from: "bo@ann.test", sign: "ann.test", want: "250", method: normalized.AuthEmailDMARC,
		},
		"our own domain": {lines: []string{"From: echo@inbox.test"}, want: "550 5.7.26"},
		"no From":        {lines: []string{"From:"}, want: "554 5.6.0"},
		"null sender, SPF of the greeting": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject", "client.ann.test": passing}, from: "<>", want: "250", method: normalized.AuthEmailDMARC, evidence: `"identity":"helo"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			for _, domain := range []string{"ann.test", "mail.ann.test", "list.test"} {
				_, value := DNSRecord(domain, "s1", emailtest.SenderKey())
				s.names.Text("s1._domainkey."+domain, value)
			}
			for name, value := range row.records {
				s.names.Text(name, strings.Split(value, "|")...)
			}
			for _, name := range row.missing {
				s.names.Break(name)
			}
			lines := row.lines
			if lines == nil {
				lines = []string{"From: ann@ann.test"}
			}
			mail := emailtest.Letter("text", lines...)
			if row.sign != "" {
				mail = emailtest.SignedAs(t, mail, row.sign, "s1", emailtest.SenderKey())
			}
			if row.broken {
				mail = strings.Replace(mail, "text\r\n", "changed\r\n", 1)
			}
			from := cmp.Or(row.from, "bo@list.test")
			w := s.dial()
			w.say("EHLO client.ann.test", "250")
			w.send(strings.Trim(from, "<>"), []string{"echo@inbox.test"}, mail, row.want)
			if !strings.HasPrefix(row.want, "250") {
				if n := len(s.engine.All()); n != 0 {
					t.Errorf("%d messages were received", n)
				}
				return
			}
			sender := s.engine.Only(t).Message.Sender
			if sender.AuthMethod != row.method || sender.Verified != (row.method != normalized.AuthNone) || (len(sender.Identities) > 0) != sender.Verified {
				t.Errorf("method %s, verified %t, %d identities", sender.AuthMethod, sender.Verified, len(sender.Identities))
			}
			if claims := string(sender.Profile.Extensions[normalized.ViaEmail]); !strings.Contains(claims, row.evidence) {
				t.Errorf("claims %s; want %s", claims, row.evidence)
			}
		})
	}
}

func TestNullMXOfTheSenderRefuses(t *testing.T) {
	s := start(t, nil)
	s.names.MX("silent.test", "0 .")
	s.greet().send("a@silent.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@silent.test"), "550 5.7.27")
}

func TestQuarantineIsRefusedOnDemand(t *testing.T) {
	s := start(t, func(o *Options) { o.RefuseQuarantine = true })
	s.names.Text("_dmarc.ann.test", "v=DMARC1; p=quarantine")
	s.names.Text("_dmarc.bo.test", "v=DMARC1; p=none")
	w := s.greet()
	w.send("a@list.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@ann.test"), "550 5.7.26")
	w.send("a@list.test", []string{"echo@inbox.test"}, emailtest.Letter("x", "From: a@bo.test"), "250")
}

// TestTreeWalk follows RFC 9989 where RFC 7489 would find something else.
func TestTreeWalk(t *testing.T) {
	for name, row := range map[string]struct {
		records map[string]string
		from    string
		sign    string
		want    string
	}{
		"the organization's sp rules a subdomain that exists": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=none; sp=reject; np=none", "shop.ann.test": "x"}, from: "a@shop.ann.test", want: "550 5.7.26",
		},
		"np rules one that does not": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=none; sp=none; np=reject"}, from: "a@nothing.ann.test", want: "550 5.7.26",
		},
		"psd=n ends the walk": {
			records: map[string]string{"_dmarc.shop.ann.test": "v=DMARC1; p=none; psd=n", "_dmarc.ann.test": "v=DMARC1; p=reject"}, from: "a@x.shop.ann.test", want: "250",
		},
		"psd=y: siblings are strangers": {
			records: map[string]string{"_dmarc.gov.test": "v=DMARC1; p=reject; psd=y"}, from: "a@one.gov.test", sign: "two.gov.test", want: "550 5.7.26",
		},
		"psd=y: below one name they are not": {
			records: map[string]string{"_dmarc.gov.test": "v=DMARC1; p=reject; psd=y"}, from: "a@one.gov.test", sign: "mail.one.gov.test", want: "250",
		},
		"more than seven labels": {
			records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=reject"}, from: "a@a.b.c.d.e.f.g.h.i.ann.test", want: "550 5.7.26",
		},
		"no policy but reports is none":      {records: map[string]string{"_dmarc.ann.test": "v=DMARC1; p=what; rua=mailto:r@ann.test"}, from: "a@ann.test", want: "250"},
		"values without case, unknown tags":  {records: map[string]string{"_dmarc.ann.test": "v=DMARC1; P=Reject; pct=0; x=y; rf=afrf;"}, from: "a@ann.test", want: "550 5.7.26"},
		"the version is case-sensitive":      {records: map[string]string{"_dmarc.ann.test": "v=dmarc1; p=reject"}, from: "a@ann.test", want: "250"},
		"the version must come first":        {records: map[string]string{"_dmarc.ann.test": "p=reject; v=DMARC1"}, from: "a@ann.test", want: "250"},
		"other texts beside the record":      {records: map[string]string{"_dmarc.ann.test": "hello|v=DMARC1; p=reject"}, from: "a@ann.test", want: "550 5.7.26"},
		"the single label has a record":      {records: map[string]string{"_dmarc.test": "v=DMARC1; p=reject; psd=y"}, from: "a@ann.test", want: "550 5.7.26"},
		"a domain in capitals and of beyond": {records: map[string]string{"_dmarc.xn--bcher-kva.test": "v=DMARC1; p=reject"}, from: "a@Bücher.TEST", want: "550 5.7.26"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			for name, value := range row.records {
				s.names.Text(name, strings.Split(value, "|")...)
			}
			mail := emailtest.Letter("text", "From: "+row.from)
			if row.sign != "" {
				_, value := DNSRecord(row.sign, "s1", emailtest.SenderKey())
				s.names.Text("s1._domainkey."+row.sign, value)
				mail = emailtest.SignedAs(t, mail, row.sign, "s1", emailtest.SenderKey())
			}
			s.greet().send("bo@list.test", []string{"echo@inbox.test"}, mail, row.want)
			s.names.Mu.Lock()
			defer s.names.Mu.Unlock()
			if walked := s.names.Asked["_dmarc.e.f.g.h.i.ann.test."]; strings.Contains(name, "seven") && walked != 1 {
				t.Errorf("the name of seven labels was asked %d times", walked)
			}
		})
	}
}
