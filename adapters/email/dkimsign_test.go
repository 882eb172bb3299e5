package email

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"pgregory.net/rapid"
)

func (s *setup) verifications(mail []byte) []*dkim.Verification {
	s.t.Helper()
	found, err := dkim.VerifyWithOptions(bytes.NewReader(mail), &dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) {
		for _, key := range s.adapter.signers {
			if known, value := DNSRecord(s.adapter.domain, key.selector, key.signer); known == name {
				return []string{value}, nil
			}
		}
		s.t.Errorf("%s is asked for", name)
		return nil, nil
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

func TestBothSignaturesHold(t *testing.T) {
	s := start(t, func(o *Options) { o.DKIMEd25519Selector = "small" })
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.StringMatching(`[ \ta-z.]{0,20}`)
		body := strings.Join(rapid.SliceOfN(line, 0, 8).Draw(t, "body"), "\r\n") + rapid.SampledFrom([]string{"", "\r\n", "\r\n\r\n\r\n"}).Draw(t, "end")
		mail := []byte("From:  echo@inbox.test\r\nSubject: " + rapid.StringMatching(`[a-z]{1,9}(\r\n[ \t]{1,3}[a-z]{1,9}){0,3}`).Draw(t, "subject") + "\r\nX-Other: y\r\n\r\n" + body)
		signed, err := s.adapter.sign(mail, time.Now().Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasSuffix(signed, mail) {
			t.Fatal("the mail itself was changed")
		}
		found := s.verifications(signed)
		if len(found) != 2 || found[0].Err != nil || found[1].Err != nil {
			t.Fatalf("%q: %+v", signed, found)
		}
	})
}

func TestSignaturesAreRepeated(t *testing.T) {
	now := time.Now()
	s := start(t, func(o *Options) { o.DKIMEd25519Selector, o.Now = "small", func() time.Time { return now } })
	mail := []byte("From: echo@inbox.test\r\nSubject: x\r\n\r\nText\r\n")
	written := now.Add(-time.Minute)
	sign := func() string {
		signed, err := s.adapter.sign(mail, written)
		if err != nil {
			t.Fatal(err)
		}
		return string(signed)
	}
	first := sign()
	now = now.Add(signatureEpoch - time.Hour)
	if sign() != first {
		t.Error("a repeat within some days has other bytes")
	}
	now = now.Add(30 * 24 * time.Hour)
	late := sign()
	found := s.verifications([]byte(late))
	if late == first || found[0].Err != nil && !strings.Contains(found[0].Err.Error(), "future") || found[0].Expiration.Before(now) {
		t.Errorf("a very late repeat is not signed anew: %+v", found[0])
	}
}

func TestNoFieldCanBeAddedToOurs(t *testing.T) {
	s := start(t, nil)
	signed, err := s.adapter.sign([]byte("From: echo@inbox.test\r\nTo: ann@sender.test\r\nSubject: x\r\n\r\nText\r\n"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"From: a@b.test", "To: a@b.test", "Cc: a@b.test", "Subject: y", "Reply-To: a@b.test", "Date: x", "Message-ID: <x@y>", "References: <x@y>", "Content-Type: text/html", "MIME-Version: 1.0", "Sender: a@b.test", "List-Unsubscribe: <https://x.test>"} {
		if found := s.verifications([]byte(field + "\r\n" + string(signed))); found[0].Err == nil {
			t.Errorf("%s can be added", field)
		}
	}
	if found := s.verifications([]byte("Received: from x\r\n" + string(signed))); found[0].Err != nil {
		t.Errorf("a trace field: %v", found[0].Err)
	}
}
