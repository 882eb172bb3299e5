package mailtable

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
)

const goodNames = "h=from:to:subject:date:message-id"

// signed lets a row carry one signature of these tags.
func signed(tags string) func(*testing.T, *world, string, string) string {
	return func(t *testing.T, w *world, domain, mail string) string {
		t.Helper()
		return tagged{tags: strings.ReplaceAll(tags, "{d}", domain)}.sign(t, w.key, mail)
	}
}

func mixed(domain string) string { return strings.ToUpper(domain[:1]) + domain[1:] }

// signatures is what single tags and keys do (RFC 6376, RFC 8301). The domains demand DMARC, so that a signature which
// proves nothing refuses the mail.
func signatures() []row {
	const plain = "v=1; a=rsa-sha256; d={d}; s=s1; " + goodNames
	soon, past, future := time.Now().Add(time.Hour).Unix(), time.Now().Add(-time.Hour).Unix(), time.Now().Add(time.Hour).Unix()
	reject := []string{dmarcReject}
	with := func(name, tags, code string, claims ...string) row {
		method := byDMARC
		return row{name: name, dns: reject, sign: nobody, alter: signed(tags), code: code, method: method, claims: claims}
	}
	rows := []row{
		with("plain", plain, "", `"result":"pass"`),
		with("expires later", plain+fmt.Sprintf("; x=%d", soon), ""),
		with("expired", plain+fmt.Sprintf("; t=%d; x=%d", past-60, past), noProof),
		with("from the future", plain+fmt.Sprintf("; t=%d", future), noProof),
		with("ends before it begins", plain+fmt.Sprintf("; t=%d; x=%d", soon+60, soon), noProof),
		with("expires in the far future", plain+"; x=999999999999", ""),
		with("i= below d=", plain+"; i=ann@mail.{d}", ""),
		with("i= elsewhere", plain+"; i=ann@example.test", noProof),
		with("i= only looks as if it were below d=", plain+"; i=ann@not{d}", noProof),
		with("l= of a part of the body", plain+"; l=4", noProof),
		with("l= of the whole body", plain+"; l=18", "", `"result":"pass"`), // What time is it? and its line end
		with("l= of a byte less", plain+"; l=17", noProof),
		with("l= of a byte more", plain+"; l=19", noProof),
		with("l= beyond all numbers", plain+"; l=99999999999999999999999", noProof),
		with("l= that is no number", plain+"; l=-18", noProof),
		{name: "l= of the whole body, through a forwarder", from: "list@forwarder.test", helo: "mail.forwarder.test", dns: reject, sign: nobody, alter: signed(plain + "; l=18"), method: byDMARC},
		{name: "l= of the whole body, below which a forwarder writes", dns: reject, sign: nobody, code: noProof, alter: func(t *testing.T, w *world, domain, mail string) string {
			return signed(plain+"; l=18")(t, w, domain, mail) + "-- \r\nA footer\r\n"
		}},
		{name: "l= of a body that ends in empty lines", dns: reject, sign: nobody, method: byDMARC, alter: func(t *testing.T, w *world, domain, mail string) string {
			return signed(plain+"; l=18")(t, w, domain, mail) + "\r\n\r\n"
		}},
		with("From is not signed", "v=1; a=rsa-sha256; d={d}; s=s1; h=to:subject:date", noProof),
		{name: "only From is signed", dns: reject, sign: nobody, alter: signed("v=1; a=rsa-sha256; d={d}; s=s1; h=from"), method: unproven, claims: []string{`"uncovered":["subject","date","to","message-id","content-type"]`}},
		{name: "To is signed, and no time", dns: reject, sign: nobody, alter: signed("v=1; a=rsa-sha256; d={d}; s=s1; h=from:to:subject"), method: unproven},
		{name: "made too long ago", dns: reject, sign: nobody, alter: signed(plain + fmt.Sprintf("; t=%d", time.Now().AddDate(0, 0, -8).Unix())), method: unproven},
		with("names that the mail has not", plain+":x-nothing:reply-to", ""),
		with("From oversigned", fmt.Sprintf("v=1; a=rsa-sha256; d={d}; s=s1; t=%d; h=from:from:to:subject:subject", past), ""),
		with("another version", "v=2; a=rsa-sha256; d={d}; s=s1; "+goodNames, noProof),
		with("a tag twice", plain+"; s=s1", noProof),
		with("an unknown tag", plain+"; zz=1", ""),
		with("rsa-sha1", "v=1; a=rsa-sha1; d={d}; s=s1; "+goodNames, noProof),
		with("an unknown algorithm", "v=1; a=gost-2000; d={d}; s=s1; "+goodNames, noProof),
		with("another query method", plain+"; q=carrier/pigeon", noProof),
		with("d= is a parent", "v=1; a=rsa-sha256; d=test; s=s1; "+goodNames, noProof),
	}
	rows = append(rows, row{name: "d= in mixed case", dns: reject, sign: nobody, method: byDMARC, alter: func(t *testing.T, w *world, domain, mail string) string {
		return tagged{tags: "v=1; a=rsa-sha256; d=" + mixed(domain) + "; i=ann@" + domain + "; s=s1; " + goodNames}.sign(t, w.key, mail)
	}}, row{name: "i= in mixed case", dns: reject, sign: nobody, method: byDMARC, alter: func(t *testing.T, w *world, domain, mail string) string {
		return tagged{tags: "v=1; a=rsa-sha256; d=" + domain + "; i=@" + strings.ToUpper(domain) + "; s=s1; " + goodNames}.sign(t, w.key, mail)
	}}, row{name: "a field was added below", dns: reject, code: noProof, alter: func(_ *testing.T, _ *world, _, mail string) string {
		return strings.Replace(mail, "\r\n\r\n", "\r\nSubject: Something else\r\n\r\n", 1)
	}}, row{name: "a field was added on top", dns: reject, method: byDMARC, text: "What time is it?", holds: []string{"Subject: A question"}, lacks: []string{"Something else"}, alter: func(_ *testing.T, _ *world, _, mail string) string {
		return "Subject: Something else\r\n" + mail
	}}, row{name: "blanks were added at the ends of lines", dns: reject, method: byDMARC, alter: func(_ *testing.T, _ *world, _, mail string) string {
		return strings.Replace(mail, "What time", "What  time", 1)
	}}, row{name: "eleven signatures of others first", dns: reject, code: noProof, alter: func(_ *testing.T, _ *world, _, mail string) string {
		return strings.Repeat("DKIM-Signature: v=1; a=rsa-sha256; d=other.test; s=s1; h=from; bh=AAAA; b=AAAA\r\n", 11) + mail
	}}, row{name: "nine signatures of others first", dns: reject, method: byDMARC, alter: func(_ *testing.T, _ *world, _, mail string) string {
		return strings.Repeat("DKIM-Signature: v=1; a=rsa-sha256; d=other.test; s=s1; h=from; bh=AAAA; b=AAAA\r\n", 9) + mail
	}})
	return append(rows, append(keys(), append(seals(), forms()...)...)...)
}

