package email

import (
	"slices"
	"strings"
	"testing"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/normalized"
)

// TestThreadTags lets a mail program answer that keeps nothing of the header but the address.
func TestThreadTags(t *testing.T) {
	s := start(t, func(o *Options) { o.ThreadTags = true })
	w := s.greet()
	w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("first")), "250")
	first := s.engine.only(t)
	reply := replyTo(first, normalized.Text("an answer"))
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	fields, _, err := message.Split(s.captured()[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	back := fields.Get("Reply-To")
	if !strings.HasPrefix(back, "echo+t.") || !strings.HasSuffix(back, "@inbox.test") {
		t.Fatalf("Reply-To %q", back)
	}
	s.engine.replies[reply.ID+"@inbox.test"] = 0
	forged := strings.Replace(back, "echo+t.", "echo+t.a", 1)
	for i, row := range []struct {
		name, to, from string
		lines          []string
		joins, silent  bool
	}{
		{"in Bcc, without In-Reply-To", back, "ann", []string{"To: friend@example.test"}, true, false},
		{"in capitals", strings.ToUpper(back[:len("echo+t.")+42]) + "@inbox.test", "ann", nil, true, false},
		{"a stranger who learnt the address", back, "eve", nil, false, false},
		{"a made-up token", forged, "ann", nil, false, false},
		{"a made-up token in Bcc", forged, "ann", []string{"To: friend@example.test"}, false, true},
	} {
		lines := slices.Concat(row.lines, []string{"From: " + row.from + "@sender.test", "Message-ID: <again" + string(rune('a'+i)) + "@sender.test>"})
		w.send(row.from+"@sender.test", []string{row.to}, emailtest.Signed(t, emailtest.Letter("again", lines...)), "250")
		all := s.engine.all()
		got := all[len(all)-1]
		if joined := got.Message.ThreadID == first.Message.ThreadID; joined != row.joins || (got.NoReply != "") != row.silent {
			t.Errorf("%s: thread %q, silent because %q", row.name, got.Message.ThreadID, got.NoReply)
		}
		if notes, _ := readRoute(got.Route); strings.HasPrefix(notes.Tag, "t.") && row.joins {
			t.Errorf("%s: tag %q", row.name, notes.Tag)
		}
	}
}

// TestThreadTagKeepsThePlusTag: the thread tag takes the place of the sender's own tag, which the agent gets all the same.
func TestThreadTagKeepsThePlusTag(t *testing.T) {
	s := start(t, func(o *Options) { o.ThreadTags = true })
	w := s.greet()
	w.send("ann@sender.test", []string{"echo+order-4711@inbox.test"}, emailtest.Signed(t, emailtest.Letter("first", "To: echo+order-4711@inbox.test")), "250")
	reply := replyTo(s.engine.only(t), normalized.Text("an answer"))
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	fields, _, err := message.Split(s.captured()[0].Data)
	if err != nil || !strings.Contains(fields.Get("From"), "<echo+order-4711@inbox.test>") {
		t.Fatalf("From %q, %v", fields.Get("From"), err)
	}
	s.engine.replies[reply.ID+"@inbox.test"] = 0
	w.send("ann@sender.test", []string{fields.Get("Reply-To")}, emailtest.Signed(t, emailtest.Letter("again", "To: "+fields.Get("Reply-To"), "Message-ID: <again@sender.test>")), "250")
	again := s.engine.all()[1]
	if notes, _ := readRoute(again.Route); notes.Tag != "order-4711" || again.Message.Surface.Tag != "order-4711" {
		t.Errorf("tag %q, %q", notes.Tag, again.Message.Surface.Tag)
	}
	w.send("eve@sender.test", []string{fields.Get("Reply-To")}, emailtest.Signed(t, emailtest.Letter("hm", "From: eve@sender.test", "Message-ID: <eve@sender.test>")), "250")
	if notes, _ := readRoute(s.engine.all()[2].Route); notes.Tag != "" {
		t.Errorf("a stranger learns the tag %q", notes.Tag)
	}
}

func TestThreadAndBounceTokensDiffer(t *testing.T) {
	s := start(t, func(o *Options) { o.ThreadTags = true })
	const id = "01936f2a-0000-7000-8000-000000000001"
	token, _ := s.adapter.tokens.ReturnPath(id, "echo")
	if got := s.adapter.answeredReply("t." + token); got != "" {
		t.Errorf("a bounce token is taken for the thread of %s", got)
	}
	_, tag, _ := strings.Cut(strings.TrimSuffix(s.adapter.threadAddress(id, "echo"), "@inbox.test"), "+")
	if _, valid := s.adapter.tokens.Delivery("bounce+" + strings.TrimPrefix(tag, "t.")); valid {
		t.Error("a thread token is taken for a bounce")
	}
	if got := s.adapter.answeredReply(tag); got != id {
		t.Errorf("the token is of %q", got)
	}
}
