package pipeline_test

import (
	"strings"
	"testing"

	"inbox/agents"
	"inbox/engine/moderation"
	"inbox/engine/pipeline"
	"inbox/exchange"
	"inbox/normalized"
)

// TestDoubtedSilenceIsExplainedOnceADay: a proven sender whose message was left without an answer because of a guess hears why, once in a day,
// also after a restart.
func TestDoubtedSilenceIsExplainedOnceADay(t *testing.T) {
	eachDatabase(t, func(t *testing.T, url string) {
		front := &script{name: "echo", answer: says("hi"), settings: agents.Settings{Unverified: agents.UnverifiedAnswer}}
		var later lateMeter
		e := composed(t, url, func(o *pipeline.Options) { o.Limiters.Meter = &later }, front)
		restart := func() { later.Meter = moderation.NewMeter(moderation.MeterOptions{Counters: e.store}) }
		restart()
		say := func(user, id string, change func(*exchange.Inbound)) {
			in := from(user, id, "t"+user+id+"@peer.test")
			in.NoReply, in.Doubted = "it looks automatic: two marks", true
			change(&in)
			turn := e.settled(t, e.receive(t, in).TurnID)
			if turn.State != exchange.StateSilent || !strings.HasPrefix(turn.Reason, "it looks automatic") {
				t.Errorf("%s: %s (%s)", id, turn.State, turn.Reason)
			}
		}
		same := func(*exchange.Inbound) {}

		say("ana", "1", same)
		if got := e.peer.next(t).Reply; !strings.Contains(normalized.PlainText(got.Response.Parts), "reply to this mail with any words") {
			t.Errorf("told %+v", got.Response.Parts)
		}
		say("ana", "2", same)
		restart()
		say("ana", "3", same)
		say("bea", "1", func(in *exchange.Inbound) { in.Doubted = false })
		say("bea", "2", func(in *exchange.Inbound) { in.FromAgent = true })
		say("bea", "3", func(in *exchange.Inbound) { in.Quiet = true })
		say("bea", "4", func(in *exchange.Inbound) {
			in.Message.Sender.Identities, in.Message.Sender.Verified, in.Message.Sender.AuthMethod = nil, false, normalized.AuthNone
		})
		say("bea", "5", same)
		e.peer.next(t)
		if e.peer.count() != 2 {
			t.Errorf("%d deliveries, want one sentence for each of two senders", e.peer.count())
		}
	})
}
