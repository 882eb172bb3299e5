package email

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"inbox/adapters/email/emailtest"
	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/identity"
	"inbox/internal/fault"
	"inbox/internal/golden"
	"inbox/normalized"
)

//contract:shows message-3 message-45 message-48
func TestThreads(t *testing.T) {
	s := start(t, nil)
	for _, domain := range []string{"bob.test", "eve.test", "mal.test"} {
		name, value := DNSRecord(domain, "s1", emailtest.SenderKey())
		s.names.Text(name, value)
	}
	w := s.greet()
	send := func(domain, id string, signedBy bool, lines ...string) normalized.Message {
		t.Helper()
		mail := emailtest.Letter("text", append(lines, "From: p@"+domain, "Message-ID: <"+id+">")...)
		if signedBy {
			mail = emailtest.SignedAs(t, mail, domain, "s1", emailtest.SenderKey())
		}
		before := len(s.engine.All())
		w.send("p@"+domain, []string{"echo@inbox.test"}, mail, "250")
		return s.engine.All()[before].Message
	}
	const root = "m1@sender.test"
	first := send("sender.test", root, true, "To: echo@inbox.test, p@bob.test")
	s.engine.replies["r1@inbox.test"] = 0

	same := send("sender.test", "m2@sender.test", true, "In-Reply-To: <r1@inbox.test>", "References: <m1@sender.test> <r1@inbox.test>", "Subject: Re: A question")
	if same.ThreadID != first.ThreadID || same.InReplyTo != "r1@inbox.test" || same.Parts[0].Content != "text" {
		t.Errorf("the sender's next mail: %s %s %q", same.ThreadID, same.InReplyTo, same.Parts[0].Content)
	}
	renamed := send("sender.test", "m3@sender.test", true, "In-Reply-To: <m2@sender.test>", "Subject: Something else")
	if renamed.ThreadID != first.ThreadID || renamed.Parts[0].Content != "Subject: Something else\n\ntext" {
		t.Errorf("a new subject: %s %q", renamed.ThreadID, renamed.Parts[0].Content)
	}
	if copied := send("bob.test", "b1@bob.test", true, "References: <unknown@x.test> <m1@sender.test>"); copied.ThreadID != first.ThreadID {
		t.Errorf("somebody in To does not join: %s", copied.ThreadID)
	}
	seen := map[string]string{first.ThreadID: "the conversation"}
	for name, message := range map[string]normalized.Message{
		"another's Message-ID":  send("mal.test", root, true),
		"the same, unproven":    send("mal.test", root, false),
		"a stranger":            send("eve.test", "e1@eve.test", true, "In-Reply-To: <m1@sender.test>", "References: <m1@sender.test>"),
		"an unproven copy":      send("bob.test", "b2@bob.test", false, "In-Reply-To: <m1@sender.test>"),
		"only the same subject": send("sender.test", "m4@sender.test", true, "Subject: Re: A question"),
		"an unproven root":      send("eve.test", "e2@eve.test", false, "References: <elsewhere@x.test>"),
	} {
		if other := seen[message.ThreadID]; other != "" {
			t.Errorf("%s gets the thread of %s; want one of its own", name, other)
		}
		seen[message.ThreadID] = name
	}
	late := send("eve.test", "e3@eve.test", true, "References: <late@x.test> <y@x.test>").ThreadID
	if got := send("eve.test", "e4@eve.test", true, "References: <late@x.test> <z@x.test>").ThreadID; got != late {
		t.Errorf("a conversation that the agent enters late falls apart: %s and %s", late, got)
	}
	if got := send("sender.test", "m5@sender.test", true, "References: <late@x.test>").ThreadID; got == late {
		t.Error("the name of another's root opens its conversation")
	}
}