// keys is what a key record may say. {key} is the public key.
func keys() []row {
	withKey := func(name, record, code string) row {
		one := row{name: "key: " + name, sign: nobody, code: code, method: byDMARC}
		one.alter = func(t *testing.T, w *world, domain, mail string) string {
			_, public, _ := strings.Cut(keyRecord(w.key), "p=")
			w.names.SetTXT("_dmarc."+domain, "v=DMARC1; p=reject")
			w.names.SetTXT("k._domainkey."+domain, strings.ReplaceAll(record, "{key}", public))
			return tagged{tags: "v=1; a=rsa-sha256; d=" + domain + "; i=ann@mail." + domain + "; s=k; " + goodNames}.sign(t, w.key, mail)
		}
		return one
	}
	return []row{
		withKey("only p=", "p={key}", ""),
		withKey("test mode (t=y)", "v=DKIM1; t=y; p={key}", noProof),
		withKey("strict (t=s), i= is below", "v=DKIM1; t=s; p={key}", noProof),
		withKey("an unknown flag", "v=DKIM1; t=x; p={key}", ""),
		withKey("revoked", "v=DKIM1; p=", noProof),
		withKey("for another service", "v=DKIM1; s=tlsrpt; p={key}", noProof),
		withKey("for this service and for this hash", "v=DKIM1; s=other:email; h=sha1:sha256; k=rsa; p={key}", ""),
		withKey("for every service", "v=DKIM1; s=*; p={key}", ""),
		withKey("of another version", "v=DKIM2; p={key}", noProof),
		withKey("for sha1 alone", "v=DKIM1; h=sha1; p={key}", noProof),
		withKey("of another type", "v=DKIM1; k=ed25519; p={key}", noProof),
		withKey("notes and folding", "v=DKIM1; n=some notes; k=rsa ; p={key} ", ""),
		{name: "key: of 512 bits", dns: []string{dmarcReject}, sign: nobody, code: noProof, alter: func(t *testing.T, w *world, domain, mail string) string {
			w.names.SetTXT("weak._domainkey."+domain, keyRecord(w.weak))
			return tagged{tags: "v=1; a=rsa-sha256; d=" + domain + "; s=weak; " + goodNames}.sign(t, w.weak, mail)
		}},
		{name: "key: two at one name", dns: []string{dmarcReject}, sign: nobody, code: noProof, alter: func(t *testing.T, w *world, domain, mail string) string {
			w.names.SetTXT("two._domainkey."+domain, keyRecord(w.key))
			w.names.SetTXT("two._domainkey."+domain, keyRecord(w.key))
			return tagged{tags: "v=1; a=rsa-sha256; d=" + domain + "; s=two; " + goodNames}.sign(t, w.key, mail)
		}},
	}
}

