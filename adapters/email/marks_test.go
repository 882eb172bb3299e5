package email

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"inbox/adapters/email/message"
)

// TestWeightsOfMarks: a strong mark is enough for silence, one weak mark is not. The mails are the first ones of their senders.
func TestWeightsOfMarks(t *testing.T) {
	s := start(t, func(o *Options) { o.MaxConnectionsPerIP = 1000 })
	for i, c := range []struct {
		lines  []string
		silent string // part of the reason; empty = answered
		weak   bool
	}{
		{[]string{"Feedback-ID: 1.us-west-2.x:AmazonSES"}, "", false},
		{[]string{"X-Auto-Response-Suppress: DR, OOF, AutoReply"}, "", false},
		{[]string{"X-Auto-Response-Suppress: All"}, "", false},
		{[]string{"Subject: Failure notice of my boiler"}, "", false},
		{[]string{"Subject: Mail could not be delivered to our door"}, "", false},
		{[]string{"Subject: Delivery failure: parcel 1234"}, "", false},
		{[]string{"Subject: Out of office furniture"}, "", false},
		{[]string{"Subject: Undelivered mail in our street"}, "", false},
		{[]string{"Subject: Returned mail: what does that mean?"}, "", false},
		{[]string{"Subject: Auto: Ölwechsel"}, "", false},
		{[]string{"From: bouncer@sender.test"}, "", false},
		{[]string{"From: price-request@sender.test"}, "", false},
		{[]string{"From: home-owner@sender.test"}, "", false},
		{[]string{"From: owner-relations@sender.test"}, "", false},
		{[]string{"Auto-Submitted: no", "Feedback-ID: x"}, "", false},

		{[]string{"Feedback-ID: x", "X-Auto-Response-Suppress: All"}, "Feedback-ID is present; X-Auto-Response-Suppress is present", true},
		{[]string{"Subject: Out of office furniture", "X-Auto-Response-Suppress: OOF"}, "X-Auto-Response-Suppress", true},
		{[]string{"From: price-request@sender.test", "Feedback-ID: x"}, "the address price-request", true},

		{[]string{"Auto-Submitted: auto-replied"}, "Auto-Submitted", false},
		{[]string{"List-Id: <a.b.test>"}, "List-Id", false},
		{[]string{"Precedence: bulk", "Feedback-ID: x", "X-Auto-Response-Suppress: All"}, "Precedence", false},
		{[]string{"Content-Type: multipart/report; boundary=x"}, "a report", false},
		{[]string{"From: no-reply@sender.test"}, "sent by no-reply", false},
		{[]string{"From: bounce@sender.test"}, "bounce address", false},
		{[]string{"From: bounces-77@sender.test"}, "bounce address", false},
		{[]string{"From: dev-bounces@sender.test"}, "bounce address", false},
		{[]string{"Subject: failure notice"}, "the subject says", false},
		{[]string{"Subject: Out of office: back on Monday"}, "the subject says", false},
		{[]string{"Subject: Out of Office AutoReply: lamps"}, "the subject says", false},
		{[]string{"Subject: Out of office until Monday"}, "the subject says", false},
		{[]string{"Subject: Undelivered Mail Returned to Sender"}, "the subject says", false},
		{[]string{"Subject: Mail delivery failed: returning message to sender"}, "the subject says", false},
		{[]string{"Subject: Delivery Status Notification (Failure)"}, "the subject says", false},
		{[]string{"Subject: Returned mail: see transcript for details"}, "the subject says", false},
		{[]string{"Subject: Automatic reply: lamps"}, "the subject says", false},
		{[]string{"Subject: Delivery failure notification"}, "the subject says", false},
		{[]string{"Subject: Mail could not be delivered"}, "the subject says", false},
		{[]string{"Subject: Returned Mail - Error During Delivery"}, "the subject says", false},
		{[]string{"Subject: RE: Your message : non remis (delivery failed)"}, "the subject says", false},
	} {
		in := s.question(true, append(c.lines, fmt.Sprintf("Message-ID: <mark%d@sender.test>", i))...)
		if (in.NoReply == "") != (c.silent == "") || !strings.Contains(in.NoReply, c.silent) || in.Doubted != c.weak {
			t.Errorf("%q: not answered because %q, doubted %t; want %q", c.lines, in.NoReply, in.Doubted, c.silent)
		}
	}
}

// TestWeakMarksAfterAnAnswer: a weak mark that comes with the answer to an answer is a program's, and one that the sender's mails had
// before is their provider's.
func TestWeakMarksAfterAnAnswer(t *testing.T) {
	const feedback, suppress = "Feedback-ID: x", "X-Auto-Response-Suppress: All"
	for name, c := range map[string]struct {
		first, second []string
		silent        bool
	}{
		"no marks":                      {nil, nil, false},
		"a new mark":                    {nil, []string{suppress}, true},
		"the mark of the first mail":    {[]string{feedback}, []string{feedback}, false},
		"another mark":                  {[]string{feedback}, []string{feedback, suppress}, true},
		"it was told that it is silent": {[]string{feedback, suppress}, []string{feedback, suppress}, false},
		"a subject is of one mail":      {[]string{"Subject: Out of office furniture"}, []string{"Subject: Out of office furniture"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, nil)
			reply := "01936f2a-0000-7000-8000-000000000001@inbox.test"
			s.question(true, append(c.first, "Message-ID: <first@sender.test>")...)
			s.engine.mu.Lock()
			s.engine.replies[reply] = 0
			s.engine.mu.Unlock()
			in := s.question(true, append(c.second, "Message-ID: <second@sender.test>", "In-Reply-To: <"+reply+">")...)
			if in.Doubted != c.silent || (in.NoReply != "") != c.silent {
				t.Errorf("not answered because %q, doubted %t", in.NoReply, in.Doubted)
			}
		})
	}
}

// TestMailsOfProgramsAreNeverAnswered reads mails that programs wrote, with an ordinary envelope, which says less than theirs did. Those of
// testdata are what the headers of the bounces and automatic answers in the tests of Mail::DeliveryStatus::BounceParser and of baunsu say.
func TestMailsOfProgramsAreNeverAnswered(t *testing.T) {
	names, err := filepath.Glob("bounce/testdata/*.eml")
	if err != nil || len(names) < 5 {
		t.Fatalf("%d mails, %v", len(names), err)
	}
	var headers [][]byte
	for _, name := range append(names, "testdata/automatic.txt") {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".eml") {
			headers = append(headers, raw)
			continue
		}
		for header := range strings.SplitSeq(string(raw), "\n\n") {
			headers = append(headers, []byte(header+"\n\n"))
		}
	}

	for _, raw := range headers {
		fields := message.SplitDamaged(raw)
		from, _ := message.ParseFrom(fields)
		mail := newArrival(envelope{from: "someone@sender.test", received: time.Now()}, fields, nil, raw)
		mail.sender.from = from
		strong := 0
		for _, one := range marksOf(mail, false) {
			if !one.weak {
				strong++
			}
		}
		if strong == 0 {
			t.Errorf("from %q, subject %q, marks %+v", from.Address(), fields.Decoded("Subject"), marksOf(mail, false))
		}
	}
}