// TestAMailSaysWhetherItBeginsAConversation: of one that does nothing was counted before, and nothing is looked up.
func TestAMailSaysWhetherItBeginsAConversation(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	for i, row := range []struct {
		line  string
		opens bool
	}{
		{"X-Nothing: at all", true},
		{"In-Reply-To: <m0@sender.test>", false},
		{"In-Reply-To: <elsewhere@x.test>", true},
		{"References: <root@x.test> <elsewhere@x.test>", false}, // others of the same root may have come
	} {
		w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("text", fmt.Sprintf("Message-ID: <m%d@sender.test>", i), row.line)), "250")
		if in := s.engine.All()[i]; in.Opens != row.opens {
			t.Errorf("%s: opens %v", row.line, in.Opens)
		}
	}
}

func TestMailWithoutMessageID(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	for _, id := range []string{"Message-ID: <>", "Message-ID: none", "Message-ID: <a b@c>", "Message-ID: <a@b> <c@d>"} {
		mail := emailtest.Letter(id, "From: a@plain.test", id)
		before := len(s.engine.All())
		w.send("a@plain.test", []string{"echo@inbox.test"}, mail, "250")
		w.send("a@plain.test", []string{"echo@inbox.test"}, mail, "250")
		all := s.engine.All()
		if len(all) != before+1 {
			t.Fatalf("%s: the same bytes twice are %d messages", id, len(all)-before)
		}
		if got := all[before].Message.ID; got != digestOf([]byte(mail))+"@inbox.test" {
			t.Errorf("%s: id %s", id, got)
		}
		if notes, _ := readRoute(all[before].Route); notes.MessageID != "" {
			t.Errorf("%s: an invented id would go out: %s", id, notes.MessageID)
		}
	}
}

func TestIDList(t *testing.T) {
	for in, want := range map[string][]string{
		"<a@b>":                                 {"a@b"},
		"<a@b>\t<c@d>x<e@f>":                    {"a@b", "c@d", "e@f"},
		"<a b@c> <ok@x>":                        {"ok@x"},
		"<a@b@c>":                               nil,
		"<@b> <a@>":                             nil,
		"a@b":                                   nil,
		"<a@b":                                  nil,
		"<" + strings.Repeat("x", 1000) + "@y>": nil,
	} {
		if diff := cmp.Diff(want, message.IDs(in)); diff != "" {
			t.Errorf("%.40q: %s", in, diff)
		}
	}
}