// forms is what is signed how: canonicalizations (RFC 6376, section 3.4), types and sizes of keys, several signatures. The
// library signs.
func forms() []row {
	reject := []string{dmarcReject}
	signed := func(t *testing.T, key crypto.Signer, domain, selector, mail, forms string) string {
		t.Helper()
		head, body, _ := strings.Cut(forms, "/")
		var out bytes.Buffer
		if err := dkim.Sign(&out, strings.NewReader(mail), &dkim.SignOptions{
			Domain: domain, Selector: selector, Signer: key, HeaderCanonicalization: dkim.Canonicalization(head), BodyCanonicalization: dkim.Canonicalization(body),
		}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	form := func(forms, body, code, name string, change func(string) string) row {
		one := row{name: forms + ": " + name, dns: reject, sign: nobody, body: body, code: code, method: byDMARC}
		one.alter = func(t *testing.T, w *world, domain, mail string) string {
			return change(signed(t, w.key, domain, "s1", mail, forms))
		}
		return one
	}
	asIs := func(mail string) string { return mail }
	replaced := func(old, fresh string) func(string) string {
		return func(mail string) string { return strings.Replace(mail, old, fresh, 1) }
	}
	emptyLines := func(mail string) string { return mail + "\r\n\r\n" }
	var rows []row
	for _, forms := range []string{"simple/simple", "simple/relaxed", "relaxed/simple", "relaxed/relaxed"} {
		head, body, _ := strings.Cut(forms, "/")
		strictly := func(relaxed string) string { return map[bool]string{true: "", false: noProof}[relaxed == "relaxed"] }
		rows = append(rows,
			form(forms, "", "", "as it is", asIs),
			form(forms, "a \t b\n\n  c \n\n", "", "blanks and empty lines", asIs),
			form(forms, "\n", "", "no body", asIs),
			form(forms, "", "", "empty lines at the end", emptyLines),
			form(forms, "a b", strictly(body), "a blank more in the body", replaced("a b", "a  b")),
			form(forms, "a b", strictly(body), "a blank at the end of a line", replaced("a b", "a b ")),
			form(forms, "a b", noProof, "a blank at the begin of a line", replaced("a b", " a b")),
			form(forms, "", strictly(head), "a field is folded anew", replaced("Subject: A question", "Subject:  A\r\n\tquestion")),
			form(forms, "", strictly(head), "a name in capitals", replaced("\r\nSubject:", "\r\nSUBJECT:")),
			form(forms, "", "", "another order of fields", func(mail string) string {
				return replaced("MIME-Version: 1.0\r\n", "")(replaced("From: ", "MIME-Version: 1.0\r\nFrom: ")(mail))
			}),
		)
	}
	with := func(name, code string, selector string, key func(*world) crypto.Signer, record func(crypto.Signer) string) row {
		return row{name: name, dns: reject, sign: nobody, code: code, method: byDMARC, alter: func(t *testing.T, w *world, domain, mail string) string {
			signer := key(w)
			w.names.SetTXT(selector+"._domainkey."+domain, record(signer))
			return signed(t, signer, domain, selector, mail, "relaxed/relaxed")
		}}
	}
	edwards := func(*world) crypto.Signer { return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize)) }
	public := func(key crypto.Signer) []byte { return key.Public().(ed25519.PublicKey) }
	return append(rows,
		with("Ed25519", "", "e", edwards, func(key crypto.Signer) string {
			return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public(key))
		}),
		with("Ed25519: the key of another", noProof, "e", edwards, func(key crypto.Signer) string {
			return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, len(public(key))))
		}),
		with("Ed25519: a key that is too short", noProof, "e", edwards, func(key crypto.Signer) string {
			return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public(key)[1:])
		}),
		with("a key of 1024 bits", "", "k", func(w *world) crypto.Signer { return w.small }, func(key crypto.Signer) string { return keyRecord(key.(*rsa.PrivateKey)) }),
		with("a key in the form of RFC 6376", "", "k", func(w *world) crypto.Signer { return w.key }, func(key crypto.Signer) string {
			return "v=DKIM1; p=" + base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PublicKey(key.Public().(*rsa.PublicKey)))
		}),
		row{name: "Ed25519 that nobody knows beside RSA", dns: reject, method: byDMARC, alter: func(t *testing.T, _ *world, domain, mail string) string {
			return signed(t, edwards(nil), domain, "missing", mail, "relaxed/relaxed")
		}},
	)
}

