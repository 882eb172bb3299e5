package email

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/email/emailtest"
	"inbox/normalized"
)

var ofList = []string{
	"List-Id: Developers <dev.lists.sender.test>", "List-Post: <mailto:dev@lists.sender.test>", "Precedence: list",
	"List-Unsubscribe: <https://lists.sender.test/x>, <mailto:dev-leave@lists.sender.test?subject=bye>", "X-BeenThere: dev@lists.sender.test",
}

// TestMailingLists: nothing that came through a list is answered, unless it is wanted and the mail names the agent in To.
func TestMailingLists(t *testing.T) {
	for _, test := range []struct {
		name    string
		wanted  bool
		headers []string
		silent  string // part of the reason; empty = answered
	}{
		{"by default", false, append([]string{"To: echo@inbox.test, dev@lists.sender.test"}, ofList...), "Precedence: list"},
		{"named in To", true, append([]string{"To: dev@lists.sender.test, echo@inbox.test"}, ofList...), ""},
		{"named in Cc", true, append([]string{"To: dev@lists.sender.test", "Cc: echo@inbox.test"}, ofList...), "Precedence: list"},
		{"a subscriber", true, append([]string{"To: dev@lists.sender.test"}, ofList...), "Precedence: list"},
		{"only Precedence", true, []string{"Precedence: list"}, ""},
		{"only List-Id", true, []string{"List-Id: <dev.lists.sender.test>"}, ""},
		{"bulk", true, []string{"List-Id: <dev.lists.sender.test>", "Precedence: bulk"}, "Precedence: bulk"},
		{"a newsletter", true, []string{"List-Unsubscribe: <https://sender.test/x>"}, "List-Unsubscribe"},
		{"a campaign", true, append([]string{"Feedback-ID: a:b:c"}, ofList...), "Feedback-ID"},
		{"an autoresponder on the list", true, append([]string{"Auto-Submitted: auto-replied"}, ofList...), "Auto-Submitted"},
		{"the list wrote it", true, append([]string{"From: Ann via Developers <ann@sender.test>", "List-Post: <mailto:Ann@sender.test>"}, ofList[2:3]...), "Precedence: list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(o *Options) {
				if test.wanted {
					o.AnswersLists = func(agent string) bool { return agent == "echo" }
				}
			})
			w := s.greet()
			w.send("dev-bounces@lists.sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("hello", test.headers...)), "250")
			reason := s.engine.only(t).NoReply
			if (reason == "") != (test.silent == "") || !strings.Contains(reason, test.silent) {
				t.Errorf("not answered because %q, want %q", reason, test.silent)
			}
		})
	}
}

// TestAnswersToListMailGoToTheAuthorAlone: lists write themselves into Reply-To, and agents name whom they like.
func TestAnswersToListMailGoToTheAuthorAlone(t *testing.T) {
	s := start(t, func(o *Options) { o.AnswersLists = func(string) bool { return true } })
	lines := append([]string{"To: dev@lists.sender.test, echo@inbox.test", "Cc: bob@sender.test", "Reply-To: dev@lists.sender.test"}, ofList...)
	s.greet().send("dev-bounces@lists.sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("hello", lines...)), "250")
	in := s.engine.only(t)
	if !in.Message.Sender.Verified {
		t.Fatal("the mail is not verified")
	}
	reply := replyTo(in, normalized.Text("hi"))
	reply.Response.To = []string{"dev@lists.sender.test", "dev-leave@lists.sender.test"}
	reply.Response.Cc = []string{"bob@sender.test"}
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	var to []string
	for _, mail := range s.captured() {
		to = append(to, mail.To...)
	}
	slices.Sort(to)
	if diff := cmp.Diff([]string{"ann@sender.test", "bob@sender.test"}, to); diff != "" {
		t.Error(diff)
	}
}

func TestAnswerOf(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	for id, known := range map[string]bool{
		"<01936f2a-0000-7000-8000-000000000001@inbox.test>": true, "<01936F2A-0000-7000-8000-000000000001@INBOX.test>": true,
		"<01936f2a-0000-7000-8000-000000000001@other.test>": false, "<2b0f1a3e-0000-4000-8000-000000000001@inbox.test>": false, "<x@inbox.test>": false,
	} {
		w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("hello", "Message-ID: "+strings.Replace(id, "<", "<a", 1), "In-Reply-To: "+id)), "250")
		all := s.engine.all()
		if at := all[len(all)-1].AnswerOf; at.IsZero() == known || known && at.UnixMilli() != 0x01936f2a0000 {
			t.Errorf("%s: %v", id, at)
		}
	}
}
