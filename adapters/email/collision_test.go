package email

import (
	"testing"

	"inbox/adapters/email/emailtest"
)

func TestTwoMailsOfOneIDAreKept(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	to := []string{"echo@inbox.test"}
	first, second := emailtest.Signed(t, emailtest.Letter("one")), emailtest.Signed(t, emailtest.Letter("two"))
	w.send("ann@sender.test", to, first, "250")
	w.send("ann@sender.test", to, "Received: from relay\r\n"+first, "250") // a repeat by another way
	w.send("ann@sender.test", to, second, "250")
	w.send("ann@sender.test", to, second, "250")
	all := s.engine.all()
	if len(all) != 2 {
		t.Fatalf("%d messages; want 2", len(all))
	}
	if all[0].Message.ID != "m1@sender.test" || all[1].Message.ID == all[0].Message.ID || all[1].Message.ThreadID == all[0].Message.ThreadID {
		t.Errorf("ids %q and %q", all[0].Message.ID, all[1].Message.ID)
	}
	if notes, _ := readRoute(all[1].Route); notes.MessageID != "m1@sender.test" {
		t.Errorf("the answer would refer to %q", notes.MessageID)
	}
}
