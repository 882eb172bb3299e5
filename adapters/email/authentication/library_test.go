package authentication

import (
	"bytes"
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

// TestRecordsOfRFC9989: the library reads records of RFC 7489. It knows neither np, psd nor t, and refuses a whole record
// for tags that are to be ignored now.
func TestRecordsOfRFC9989(t *testing.T) {
	for text, c := range map[string]struct {
		policy       string // for a name below that does not exist
		libraryFails bool
	}{
		"v=DMARC1; p=none; sp=none; np=reject":              {PolicyReject, false},
		"v=DMARC1; p=reject; t=y":                           {PolicyQuarantine, false},
		"v=DMARC1; p=reject; pct=many":                      {PolicyReject, true},
		"v=DMARC1; p=reject; ri=often":                      {PolicyReject, true},
		"v=DMARC1; p=bogus; rua=mailto:reports@sender.test": {PolicyNone, true},
	} {
		record, ok := parseDMARC(text)
		policy, wanted := record.policyFor(true, true)
		if !ok || !wanted || policy != c.policy {
			t.Errorf("%s: %s, %v, %v", text, policy, wanted, ok)
		}
		theirs, err := dmarc.Parse(text)
		if (err != nil) != c.libraryFails || err == nil && string(theirs.SubdomainPolicy) == c.policy {
			t.Errorf("%s: the library reads %+v, %v now", text, theirs, err)
		}
	}
}
