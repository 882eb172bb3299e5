package authentication

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"pgregory.net/rapid"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
)

// fixedKeys answers every question for a key with one record.
type fixedKeys struct {
	dns.Source
	text string
}

func (k fixedKeys) LookupTXT(context.Context, string) ([]string, error) { return []string{k.text}, nil }

func verifierOf(text string) *Checker {
	return New(Options{Resolver: dns.New(fixedKeys{text: text}), Now: time.Now})
}

// TestSignaturesAreJudgedAsByTheLibrary signs mails in every form, damages some, and asks the library what it thinks.
func TestSignaturesAreJudgedAsByTheLibrary(t *testing.T) {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, rsaText := KeyRecord("sender.test", "s1", emailtest.SenderKey())
	edwardsText := "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(edwards.Public().(ed25519.PublicKey))
	forms := []dkim.Canonicalization{dkim.CanonicalizationSimple, dkim.CanonicalizationRelaxed}
	line := rapid.StringOfN(rapid.RuneFrom([]rune("ab \t.:;=-é")), 0, 12, -1)
	passed, failed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		body := strings.Join(rapid.SliceOfN(line, 0, 6).Draw(t, "body"), "\r\n")
		if rapid.Bool().Draw(t, "ended") {
			body += "\r\n"
		}
		subject := "x" + line.Draw(t, "subject") + "\r\n " + "y" + line.Draw(t, "folded")
		mail := "From: ann@sender.test\r\nSubject:" + subject + "\r\nX:  " + line.Draw(t, "other") + "\r\nsubject : two\r\n\r\n" + body
		options := &dkim.SignOptions{
			Domain: "sender.test", Selector: "s1", Signer: emailtest.SenderKey(), HeaderCanonicalization: rapid.SampledFrom(forms).Draw(t, "header"),
			BodyCanonicalization: rapid.SampledFrom(forms).Draw(t, "form"),
			HeaderKeys:           rapid.SampledFrom([][]string{nil, {"From"}, {"From", "From", "Subject"}, {"from", "Subject", "subject", "X", "Nothing"}}).Draw(t, "names"),
		}
		text := rsaText
		if rapid.Bool().Draw(t, "edwards") {
			options.Signer, text = edwards, edwardsText
		}
		var signed bytes.Buffer
		if err := dkim.Sign(&signed, strings.NewReader(mail), options); err != nil {
			t.Fatal(err)
		}
		received := signed.String()
		if rapid.Bool().Draw(t, "damaged") {
			at := rapid.IntRange(0, len(received)-1).Draw(t, "at")
			received = received[:at] + rapid.SampledFrom([]string{" ", "  ", "\t", "z", "", "\r\n "}).Draw(t, "with") + received[min(len(received), at+rapid.IntRange(0, 1).Draw(t, "instead of")):]
		}
		fields, ours, err := message.Split([]byte(received))
		if err != nil || strings.Count(received, "\n") != strings.Count(received, "\r\n") || strings.Count(received, "\r") != strings.Count(received, "\r\n") {
			t.Skip("no mail")
		}
		got := verifierOf(text).verifyDKIM(context.Background(), signedMail{fields: fields, body: ours})
		theirs, err := dkim.VerifyWithOptions(strings.NewReader(received), &dkim.VerifyOptions{LookupTXT: func(string) ([]string, error) { return []string{text}, nil }})
		if err != nil || len(got) != 1 || len(theirs) != 1 {
			t.Skip("not comparable")
		}
		if passes := got[0].Result == Pass; passes != (theirs[0].Err == nil) {
			t.Fatalf("we say %+v, the library %v about\n%q", got[0], theirs[0].Err, received)
		} else if passes {
			passed++
		} else {
			failed++
		}
	})
	if passed == 0 || failed == 0 {
		t.Errorf("%d passed and %d failed", passed, failed)
	}
}

