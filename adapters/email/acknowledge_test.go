package email

import (
	"strings"
	"testing"
	"time"

	"inbox/adapters/email/message"
	"inbox/exchange"
	"inbox/normalized"
)

func TestMailIsNotAcknowledgedWithinAMinute(t *testing.T) {
	s := start(t, nil)
	for wanted, want := range map[time.Duration]time.Duration{
		time.Millisecond: time.Minute, time.Minute: time.Minute, time.Hour: time.Hour,
	} {
		if got := s.adapter.AckAfter(wanted); got != want {
			t.Errorf("wanted after %v: after %v, want %v", wanted, got, want)
		}
	}
}

// TestAcknowledgementIsAnAutomaticReply: it stands in the thread as every reply does and goes to the asker alone.
func TestAcknowledgementIsAnAutomaticReply(t *testing.T) {
	s := start(t, nil)
	in := s.question(true)
	ack, answer := replyTo(in, normalized.Text("I am working on it.")), replyTo(in, normalized.Text("It is done."))
	ack.Notice, answer.ID = exchange.NoticeAck, "01936f2a-0000-7000-8000-000000000002"
	plan, err := s.adapter.Plan(t.Context(), ack)
	if err != nil || len(plan.Destinations) != 1 {
		t.Fatalf("plan %+v, %v", plan, err)
	}
	later, err := s.adapter.Plan(t.Context(), answer)
	if err != nil || later.Destinations[0].Key != plan.Destinations[0].Key || later.NativeID == plan.NativeID {
		t.Errorf("the answer goes %+v, %v; order is kept by key", later, err)
	}
	first, second := s.presented(ack), s.presented(answer)
	if !strings.Contains(string(first), "I am working on it.") {
		t.Errorf("the words are missing:\n%s", first)
	}
	for _, mail := range [][]byte{first, second} {
		fields, _, _ := message.Split(mail)
		for name, want := range map[string]string{
			"In-Reply-To": "<m1@sender.test>", "References": "<m1@sender.test>", "Subject": "Re: A question",
			"Auto-Submitted": "auto-replied", "X-Auto-Response-Suppress": "All",
		} {
			if got := fields.Get(name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
}