func TestAutomaticMail(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnectionsPerIP = 100 })
	for name, c := range map[string]struct {
		lines []string
		from  string
		reply bool
	}{
		"a person":                {nil, "ann@sender.test", true},
		"auto-submitted no":       {[]string{"Auto-Submitted: No; x=y"}, "ann@sender.test", true},
		"null return path":        {nil, "", false},
		"auto-replied":            {[]string{"Auto-Submitted: (machine) Auto-Replied; owner-email=x@y"}, "ann@sender.test", false},
		"auto-generated":          {[]string{"auto-submitted: auto-generated"}, "ann@sender.test", false},
		"bulk":                    {[]string{"Precedence: Bulk"}, "ann@sender.test", false},
		"precedence normal":       {[]string{"Precedence: first-class"}, "ann@sender.test", true},
		"list":                    {[]string{"List-Id: <x.test>"}, "ann@sender.test", false},
		"unsubscribe":             {[]string{"List-Unsubscribe: <mailto:x@x.test>"}, "ann@sender.test", false},
		"suppress":                {[]string{"X-Auto-Response-Suppress: DR, AutoReply"}, "ann@sender.test", true},
		"suppress receipts only":  {[]string{"X-Auto-Response-Suppress: DR, RN"}, "ann@sender.test", true},
		"report":                  {[]string{"Content-Type: multipart/report; report-type=delivery-status; boundary=x"}, "ann@sender.test", false},
		"no-reply":                {[]string{"From: NoReply@sender.test"}, "ann@sender.test", false},
		"bounces":                 {[]string{"From: bounces+12@sender.test"}, "ann@sender.test", false},
		"daemon":                  {[]string{"From: MAILER-DAEMON@sender.test"}, "ann@sender.test", false},
		"list owner":              {[]string{"From: owner-talk@sender.test"}, "ann@sender.test", true},
		"request":                 {[]string{"From: talk-request@sender.test"}, "ann@sender.test", true},
		"our Message-ID":          {[]string{"Message-ID: <x@INBOX.test>"}, "ann@sender.test", false},
		"our loop mark":           {[]string{"X-Loop: echo@inbox.test"}, "ann@sender.test", false},
		"another loop mark":       {[]string{"X-Loop: talk@lists.test"}, "ann@sender.test", true},
		"bcc":                     {[]string{"To: somebody@else.test"}, "ann@sender.test", false},
		"cc":                      {[]string{"To: somebody@else.test", "Cc: Echo <ECHO+x@inbox.test>"}, "ann@sender.test", true},
		"out of office":           {[]string{"Subject: =?utf-8?Q?R=C3=A9ponse_automatique_:?= x"}, "ann@sender.test", false},
		"suppress by semicolons":  {[]string{"X-Auto-Response-Suppress: DR;OOF;AutoReply", "Feedback-ID: x"}, "ann@sender.test", false},
		"nested comments":         {[]string{"Auto-Submitted: ((a) machine \\) of ours) auto-generated"}, "ann@sender.test", false},
		"quoted keyword":          {[]string{"Auto-Submitted: \"no\""}, "ann@sender.test", true},
		"machine generated":       {[]string{"X-FC-MachineGenerated: true"}, "ann@sender.test", false},
		"no-reply with a number":  {[]string{"From: noreply-7f3a@sender.test"}, "ann@sender.test", false},
		"service no-reply":        {[]string{"From: drive-shares-noreply@sender.test"}, "ann@sender.test", false},
		"do not reply":            {[]string{"From: Do.Not_Reply@sender.test"}, "ann@sender.test", false},
		"envelope of a list":      {nil, "talk-bounces+ann=x.test@sender.test", false},
		"envelope of an owner":    {nil, "owner-talk@sender.test", false},
		"envelope of a daemon":    {nil, "MAILER-DAEMON@sender.test", false},
		"envelope of a service":   {nil, "bounces+123@sender.test", true},
		"out of office in notes":  {[]string{"Subject: AUTO: Ann Sender is out of the office (returning 24.11.2026)"}, "ann@sender.test", false},
		"a car":                   {[]string{"Subject: Auto: Reifen wechseln"}, "ann@sender.test", true},
		"out of office, Portugal": {[]string{"Subject: =?utf-8?Q?Resposta_autom=C3=A1tica:?= x"}, "ann@sender.test", false},
		"reply about bounces":     {[]string{"Subject: Re: Undeliverable: x"}, "ann@sender.test", true},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(s.engine.All())
			id := strings.ReplaceAll(name, " ", "-")
			lines := c.lines
			if !strings.Contains(strings.Join(lines, "\n"), "Message-ID") {
				lines = append([]string{"Message-ID: <" + id + "@sender.test>"}, lines...)
			}
			s.greet().send(c.from, []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("x", lines...)), "250")
			in := s.engine.All()[before]
			if (in.NoReply == "") != c.reply {
				t.Errorf("no reply because %q; reply wanted %v", in.NoReply, c.reply)
			}
		})
	}
}

