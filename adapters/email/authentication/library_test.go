package authentication

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/emersion/go-msgauth/dmarc"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
)

// The tests of this file are the reasons why what go-msgauth has is written here once more: each fails when the library
// learns what it is about.

// TestDomainsOfSignaturesHaveNoCase: the library takes i= for another domain than d= when their case differs, and knows no
// clock but its own.
func TestDomainsOfSignaturesHaveNoCase(t *testing.T) {
	_, record := emailtest.KeyRecord("sender.test", "s1", emailtest.SenderKey())
	var signed bytes.Buffer
	if err := dkim.Sign(&signed, strings.NewReader(emailtest.Letter("x")), &dkim.SignOptions{
		Domain: "Sender.Test", Identifier: "ann@sender.test", Selector: "s1", Signer: emailtest.SenderKey(), Expiration: time.Now().Add(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	fields, body, err := message.Split(signed.Bytes())
	if err != nil {
		t.Fatal(err)
	}

	now := time.Now()
	checker := New(Options{Resolver: dns.New(fixedKeys{text: record}), Now: func() time.Time { return now }})
	if got := checker.verifyDKIM(t.Context(), signedMail{fields: fields, body: body}); len(got) != 1 || got[0].Result != Pass {
		t.Errorf("%+v", got)
	}
	now = now.Add(2 * time.Hour)
	if got := checker.verifyDKIM(t.Context(), signedMail{fields: fields, body: body}); len(got) != 1 || got[0].Result != PermError || got[0].Err == nil {
		t.Errorf("expired: %+v", got)
	}

	theirs, err := dkim.VerifyWithOptions(bytes.NewReader(signed.Bytes()), &dkim.VerifyOptions{LookupTXT: func(string) ([]string, error) { return []string{record}, nil }})
	if err != nil || len(theirs) != 1 || theirs[0].Err == nil {
		t.Errorf("the library takes it now: %+v, %v", theirs, err)
	}
}

// TestEqualSignsInOtherTags: the library empties everything in the field that looks like b=, not only the tag.
func TestEqualSignsInOtherTags(t *testing.T) {
	mail := signedBy(t, &dkim.SignOptions{Identifier: "club=2@sender.test"})
	if got := oursOf(t, "", mail); got.Result != Pass {
		t.Errorf("%+v", got)
	}
	if _, err := theirsOf(t, "", mail); err == nil {
		t.Error("the library verifies it now")
	}
}

// TestFlagsOfKeysBind: the library neither obeys nor returns the flags of a key record.
func TestFlagsOfKeysBind(t *testing.T) {
	mail := signedBy(t, &dkim.SignOptions{Identifier: "ann@mail.sender.test"})
	for _, flag := range []string{"y", "s"} {
		if got := oursOf(t, "t="+flag+"; ", mail); got.Result != Policy {
			t.Errorf("%s: %+v", flag, got)
		}
		if _, err := theirsOf(t, "t="+flag+"; ", mail); err != nil {
			t.Errorf("%s: the library obeys it now: %v", flag, err)
		}
	}
}

// TestBodyIsComparedBeforeTheKeyIsFetched: the library queries the name server of a stranger for a mail that cannot pass.
func TestBodyIsComparedBeforeTheKeyIsFetched(t *testing.T) {
	mail := signedBy(t, &dkim.SignOptions{}) + "added\r\n"
	fields, body, err := message.Split([]byte(mail))
	if err != nil {
		t.Fatal(err)
	}

	got := New(Options{Resolver: dns.New(unreachable{}), Now: time.Now}).verifyDKIM(t.Context(), signedMail{fields: fields, body: body})
	if len(got) != 1 || got[0].Result != Fail {
		t.Errorf("%+v", got)
	}
	if asked, err := theirsOf(t, "", mail); asked != 1 || err == nil {
		t.Errorf("the library makes %d lookups now: %v", asked, err)
	}
}

// TestHeadersAreJudgedWithoutTheBody: a large mail is refused early if its header is not signed (Checker.MayProve). The library needs the whole
// body before it looks at a header.
func TestHeadersAreJudgedWithoutTheBody(t *testing.T) {
	good := signedBy(t, &dkim.SignOptions{})
	good = good[:len(good)-10] // the rest is not here yet
	forged := strings.Replace(good, "Subject: A question", "Subject: Another", 1)
	for mail, want := range map[string]string{good: Pass, forged: Fail} {
		fields, body, err := message.Split([]byte(mail))
		if err != nil {
			t.Fatal(err)
		}
		if got := verifierOf(senderRecord("")).verifyDKIM(t.Context(), signedMail{fields: fields, body: body, headerOnly: true}); len(got) != 1 || got[0].Result != want {
			t.Errorf("%+v; want %s", got, want)
		}
	}
	_, first := theirsOf(t, "", good)
	_, second := theirsOf(t, "", forged)
	if first == nil || second == nil || first.Error() != second.Error() {
		t.Errorf("the library tells them apart now: %v, %v", first, second)
	}
}

// unreachable fails every lookup.
type unreachable struct{ dns.Source }

func (unreachable) LookupTXT(context.Context, string) ([]string, error) {
	return nil, errors.New("no lookup is expected")
}

// senderRecord is the key record of sender.test with other tags in it.
func senderRecord(tags string) string {
	_, record := emailtest.KeyRecord("sender.test", "s1", emailtest.SenderKey())
	return strings.Replace(record, "p=", tags+"p=", 1)
}

// signedBy lets the library sign a letter as sender.test.
func signedBy(t *testing.T, options *dkim.SignOptions) string {
	t.Helper()
	options.Domain, options.Selector, options.Signer = cmp.Or(options.Domain, "sender.test"), "s1", emailtest.SenderKey()
	var signed strings.Builder
	if err := dkim.Sign(&signed, strings.NewReader(emailtest.Letter("What time is it over there?")), options); err != nil {
		t.Fatal(err)
	}
	return signed.String()
}

// oursOf returns what our verifier says about the one signature of a mail.
func oursOf(t *testing.T, tags, mail string) Signature {
	t.Helper()
	fields, body, err := message.Split([]byte(mail))
	if err != nil {
		t.Fatal(err)
	}
	found := verifierOf(senderRecord(tags)).verifyDKIM(t.Context(), signedMail{fields: fields, body: body})
	if len(found) != 1 {
		t.Fatalf("%+v", found)
	}
	return found[0]
}

// theirsOf returns what the library says about it, and the number of keys that it asked for.
func theirsOf(t *testing.T, tags, mail string) (asked int, verdict error) {
	t.Helper()
	found, err := dkim.VerifyWithOptions(strings.NewReader(mail), &dkim.VerifyOptions{LookupTXT: func(string) ([]string, error) {
		asked++
		return []string{senderRecord(tags)}, nil
	}})
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	return asked, found[0].Err
}

// TestRecordsOfRFC9989: the library reads records of RFC 7489. It knows neither np, psd nor t, compares values by case, and refuses a
// whole record for tags that are to be ignored now.
func TestRecordsOfRFC9989(t *testing.T) {
	for text, c := range map[string]struct {
		policy       string // for a name below that does not exist; empty = this is no record
		libraryFails bool
	}{
		"v=DMARC1; p=none; sp=none; np=reject":              {PolicyReject, false},
		"v=DMARC1; p=reject; t=y":                           {PolicyQuarantine, false},
		"v=DMARC1; p=reject; p=none":                        {PolicyReject, false},
		"p=reject; v=DMARC1":                                {"", false},
		"v=DMARC1; p=Reject":                                {PolicyReject, true},
		"v=DMARC1; p=reject; adkim=S":                       {PolicyReject, true},
		"v=DMARC1; p=reject; aspf=loose":                    {PolicyReject, true},
		"v=DMARC1; p=reject; fo=x":                          {PolicyReject, true},
		"v=DMARC1; p=reject; pct=many":                      {PolicyReject, true},
		"v=DMARC1; p=reject; ri=often":                      {PolicyReject, true},
		"v=DMARC1; p=reject; a note":                        {PolicyReject, true},
		"v=DMARC1; rua=mailto:reports@sender.test":          {PolicyNone, true},
		"v=DMARC1; p=bogus; rua=mailto:reports@sender.test": {PolicyNone, true},
	} {
		policy := ""
		if record, ok := parseDMARC(text); ok {
			policy, _ = record.policyFor(true, true)
		}
		if policy != c.policy {
			t.Errorf("%s: %q", text, policy)
		}

		theirs, err := dmarc.Parse(text)
		if (err != nil) != c.libraryFails || err == nil && string(cmp.Or(theirs.SubdomainPolicy, theirs.Policy)) == c.policy {
			t.Errorf("%s: the library reads %+v, %v now", text, theirs, err)
		}
	}
}
