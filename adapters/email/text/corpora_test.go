//go:build corpora

package text

import (
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
)

// TestEveryLeafOfPublicCorporaIsInTheMessage reads the mails that other parsers are tested with (make corpora).
func TestEveryLeafOfPublicCorporaIsInTheMessage(t *testing.T) {
	for _, corpus := range emailtest.Letters() {
		t.Run(corpus.Name, func(t *testing.T) {
			refused := 0
			corpus.Read(t, func(t *testing.T, name string, mail []byte) {
				t.Helper()
				mended, err := message.Mend(mail)
				if err != nil {
					refused++
					t.Logf("%s is refused: %v", name, err)
					return
				}
				t.Run(name, func(t *testing.T) { everyLeafIsIn(t, name, string(mended)) })
			})
			t.Logf("%d of them are refused", refused)
		})
	}
}