// TestHashOfABody compares the streamed hash with the rules of RFC 6376, section 3.4, written down plainly.
func TestHashOfABody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.StringOfN(rapid.RuneFrom([]rune("ab \t\n")), 0, 40, -1).Draw(t, "body")
		body = strings.ReplaceAll(body, "\n", "\r\n")
		for _, relaxed := range []bool{false, true} {
			lines := strings.Split(body, "\r\n")
			for i, line := range lines {
				if relaxed {
					lines[i] = strings.TrimRight(strings.Join(strings.FieldsFunc("|"+strings.ReplaceAll(line, "\t", " ")+"|", func(r rune) bool { return r == ' ' }), " "), " ")
					lines[i] = strings.TrimRight(strings.TrimSuffix(strings.TrimPrefix(lines[i], "|"), "|"), " ")
				}
			}
			for len(lines) > 0 && lines[len(lines)-1] == "" {
				lines = lines[:len(lines)-1]
			}
			want := strings.Join(lines, "\r\n") + "\r\n"
			if len(lines) == 0 && relaxed {
				want = ""
			}
			if got := hashBody([]byte(body), relaxed); got.sum != sha256.Sum256([]byte(want)) || got.size != uint64(len(want)) {
				t.Fatalf("the hash of %q (relaxed %t) is not that of %q, or the size %d", body, relaxed, want, got.size)
			}
		}
	})
}

func TestKeyRecords(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	_, text := KeyRecord("sender.test", "s1", emailtest.SenderKey())
	_, short := KeyRecord("sender.test", "s1", small)
	_, public, _ := strings.Cut(text, "p=")
	public = "p=" + public
	for name, row := range map[string]struct {
		texts []string
		fault string
		bits  int
	}{
		"as published":          {[]string{text}, "", 2048},
		"only p":                {[]string{public}, "", 2048},
		"1024 bits":             {[]string{short}, "", 1024},
		"beside other texts":    {[]string{"v=spf1 -all", text}, "", 2048},
		"two keys":              {[]string{text, short}, "several", 0},
		"none":                  {[]string{"hello"}, "none", 0},
		"revoked":               {[]string{"v=DKIM1; p="}, "revoked", 0},
		"another version":       {[]string{"v=DKIM2; " + public}, "DKIM1", 0},
		"for sha1 alone":        {[]string{"h=sha1; " + public}, "hash", 0},
		"for sha1 and sha256":   {[]string{"h=sha1:SHA256; " + public}, "", 2048},
		"for another service":   {[]string{"s=tlsrpt; " + public}, "service", 0},
		"for all services":      {[]string{"s=*; " + public}, "", 2048},
		"of another type":       {[]string{"k=gost; " + public}, "type", 0},
		"no base64":             {[]string{"p=!!"}, "base64", 0},
		"no key":                {[]string{"p=AAAA"}, "read", 0},
		"an RSA key as Edwards": {[]string{"k=ed25519; " + public}, "read", 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := parseKey(row.texts)
			if (row.fault == "") != (got.fault == "") || !strings.Contains(got.fault, row.fault) || got.bits != row.bits {
				t.Errorf("%+v", got)
			}
		})
	}
}

// FuzzSignature reads arbitrary signatures and key records.
func FuzzSignature(f *testing.F) {
	_, text := KeyRecord("sender.test", "s1", emailtest.SenderKey())
	f.Add(emailtest.SignedAs(f, emailtest.Letter("x"), "sender.test", "s1", emailtest.SenderKey()), text)
	f.Add("DKIM-Signature: v=1; a=rsa-sha256; b=; bh=; d=a; s=b; h=from; t=999999999999999999999; x=1; i=@; c=a/b\r\nFrom: a@b.test\r\n\r\n", "p=;t=y:s;k=rsa")
	f.Fuzz(func(t *testing.T, mail, record string) {
		fields, body, err := message.Split([]byte(mail))
		if err != nil {
			return
		}
		a := verifierOf(record)
		for _, one := range a.verifyDKIM(t.Context(), signedMail{fields: fields, body: body}) {
			switch one.Result {
			case Pass, Fail, Policy, PermError, TempError:
			default:
				t.Errorf("result %q", one.Result)
			}
			if (one.Result == Pass) != (one.Reason == "") || (one.Result == Pass) != (one.Err == nil) {
				t.Errorf("result %q because of %q", one.Result, one.Reason)
			}
		}
	})
}
