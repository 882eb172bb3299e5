package authentication

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"pgregory.net/rapid"

	"inbox/adapters/email/emailtest"
)

// rig signs for inbox.test and lets the library verify.
type rig struct {
	*Signer
	now time.Time
}

func newRig(t *testing.T, small bool) *rig {
	t.Helper()
	r := &rig{now: time.Now()}
	keys := []Key{{Selector: "inbox", Signer: emailtest.SenderKey()}}
	if small {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, Key{Selector: "small", Signer: key})
	}
	r.Signer = NewSigner("inbox.test", keys, func() time.Time { return r.now }, "X-Hops")
	return r
}

func (r *rig) verifications(t *testing.T, mail []byte) []*dkim.Verification {
	t.Helper()
	found, err := dkim.VerifyWithOptions(bytes.NewReader(mail), &dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) {
		for _, key := range r.keys {
			if known, value := KeyRecord(r.domain, key.Selector, key.Signer); known == name {
				return []string{value}, nil
			}
		}
		t.Errorf("%s is asked for", name)
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestBothSignaturesHold(t *testing.T) {
	s := newRig(t, true)
	rapid.Check(t, func(rt *rapid.T) {
		line := rapid.StringMatching(`[ \ta-z.]{0,20}`)
		body := strings.Join(rapid.SliceOfN(line, 0, 8).Draw(rt, "body"), "\r\n") + rapid.SampledFrom([]string{"", "\r\n", "\r\n\r\n\r\n"}).Draw(rt, "end")
		mail := []byte("From:  echo@inbox.test\r\nSubject: " + rapid.StringMatching(`[a-z]{1,9}(\r\n[ \t]{1,3}[a-z]{1,9}){0,3}`).Draw(rt, "subject") + "\r\nX-Other: y\r\n\r\n" + body)
		signed, err := s.Sign(mail, time.Now().Add(-time.Hour))
		if err != nil {
			rt.Fatal(err)
		}
		if !bytes.HasSuffix(signed, mail) {
			rt.Fatal("the mail itself was changed")
		}
		found := s.verifications(t, signed)
		if len(found) != 2 || found[0].Err != nil || found[1].Err != nil {
			rt.Fatalf("%q: %+v", signed, found)
		}
	})
}

func TestSignaturesAreRepeated(t *testing.T) {
	s := newRig(t, true)
	mail := []byte("From: echo@inbox.test\r\nSubject: x\r\n\r\nText\r\n")
	written := s.now.Add(-time.Minute)
	sign := func() string {
		signed, err := s.Sign(mail, written)
		if err != nil {
			t.Fatal(err)
		}
		return string(signed)
	}
	first := sign()
	s.now = s.now.Add(SignatureEpoch - time.Hour)
	if sign() != first {
		t.Error("a repeat within some days has other bytes")
	}
	s.now = s.now.Add(30 * 24 * time.Hour)
	late := sign()
	found := s.verifications(t, []byte(late))
	if late == first || found[0].Err != nil && !strings.Contains(found[0].Err.Error(), "future") || found[0].Expiration.Before(s.now) {
		t.Errorf("a very late repeat is not signed anew: %+v", found[0])
	}
}

func TestNoFieldCanBeAddedToOurs(t *testing.T) {
	s := newRig(t, false)
	signed, err := s.Sign([]byte("From: echo@inbox.test\r\nTo: ann@sender.test\r\nSubject: x\r\n\r\nText\r\n"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"From: a@b.test", "To: a@b.test", "Cc: a@b.test", "Subject: y", "Reply-To: a@b.test", "Date: x", "Message-ID: <x@y>", "References: <x@y>", "Content-Type: text/html", "MIME-Version: 1.0", "Sender: a@b.test", "X-Hops: 1", "List-Unsubscribe: <https://x.test>"} {
		if found := s.verifications(t, []byte(field+"\r\n"+string(signed))); found[0].Err == nil {
			t.Errorf("%s can be added", field)
		}
	}
	if found := s.verifications(t, []byte("Received: from x\r\n"+string(signed))); found[0].Err != nil {
		t.Errorf("a trace field: %v", found[0].Err)
	}
}