// TestReplyToIsNoReflector: a sender who can sign mail names any address in Reply-To, and the agent would write there.
func TestReplyToIsNoReflector(t *testing.T) {
	policy := ""
	s := start(t, func(o *Options) {
		o.ReplyTo = func(string) string { return policy }
	})
	w := s.greet()
	for i, c := range []struct {
		policy, replyTo string
		sign            bool
		want            string // "" = From
		noted           bool
	}{
		{ReplyToOrganization, "Reply-To: desk@sub.sender.test", true, "desk@sub.sender.test", false},
		{ReplyToOrganization, "Reply-To: victim@far.test", true, "", true}, // covered by the aligned signature
		{ReplyToOrganization, "Reply-To: echo@inbox.test", true, "", true},
		{ReplyToOrganization, "Reply-To: a@sender.test, b@sender.test", true, "", true},
		{ReplyToOrganization, "Reply-To: a@sender.test\r\nReply-To: b@sender.test", true, "", true},
		{ReplyToOrganization, "Reply-To: Ann <ANN@sender.test>", true, "", false},
		{ReplyToOrganization, "X-None: 1", true, "", false},
		{ReplyToOrganization, "Reply-To: victim@far.test", false, "", true},
		{ReplyToOrganization, "Reply-To: desk@plain.test", false, "", true}, // nothing says that From is of plain.test
		{ReplyToSigned, "Reply-To: desk@far.test", true, "desk@far.test", false},
		{ReplyToSigned, "Reply-To: desk@far.test", false, "", true},
		{ReplyToNever, "Reply-To: desk@sender.test", true, "", true},
	} {
		policy = c.policy
		from := "ann@plain.test"
		if c.sign {
			from = "ann@sender.test"
		}
		mail := emailtest.Letter("x", c.replyTo, "From: "+from, "Message-ID: <"+string(rune('a'+i))+"@x.test>")
		if c.sign {
			mail = emailtest.Signed(t, mail)
		}
		w.send(from, []string{"echo@inbox.test"}, mail, "250")
		want := c.want
		if want == "" {
			want = from
		}
		reply := replyTo(s.engine.All()[i], normalized.Text("an answer"))
		plan, err := s.adapter.Plan(t.Context(), reply)
		if err != nil || len(plan.Destinations) != 1 || plan.Destinations[0].Address != want {
			t.Errorf("%s, %s, signed %v: plan %+v, %v; want %s", c.policy, c.replyTo, c.sign, plan, err, want)
		}
		receipts, err := s.deliver(reply)
		if err != nil || strings.Contains(receipts[0].Detail, "answered to From: the Reply-To ") != c.noted {
			t.Errorf("%s, %s, signed %v: %+v, %v; noted %v wanted", c.policy, c.replyTo, c.sign, receipts, err, c.noted)
		}
	}
}

func TestBaseSubject(t *testing.T) {
	for in, want := range map[string]string{
		"Re: RE[2]: Aw: Lunch": "Lunch", "Lunch": "Lunch", "Fwd: Lunch": "Fwd: Lunch", "Re:": "", "Note: this": "Note: this", "回复: 你好": "你好", "": "",
	} {
		if got := message.BaseSubject(in); got != want {
			t.Errorf("%q: %q; want %q", in, got, want)
		}
	}
}

