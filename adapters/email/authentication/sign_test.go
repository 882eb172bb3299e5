package authentication

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
)

// rig signs for inbox.test and verifies with the library and with our verifier.
type rig struct{ *Signer }

func newRig(t testing.TB, small bool) *rig {
	t.Helper()
	keys := []Key{{Selector: "inbox", Signer: emailtest.SenderKey()}}
	if small {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, Key{Selector: "small", Signer: key})
	}
	return &rig{NewSigner("inbox.test", keys, "X-Hops")}
}

// publishedKeys answers with the key records of a signer.
type publishedKeys struct {
	dns.Source
	*Signer
}

func (k publishedKeys) LookupTXT(_ context.Context, name string) ([]string, error) {
	for _, key := range k.keys {
		if known, value := KeyRecord(k.domain, key.Selector, key.Signer); known == strings.TrimSuffix(name, ".") {
			return []string{value}, nil
		}
	}
	return nil, errors.New("unexpected lookup of " + name)
}

// verifications returns what both verifiers say about each signature; they must agree.
func (r *rig) verifications(t failer, mail []byte) []Signature {
	t.Helper()
	source := publishedKeys{Signer: r.Signer}
	theirs, err := dkim.VerifyWithOptions(bytes.NewReader(mail), &dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) {
		return source.LookupTXT(context.Background(), name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	fields, body, err := message.Split(mail)
	if err != nil {
		t.Fatal(err)
	}
	ours := New(Options{Resolver: dns.New(source), Now: time.Now}).verifyDKIM(context.Background(), signedMail{fields: fields, body: body})
	if len(ours) != len(theirs) {
		t.Fatalf("%+v; the library says %+v", ours, theirs)
	}
	for i := range ours {
		if (ours[i].Result == Pass) != (theirs[i].Err == nil) {
			t.Fatalf("%+v; the library says %v", ours[i], theirs[i].Err)
		}
	}
	return ours
}

// failer is implemented by tests and by rapid.
type failer interface {
	Helper()
	Fatal(values ...any)
	Fatalf(format string, values ...any)
}

func TestBothSignaturesHold(t *testing.T) {
	s := newRig(t, true)
	rapid.Check(t, func(rt *rapid.T) {
		line := rapid.StringMatching(`[ \ta-z.]{0,20}`)
		body := strings.Join(rapid.SliceOfN(line, 0, 8).Draw(rt, "body"), "\r\n") + rapid.SampledFrom([]string{"", "\r\n", "\r\n\r\n\r\n"}).Draw(rt, "end")
		mail := []byte("From:  echo@inbox.test\r\nSubject: " + rapid.StringMatching(`[a-z]{1,9}(\r\n[ \t]{1,3}[a-z]{1,9}){0,3}`).Draw(rt, "subject") + "\r\nX-Other: y\r\n\r\n" + body)
		signed, err := s.Sign(mail)
		if err != nil {
			rt.Fatal(err)
		}
		if !bytes.HasSuffix(signed, mail) {
			rt.Fatal("the mail itself was changed")
		}
		found := s.verifications(rt, signed)
		if len(found) != 2 || found[0].Result != Pass || found[1].Result != Pass {
			rt.Fatalf("%q: %+v", signed, found)
		}
		for line := range bytes.SplitSeq(signed, []byte("\r\n")) {
			if len(line) > 998 { // RFC 5322, section 2.1.1
				rt.Fatalf("a line of %d bytes: %s", len(line), line)
			}
		}
	})
}

// TestRepeatIsSignedAnew: a mail that is rendered again after a crash gets another signature, and each is valid for its own life.
func TestRepeatIsSignedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRig(t, true)
		sign := func() []byte {
			signed, err := s.Sign([]byte("From: echo@inbox.test\r\nSubject: x\r\n\r\nText\r\n"))
			if err != nil {
				t.Fatal(err)
			}
			return signed
		}
		hold := func(mail []byte) bool {
			found := s.verifications(t, mail)
			return found[0].Result == Pass && found[1].Result == Pass
		}
		first := sign()
		<-time.After(SignatureLife - time.Hour)
		second := sign()
		if !hold(first) || !hold(second) || bytes.Equal(first, second) {
			t.Errorf("before the first one expires: %t, %t", hold(first), hold(second))
		}
		<-time.After(2 * time.Hour)
		if hold(first) || !hold(second) {
			t.Errorf("after the first one expired: %t, %t", hold(first), hold(second))
		}
	})
}

// countedKey counts how many signatures are made at the same time.
type countedKey struct {
	crypto.Signer
	now, most atomic.Int64
}

func (k *countedKey) Sign(random io.Reader, digest []byte, options crypto.SignerOpts) ([]byte, error) {
	now := k.now.Add(1)
	defer k.now.Add(-1)
	for most := k.most.Load(); now > most && !k.most.CompareAndSwap(most, now); most = k.most.Load() {
	}
	runtime.Gosched()
	return k.Signer.Sign(random, digest, options)
}

func TestSignaturesLeaveHalfOfTheProcessors(t *testing.T) {
	key := &countedKey{Signer: emailtest.SenderKey()}
	s := NewSigner("inbox.test", []Key{{"inbox", key}})
	var group errgroup.Group
	for range 32 {
		group.Go(func() error {
			_, err := s.Sign([]byte("From: echo@inbox.test\r\n\r\nText\r\n"))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if most := key.most.Load(); most > max(1, int64(runtime.GOMAXPROCS(0)/2)) {
		t.Errorf("%d signatures are made at the same time", most)
	}
}

func TestWhatCannotBeSigned(t *testing.T) {
	for name, c := range map[string]struct {
		key  Key
		mail string
	}{
		"a header without an end": {Key{"inbox", emailtest.SenderKey()}, "From: echo@inbox.test\r\n"},
		"a key without a name":    {Key{"", emailtest.SenderKey()}, "From: echo@inbox.test\r\n\r\nText\r\n"},
		"a key that fails":        {Key{"inbox", brokenKey{emailtest.SenderKey()}}, "From: echo@inbox.test\r\n\r\nText\r\n"},
	} {
		if signed, err := NewSigner("inbox.test", []Key{c.key}).Sign([]byte(c.mail)); err == nil {
			t.Errorf("%s: %q", name, signed)
		}
	}
}

type brokenKey struct{ crypto.Signer }

func (brokenKey) Sign(io.Reader, []byte, crypto.SignerOpts) ([]byte, error) {
	return nil, errors.New("the key is out of reach")
}

func TestNoFieldCanBeAddedToOurs(t *testing.T) {
	s := newRig(t, false)
	signed, err := s.Sign([]byte("From: echo@inbox.test\r\nTo: ann@sender.test\r\nSubject: x\r\n\r\nText\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"From: a@b.test", "To: a@b.test", "Cc: a@b.test", "Subject: y", "Reply-To: a@b.test", "Date: x", "Message-ID: <x@y>", "References: <x@y>", "Content-Type: text/html", "MIME-Version: 1.0", "Sender: a@b.test", "X-Hops: 1", "List-Unsubscribe: <https://x.test>"} {
		if found := s.verifications(t, []byte(field+"\r\n"+string(signed))); found[0].Result == Pass {
			t.Errorf("%s can be added", field)
		}
	}
	if found := s.verifications(t, []byte("Received: from x\r\n"+string(signed))); found[0].Result != Pass {
		t.Errorf("a trace field: %v", found[0].Err)
	}
}
