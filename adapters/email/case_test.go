package email

import (
	"testing"

	"inbox/adapters/email/emailtest"
)

// TestPeopleWriteTheirAddressAsTheyLike: one mailbox is one person in a conversation, however its programs write the case of the address.
func TestPeopleWriteTheirAddressAsTheyLike(t *testing.T) {
	for _, spellings := range [][2]string{{"Ann@sender.test", "ann@sender.test"}, {"ann@sender.test", "Ann@sender.test"}, {"Ann@sender.test", "ANN@sender.test"}} {
		s := start(t, nil)
		w := s.greet()
		w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("one", "From: "+spellings[0], "Message-ID: <m1@sender.test>")), "250")
		w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("two", "From: "+spellings[1], "Message-ID: <m2@sender.test>", "In-Reply-To: <m1@sender.test>")), "250")
		all := s.engine.All()
		if all[0].Message.ThreadID != all[1].Message.ThreadID {
			t.Errorf("%v are two people", spellings)
		}
	}
}