func TestFromField(t *testing.T) {
	for in, want := range map[string]string{
		"Ann <Ann@Sender.TEST>":                  "Ann Ann@sender.test",
		"=?utf-8?Q?Gr=C3=BC=C3=9Fe?= <a@b.test>": "Grüße a@b.test",
		`"boss@bank.test" <a@b.test>`:            " a@b.test",
		"c@d.test (boss@x.test)":                 " c@d.test",
		"a@münchen.test":                         " a@xn--mnchen-3ya.test",
		`"A\u202eB" <a@b.test>`:                  "Au202eB a@b.test",
		"Ann\r\n <a@b.test>":                     "Ann a@b.test",
		`"Weird, (name): x" <a@b.test>`:          "Weird, (name): x a@b.test",
		"<a@b.test>":                             " a@b.test",
		"Team: a@b.test;":                        "",
		"undisclosed-recipients:;":               "",
		"a@b.test, c@d.test":                     "",
		"<@r.test:a@b.test>":                     "",
		"a@b.test <c@d.test>":                    "",
		"<a><b>":                                 "",
		"a@[127.0.0.1]":                          "",
		"a@b_c.test":                             "",
		"a@b.test:25":                            "",
		"..a@b.test":                             " ..a@b.test",
		"not an address":                         "",
		"":                                       "",
		strings.Repeat("x", 70) + "@b.test":      "",
		"Ann <ann@" + strings.Repeat("x.", 200) + "test>": "",
	} {
		fields, _, err := message.Split([]byte("From: " + in + "\r\n\r\n"))
		if err != nil {
			t.Fatal(err)
		}
		box, err := message.ParseFrom(fields)
		got := box.Name + " " + box.Address()
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestEnginesWordsReachThePeer(t *testing.T) {
	got := replyLine(smtpError(fault.InField("parts[0]", "must not be empty")))
	if got != "554 5.6.0 parts[0]: must not be empty\r\n" {
		t.Errorf("%q", got)
	}
}

// TestThreadTags lets a mail program answer that keeps nothing of the header but the address.
func TestThreadTags(t *testing.T) {
	s := start(t, func(o *Options) { o.ThreadTags = true })
	s.names.Text("sender.test", "v=spf1 ip4:127.0.0.1 -all") // what is in Bcc is proven by the envelope
	w := s.greet()
	w.send("ann@sender.test", []string{"echo@inbox.test"}, emailtest.Signed(t, emailtest.Letter("first")), "250")
	first := s.engine.Only(t)
	reply := replyTo(first, normalized.Text("an answer"))
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	fields, _, err := message.Split(s.captured()[0].Raw)
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
		{"a stranger who learnt the address, in Bcc", back, "eve", []string{"To: friend@example.test"}, false, true},
		{"another agent", strings.Replace(back, "echo+", "helper+", 1), "ann", []string{"To: helper@inbox.test"}, false, false},
		{"a made-up token", forged, "ann", nil, false, false},
		{"a made-up token in Bcc", forged, "ann", []string{"To: friend@example.test"}, false, true},
	} {
		lines := slices.Concat(row.lines, []string{"From: " + row.from + "@sender.test", "Message-ID: <again" + string(rune('a'+i)) + "@sender.test>"})
		w.send(row.from+"@sender.test", []string{row.to}, emailtest.Signed(t, emailtest.Letter("again", lines...)), "250")
		all := s.engine.All()
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
	reply := replyTo(s.engine.Only(t), normalized.Text("an answer"))
	if _, err := s.deliver(reply); err != nil {
		t.Fatal(err)
	}
	fields, _, err := message.Split(s.captured()[0].Raw)
	if err != nil || !strings.Contains(fields.Get("From"), "<echo+order-4711@inbox.test>") {
		t.Fatalf("From %q, %v", fields.Get("From"), err)
	}
	s.engine.replies[reply.ID+"@inbox.test"] = 0
	w.send("ann@sender.test", []string{fields.Get("Reply-To")}, emailtest.Signed(t, emailtest.Letter("again", "To: "+fields.Get("Reply-To"), "Message-ID: <again@sender.test>")), "250")
	again := s.engine.All()[1]
	if notes, _ := readRoute(again.Route); notes.Tag != "order-4711" || again.Message.Surface.Tag != "order-4711" {
		t.Errorf("tag %q, %q", notes.Tag, again.Message.Surface.Tag)
	}
	w.send("eve@sender.test", []string{fields.Get("Reply-To")}, emailtest.Signed(t, emailtest.Letter("hm", "From: eve@sender.test", "Message-ID: <eve@sender.test>")), "250")
	if notes, _ := readRoute(s.engine.All()[2].Route); notes.Tag != "" {
		t.Errorf("a stranger learns the tag %q", notes.Tag)
	}
}

func TestThreadAndBounceTokensDiffer(t *testing.T) {
	s := start(t, func(o *Options) { o.ThreadTags = true })
	const id = "01936f2a-0000-7000-8000-000000000001"
	token, _ := s.adapter.outbox.tokens.ReturnPath(id, "ann@sender.test")
	if got := s.adapter.recipients.answeredReply("echo", "t."+token); got != "" {
		t.Errorf("a bounce token is taken for the thread of %s", got)
	}
	_, tag, _ := strings.Cut(strings.TrimSuffix(s.adapter.outbox.renderer.threadAddress(id, "echo"), "@inbox.test"), "+")
	if _, is := s.adapter.outbox.tokens.Pass("bounce+" + strings.TrimPrefix(tag, "t.")); is {
		t.Error("a thread token is taken for a bounce")
	}
	if got := s.adapter.recipients.answeredReply("echo", tag); got != id {
		t.Errorf("the token is of %q", got)
	}
	if got := s.adapter.recipients.answeredReply("other", tag); got != "" {
		t.Errorf("at the mailbox of another agent the token is of %q", got)
	}
}

func TestTwoMailsOfOneIDAreKept(t *testing.T) {
	s := start(t, nil)
	w := s.greet()
	to := []string{"echo@inbox.test"}
	first, second := emailtest.Signed(t, emailtest.Letter("one")), emailtest.Signed(t, emailtest.Letter("two"))
	w.send("ann@sender.test", to, first, "250")
	w.send("ann@sender.test", to, "Received: from relay\r\n"+first, "250") // a repeat by another way
	w.send("ann@sender.test", to, second, "250")
	w.send("ann@sender.test", to, second, "250")
	all := s.engine.All()
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

// opening is a conversation that our agent begins, as the engine keeps it.
func (s *setup) opening(address string) exchange.Inbound {
	s.t.Helper()
	notes, err := s.adapter.Open(s.t.Context(), "ECHO", address, "")
	if err != nil {
		s.t.Fatal(err)
	}
	in := exchange.Inbound{Route: notes, Audience: exchange.Audience{Parties: s.adapter.Parties(notes)}, Message: normalized.Message{
		ID: "opening-1", ThreadID: "urn:opened", Recipient: "@echo@inbox.test", ReceivedVia: normalized.ViaEmail,
		Sender: normalized.Sender{Address: identity.Stated("@echo@inbox.test"), Verified: true},
	}}
	s.engine.Add(in)
	return in
}

func TestOpenBeginsAConversation(t *testing.T) {
	s := start(t, nil)
	reply := replyTo(s.opening("ann@sender.test"), consent())
	golden.Compare(t, filepath.Join("reply", "opened.golden"), s.presented(reply))
	if mails := s.captured(); len(mails) != 1 || len(mails[0].To) != 1 || mails[0].To[0] != "ann@sender.test" || mails[0].From != "echo@inbox.test" {
		t.Errorf("sent %+v", mails)
	}

	s.engine.mu.Lock()
	s.engine.replies[reply.ID+"@inbox.test"] = 0
	s.engine.mu.Unlock()
	header := []string{"In-Reply-To: <" + reply.ID + "@inbox.test>", "Subject: Re: Echo, the agent needs a decision"}
	answer := s.question(true, header...)
	if answer.Message.ThreadID != "urn:opened" || answer.Message.Parts[0].Content != "What is it?" {
		t.Errorf("the answer is in %s and says %q", answer.Message.ThreadID, answer.Message.Parts[0].Content)
	}
	if stranger := s.question(false, append(header, "From: ann@plain.test", "Message-ID: <other@plain.test>")...); stranger.Message.ThreadID == "urn:opened" {
		t.Error("a stranger joins the conversation")
	}
}

// TestNoticesHaveTwoForms: what the server tells its operator reads the same in both, and the words of others stay apart in both.
func TestNoticesHaveTwoForms(t *testing.T) {
	s := start(t, nil)
	in := s.opening("ann@sender.test")
	notes, err := s.adapter.Open(t.Context(), "echo", "ann@sender.test", "inbox inbox.test: Many turns of echo <fail>")
	if err != nil {
		t.Fatal(err)
	}
	in.Route = notes
	reply := replyTo(in, normalized.Text("12 since 2026-11-21 12:30 UTC. Further ones are counted; you hear of them when it is over.\n\n"+
		"| <b>the back end</b> said\n| From: no \u202eone\n\nLook: inbox retry --agent echo --failed --since 24h --dry-run\n  echo: 3"))
	golden.Compare(t, filepath.Join("reply", "notice.golden"), s.presented(reply))
}

func TestOpenSaysWhatCannotBe(t *testing.T) {
	s := start(t, nil)
	for agent, address := range map[string]string{"echo": "echo@inbox.test", "nobody": "ann@sender.test", "helper": "ann"} {
		if _, err := s.adapter.Open(t.Context(), agent, address, ""); err == nil || !fault.Of(err).Permanent {
			t.Errorf("%s to %s: %v", agent, address, err)
		}
	}
}
