//go:build corpora

package email

import (
	"errors"
	"testing"
	"time"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
)

// TestPublicMailsAreRefusedForTheirFromAlone: of all public mails, only those are refused that name no author, or not one, and one with a lone CR.
func TestPublicMailsAreRefusedForTheirFromAlone(t *testing.T) {
	for _, corpus := range emailtest.Letters() {
		t.Run(corpus.Name, func(t *testing.T) {
			refused := 0
			corpus.Read(t, func(t *testing.T, name string, mail []byte) {
				t.Helper()
				_, _, _, err := inspect(mail, true)
				if errors.Is(err, message.ErrDamaged) {
					if mail, err = message.Mend(mail); err == nil {
						_, _, _, err = inspect(mail, true)
					}
				}
				if err == nil {
					return
				}
				refused++
				fields, _, _ := message.SplitEnclosed(mail)
				if _, author := message.ParseFrom(fields); author == nil && !errors.Is(err, errLineEnds) {
					t.Errorf("%s is refused: %v", name, err)
				}
			})
			t.Logf("%d of them are refused", refused)
		})
	}
}

// TestPublicBouncesAreNeverAnswered reads the bounces, warnings and automatic answers that programs which know them are tested with (make corpora). The
// envelope is an ordinary one, which says less than theirs did.
func TestPublicBouncesAreNeverAnswered(t *testing.T) {
	for _, corpus := range emailtest.Automatic() {
		t.Run(corpus.Name, func(t *testing.T) {
			corpus.Read(t, func(t *testing.T, name string, mail []byte) {
				t.Helper()
				fields, body, err := message.SplitEnclosed(mail)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				arrived := newArrival(envelope{from: "someone@sender.test", received: time.Now()}, fields, body, mail)
				arrived.sender.from, err = message.ParseFrom(fields)
				if err != nil {
					t.Logf("%s is refused: %v", name, err)
					return
				}
				strong := 0
				for _, one := range marksOf(arrived, false) {
					if !one.weak {
						strong++
					}
				}
				if strong == 0 {
					t.Errorf("%s: from %q, subject %q, marks %+v", name, arrived.sender.from.Address(), fields.Decoded("Subject"), marksOf(arrived, false))
				}
			})
		})
	}
}
