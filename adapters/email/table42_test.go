package email

import (
	"cmp"
	"strings"
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/normalized"
)

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
