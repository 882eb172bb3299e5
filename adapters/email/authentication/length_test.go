package authentication

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
)

// TestLengthOfTheWholeBody: l= that covers the whole body takes nothing from a signature. The library refuses each l=, and it cannot make one, so
// the signature is made here.
func TestLengthOfTheWholeBody(t *testing.T) {
	for body, size := range map[string]int{"a  b \r\n\r\nc": 10, "x\r\n\r\n\r\n": 3, "": 0, " \r\n\r\n": 0, strings.Repeat("twelve  bytes\r\n", 1000): 14000} {
		for l, want := range map[string]string{
			fmt.Sprint(size): Pass, "0" + fmt.Sprint(size): Pass, fmt.Sprint(size + 1): PermError, "18446744073709551616": PermError, "": PermError, "+1": PermError, "-0": PermError,
		} {
			mail := lengthSigned(t, body, l)
			if got := oursOf(t, "", mail); got.Result != want {
				t.Errorf("l=%s of %d bytes: %+v", l, size, got)
			}
			if _, err := theirsOf(t, "", mail); err == nil {
				t.Errorf("l=%s: the library takes it now", l)
			}
		}
	}

	longer := lengthSigned(t, "x\r\n", "3") + "added\r\n"
	if got := oursOf(t, "", longer); got.Result != Policy {
		t.Errorf("a body that was added to: %+v", got)
	}
	fields, begin, err := message.Split([]byte(strings.TrimSuffix(lengthSigned(t, "x\r\ny\r\n", "6"), "y\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	if got := verifierOf(senderRecord("")).verifyDKIM(context.WithoutCancel(t.Context()), signedMail{fields: fields, body: begin, headerOnly: true}); len(got) != 1 || got[0].Result != Pass {
		t.Errorf("before the end of the body: %+v", got)
	}
}

// lengthSigned returns a mail with a relaxed signature over its whole body that says l=.
func lengthSigned(t *testing.T, body, l string) string {
	t.Helper()
	var library strings.Builder
	key := emailtest.SenderKey()
	if err := dkim.Sign(&library, strings.NewReader("From: ann@sender.test\r\n\r\n"+body), &dkim.SignOptions{
		Domain: "sender.test", Selector: "s1", Signer: key, HeaderKeys: []string{"From"},
		HeaderCanonicalization: dkim.CanonicalizationRelaxed, BodyCanonicalization: dkim.CanonicalizationRelaxed,
	}); err != nil {
		t.Fatal(err)
	}
	_, hash, _ := strings.Cut(library.String(), "bh=") // the library hashes the body
	hash, _, _ = strings.Cut(hash, ";")
	field := "v=1; a=rsa-sha256; c=relaxed/relaxed; d=sender.test; s=s1; h=from; l=" + l + "; bh=" + strings.Join(strings.Fields(hash), "") + "; b="
	sum := sha256.Sum256([]byte("from:ann@sender.test\r\ndkim-signature:" + field))
	signature, err := key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return "DKIM-Signature: " + field + base64.StdEncoding.EncodeToString(signature) + "\r\nFrom: ann@sender.test\r\n\r\n" + body
}