// seals is ARC of forwarders that are trusted (list.test) and not (other.test).
func seals() []row {
	sealedBy := func(sealer, results string, change func(string) string) func(*testing.T, *world, string, string) string {
		return func(t *testing.T, w *world, domain, mail string) string {
			mail = seal(t, w.key, sealer, strings.ReplaceAll(results, "{d}", domain), mail)
			if change != nil {
				mail = change(mail)
			}
			return mail
		}
	}
	const passed = "dmarc=pass header.from={d}"
	reject := []string{dmarcReject}
	return []row{
		{name: "ARC: of a trusted forwarder", dns: reject, sign: []string{"", "list.test"}, alter: sealedBy("list.test", passed, nil), method: unproven, claims: []string{`"arc":{"result":"pass","sealers":["list.test"]`, `"dmarc":{"result":"fail"`}},
		{name: "ARC: of an unknown forwarder", dns: reject, sign: []string{"", "other.test"}, alter: sealedBy("other.test", passed, nil), code: noProof},
		{name: "ARC: it saw a failure", dns: reject, sign: nobody, alter: sealedBy("list.test", "dmarc=fail header.from={d}", nil), code: noProof},
		{name: "ARC: it saw another From", dns: reject, sign: nobody, alter: sealedBy("list.test", "dmarc=pass header.from=else.test", nil), code: noProof},
		{name: "ARC: changed after the seal", dns: reject, sign: nobody, alter: sealedBy("list.test", passed, func(mail string) string { return strings.Replace(mail, "What time", "Which time", 1) }), code: noProof},
		{name: "ARC: results changed after the seal", dns: reject, sign: nobody, alter: sealedBy("list.test", passed, func(mail string) string { return strings.Replace(mail, "dmarc=pass", "dmarc=pass  x=y", 1) }), code: noProof},
		{name: "ARC: a set without its seal", dns: reject, sign: nobody, alter: sealedBy("list.test", passed, func(mail string) string { _, rest, _ := strings.Cut(mail, "\r\n"); return rest }), code: noProof},
	}
}
