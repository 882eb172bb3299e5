package authentication

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"

	"inbox/adapters/email/dns"
	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
)

// BenchmarkVerify checks the signature of a mail of 10 KiB, here and with the library.
func BenchmarkVerify(b *testing.B) {
	_, record := emailtest.KeyRecord("sender.test", "s1", emailtest.SenderKey())
	line := "The quick brown fox jumps over the lazy dog and asks what the time is.\n"
	mail := []byte(emailtest.Signed(b, emailtest.Letter(strings.Repeat(line, 10<<10/len(line)))))
	b.Run("ours", func(b *testing.B) {
		checker := New(Options{Resolver: dns.New(fixedKeys{text: record}), Now: time.Now})
		b.ReportAllocs()
		for b.Loop() {
			fields, body, err := message.Split(mail)
			if err != nil {
				b.Fatal(err)
			}
			if found := checker.verifyDKIM(b.Context(), signedMail{fields: fields, body: body}); len(found) != 1 || found[0].Result != Pass {
				b.Fatalf("%+v", found)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		options := &dkim.VerifyOptions{LookupTXT: func(string) ([]string, error) { return []string{record}, nil }}
		b.ReportAllocs()
		for b.Loop() {
			if found, err := dkim.VerifyWithOptions(bytes.NewReader(mail), options); err != nil || len(found) != 1 || found[0].Err != nil {
				b.Fatalf("%+v, %v", found, err)
			}
		}
	})
}

// BenchmarkSign signs mails of 10 KiB and of 10 MiB with RSA. The library works through the body byte by byte.
func BenchmarkSign(b *testing.B) {
	line := "The quick brown fox jumps over the lazy dog and asks what the time is.\n"
	for name, size := range map[string]int{"10KiB": 10 << 10, "10MiB": 10 << 20} {
		mail := []byte(emailtest.Letter(strings.Repeat(line, size/len(line))))
		b.Run(name, func(b *testing.B) {
			s := newRig(b, false)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Sign(mail); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
